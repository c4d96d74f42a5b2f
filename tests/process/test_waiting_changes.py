"""Turns with commands that rules try: they share one layer, and one question decides about their changes. The model is
scripted; the gate, the record, the sandbox and the layers are real.
"""

import asyncio
import json
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from policy.model.tier import Mode
from policy.model.verdict import Problem
from runner.agent.conversation import Conversation
from runner.agent.open_session import SessionOptions, open_session
from runner.approval.approver import Answer, Edited, Halt, Kept, No, Question, Try, Yes
from runner.config import load
from runner.engine.run_limits import RunLimits
from runner.events import ActionFinished, CommandOutput, Denied, Event, Notice, RunEnded
from runner.messages import ProviderError, Request, UserMessage
from runner.problems import Exit
from runner.providers import OpenModel
from runner.state.paths import state_dir
from tests.process.test_flow_session import audit, results
from tests.process.test_sub_agents import Played, PlayedModel, play, spawn
from tests.process.test_tried_session import TryingUser, files, layers
from tests.support import forked_agent
from tests.support.forked_agent import AGENT
from tests.support.layers import overlays_work
from tests.support.loop_harness import let_time_pass
from tests.support.marked_processes import new_nap, processes
from tests.support.waiting import until_async

pytestmark = pytest.mark.skipif(not overlays_work(), reason="this user cannot mount an overlay")

PLAIN = {"a": "one\n", "b": "b\n"}
DO = "import subprocess, sys\nsys.exit(subprocess.call(['bash', '-c', sys.argv[1]]))\n"
RULE = '[[rule]]\nverdict = "try"\nrun = ["python3", "do.py", "**"]\nwhy = "look first"\n'
ALL = "all"


def do(script: str) -> tuple[str, dict[str, object]]:
    """Return the call of a command that the rule tries, which runs any script."""
    quoted = script.replace("'", "'\\''")
    return "bash", {"command": f"python3 do.py '{quoted}'"}


@pytest.fixture(autouse=True)
def work(tmp_path: Path) -> Path:
    folder, config = tmp_path / "w", tmp_path / "h/.config/ringfence"
    folder.mkdir()
    config.mkdir(parents=True)
    for name, text in PLAIN.items():
        (folder / name).write_text(text)
    (folder / "do.py").write_text(DO)
    (config / "config.toml").write_text(RULE)
    return folder


def everything(question: Question) -> Answer:
    """Keep everything."""
    tried = question.card.tried
    assert tried is not None
    return Kept(frozenset(range(1, len(tried.items) + 1)))


def only(*paths: str) -> Callable[[Question], Answer]:
    """Return the answer that keeps the items of these paths."""

    def answer(question: Question) -> Answer:
        tried = question.card.tried
        assert tried is not None
        named = {words.split()[1].rstrip("/"): number for number, words in enumerate(tried.items, 1)}
        return Kept(frozenset(named[path] for path in paths))

    return answer


def turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: TryingUser | None, *steps: object, **more: object
) -> Played:
    return play(tmp_path, monkeypatch, {"main": [*steps, "done"]}, mode=Mode.DEFAULT, approver=user, **more)  # type: ignore[arg-type]


def records(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    lines = audit(monkeypatch, capsys, "export", "--format", "jsonl").splitlines()
    return sorted((json.loads(line) for line in lines), key=lambda body: int(body["id"]))


@pytest.mark.threat("T317")
def test_the_commands_of_a_turn_share_a_layer_and_one_question_decides(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def look(question: Question) -> Answer:
        assert files(work) == PLAIN, "nothing is applied before the answer"
        return everything(question)

    user = TryingUser(look)
    played = turn(
        tmp_path, monkeypatch, user,
        [do("echo two > a; mkdir d; echo x > d/f")], [do("cat a d/f > e; rm b; echo seen; cat a")],
    )  # fmt: skip
    (asked,) = user.asked
    tried = asked.card.tried
    assert tried is not None
    assert [each.partition(": ")[2] for each in tried.commands] == ["exit code 0", "exit code 0"]
    assert [each.split()[1:] for each in tried.items] == [
        ["a", "(command", "1)"], ["b", "(command", "2)"], ["d/", "(1", "entry)", "(command", "1)"],
        ["e", "(command", "2)"],
    ]  # fmt: skip
    assert asked.again == "the turn is over"
    assert "seen\ntwo" in played.results[1], "the second command sees what the first one changed"
    assert "wait for the user's decision" in played.results[0]
    assert "the commands before it left there" in played.results[1]
    assert files(work) == {"a": "two\n", "d/f": "x\n", "e": "two\nx\n"}
    assert "kept all of its 4 changes" in results(played)
    assert not layers()
    bodies = [body for body in records(monkeypatch, capsys) if "because" in body]
    first, second, third, fourth = bodies
    assert [each.get("ran") for each in bodies] == [None, None, first["id"], second["id"]]
    assert [each["because"]["rule"] for each in (first, second)] == ["builtin:decision/tried"] * 2  # type: ignore[index]
    assert third["answer"] == fourth["answer"]
    assert fourth["answer"]["by"] == "terminal"  # type: ignore[index]
    shown = audit(monkeypatch, capsys, "show", "--text", str(third["id"]))
    assert f"{work}/a (" in shown
    assert f"{work}/e" not in shown, "each command has its own changes"
    assert f"{work}/e" in audit(monkeypatch, capsys, "show", "--text", str(fourth["id"]))
    assert f"about what the command of record {first['id']} changed" in shown
    assert not any(json.loads(audit(monkeypatch, capsys, "replay", "--json"))["counts"].values())


def test_one_undo_takes_back_what_was_kept(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turn(tmp_path, monkeypatch, TryingUser(only("a", "e")), [do("echo two > a; echo x > c")], [do("echo y > e; rm b")])
    assert files(work) == {"a": "two\n", "b": "b\n", "e": "y\n"}
    monkeypatch.chdir(work)
    done = forked_agent.run([AGENT, "undo"], capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    assert files(work) == PLAIN


# fmt: off
NOTHING_KEPT: list[Answer] = [
    No("too much"), No(), Halt(), Yes(), Try(), Edited("touch c"), Kept(frozenset()), Kept(frozenset({9})),
    Kept({1}),  # type: ignore[arg-type]  # what a program could give
]
# fmt: on


@pytest.mark.threat("T317")
def test_every_other_answer_leaves_no_trace(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer is that of a turn of its own, in one session."""
    user = TryingUser(*NOTHING_KEPT)
    ended: list[Answer | None] = []

    def look(event: Event) -> None:
        if isinstance(event, RunEnded):
            ended.append([*NOTHING_KEPT, None][len(ended)])
            assert files(work) == PLAIN, ended[-1]
            assert not (state_dir(os.environ) / "aside").exists(), ended[-1]
            assert len(user.asked) == min(len(ended), len(NOTHING_KEPT)), ended[-1]

    told: list[str] = []

    def step(request: Request) -> object:
        since = next(n for n, each in enumerate(reversed(request.messages)) if isinstance(each, UserMessage))
        if since == 0:
            told.append(str(request.messages[-4:]))
        if len(told) > len(NOTHING_KEPT):
            return "done"
        return [[do("echo two > a")], [do("echo y > e")], "done"][since // 2]

    steps, prompts = [step] * (3 * len(NOTHING_KEPT) + 1), ("go",) * (len(NOTHING_KEPT) + 1)
    played = play(tmp_path, monkeypatch, {"main": steps}, mode=Mode.DEFAULT, approver=user, prompts=prompts, heard=look)
    assert ended == [*NOTHING_KEPT, None]
    assert not layers()
    assert ["discarded everything that" in each for each in told[1:]] == [True] * len(NOTHING_KEPT), "the next prompt"
    assert "too much" in results(played)
    assert len(played.of("main", Denied)) == len(NOTHING_KEPT)


# fmt: off
SETTLING = [
    (("read", {"path": "{a}"}), "two", "a file tool that reads"),
    (("grep", {"pattern": "two", "path": "{a}"}), "two", "a search"),
    (("bash", {"command": "cat {a}"}), "two", "a command that only reads"),
    (("edit", {"path": "{a}", "old_string": "two", "new_string": "three"}), "", "a change of a file"),
    (("bash", {"command": "cp {a} g"}), "", "a command that is asked about"),
    (spawn("explore", "look"), "explore-", "a sub-agent"),
]
# fmt: on


@pytest.mark.threat("T317")
def test_another_action_waits_for_the_decision(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row is a turn of one session, and has a file of its own. The second action comes apart or in one reply."""
    rows = [(f"f{n}", row, bool(n % 2)) for n, row in enumerate(row for row in SETTLING for _ in range(2))]
    steps: list[object] = []
    for file, ((tool, arguments), _, _), together in rows:
        (work / file).write_text("one\n")
        first = do(f"echo two > {file}")
        call = (tool, json.loads(json.dumps(arguments).replace("{a}", file)))
        steps += [[first, call], "done"] if together else [[first], [call], "done"]

    class Deciding(TryingUser):
        async def ask_all(self, questions: Sequence[Question]) -> tuple[Answer, ...]:
            self.asked += questions
            return tuple(Yes() if each.card.tried is None else everything(each) for each in questions)

    user = Deciding()
    asked: list[int] = [0]  # questions until the end of each turn

    def look(event: Event) -> None:
        if isinstance(event, RunEnded) and event.agent == "main":
            asked.append(len(user.asked))

    prompts = ("go",) * len(rows)
    played = play(tmp_path, monkeypatch, {"main": steps}, mode=Mode.DEFAULT, approver=user, prompts=prompts, heard=look)
    assert len(asked) == len(rows) + 1
    for number, (file, ((tool, _), result, why), _) in enumerate(rows):
        said = played.results[2 * number + 1]
        assert user.asked[asked[number]].again.startswith("the next action needs the workspace as it is"), why
        assert result in said, why
        assert "kept all of its 1 change" in said, "the decision comes with the result"
        assert "not done" not in said, said
        assert (work / file).read_text() == ("three\n" if tool == "edit" else "two\n"), why


def test_what_does_not_touch_the_workspace_does_not_wait(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = TryingUser(everything)
    tasks = ("tasks", {"operation": "list"})
    turn(
        tmp_path,
        monkeypatch,
        user,
        [do("echo two > a")],
        [tasks, ("read", {"path": str(tmp_path / "h/.ssh/id_ed25519")})],
        [do("cat a > e")],
    )
    assert [each.again for each in user.asked] == ["the turn is over"]
    assert files(work) == {**PLAIN, "a": "two\n", "e": "two\n"}


@pytest.mark.threat("T317")
def test_a_decision_in_the_middle_begins_another_list(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = TryingUser(No(), everything)
    steps = [[do("echo two > a")], [("read", {"path": "a"})], [do("cat a > e")]]
    played = turn(tmp_path, monkeypatch, user, *steps)
    assert "one" in played.results[1]
    assert "discarded everything" in played.results[1]
    assert files(work) == {**PLAIN, "e": "one\n"}


@pytest.mark.parametrize("kind", ["error", "turns", "time"])
def test_the_end_of_a_turn_asks_whatever_ends_it(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    async def late() -> str:
        let_time_pass(1000)
        await asyncio.Event().wait()
        return "done"

    def fails(request: object) -> object:
        if kind == "error":
            raise ProviderError(Problem("the model failed", "it is a test", "none"))
        return late() if kind == "time" else [do("echo y > e")]

    bounds = {"turns": RunLimits(turns=1), "time": RunLimits(seconds=1000), "error": RunLimits()}[kind]
    user = TryingUser(everything)
    played = play(
        tmp_path, monkeypatch, {"main": [[do("echo two > a")], fails]}, mode=Mode.DEFAULT, approver=user, bounds=bounds
    )
    assert played.ending is not None
    assert played.ending.exit is (Exit.FAILED if kind == "error" else Exit.LIMIT)
    assert [each.again for each in user.asked] == ["the turn is over"]
    assert files(work) == {**PLAIN, "a": "two\n"}


class ConversedUser(TryingUser):
    """A user whose answers can stop the turn of the conversation."""

    conversation: Conversation


def converse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: ConversedUser, steps: list[object], *, leaving: bool
) -> Played:
    """Play a session whose turn is stopped with its second request."""
    monkeypatch.setenv("HOME", str(tmp_path / "h"))
    for name in [name for name in os.environ if name.startswith("XDG_")]:
        monkeypatch.delenv(name)
    played = Played()

    async def stop() -> str:
        user.conversation.interrupt(leaving=leaving)
        await asyncio.Event().wait()
        return "done"

    async def through() -> None:
        settings = load(tmp_path / "w", os.environ)
        model = OpenModel(PlayedModel({"main": [*steps, lambda request: stop()]}), "m")
        options = SessionOptions(tmp_path / "w", unattended=False, mode=Mode.DEFAULT)
        async with open_session(
            options, settings, os.environ, model=model, approver=user, emit=played.events.append
        ) as ctx:
            user.conversation = Conversation(ctx, played.history)
            played.ending = await user.conversation.prompt("go")

    asyncio.run(through())
    return played


def test_the_user_who_stops_a_turn_is_asked(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = ConversedUser(everything)
    played = converse(tmp_path, monkeypatch, user, [[do("echo two > a")]], leaving=False)
    assert played.ending is not None
    assert played.ending.exit is Exit.INTERRUPTED
    assert [each.again for each in user.asked] == ["the turn was stopped"]
    assert files(work) == {**PLAIN, "a": "two\n"}


@pytest.mark.threat("T317")
@pytest.mark.parametrize("leaving", [True, False], ids=["leaves", "stops again"])
def test_without_an_answer_nothing_is_kept_and_the_user_finds_a_patch(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leaving: bool
) -> None:
    class Stopping(ConversedUser):
        async def ask_all(self, questions: object) -> tuple[Answer, ...]:
            assert not leaving, "nobody is asked"
            self.conversation.interrupt()
            await asyncio.Event().wait()
            raise AssertionError

    played = converse(tmp_path, monkeypatch, Stopping(), [[do("echo two > a")]], leaving=leaving)
    assert played.ending is not None
    assert played.ending.exit is Exit.INTERRUPTED
    assert files(work) == PLAIN
    assert not layers()
    (patch,) = (state_dir(os.environ) / "aside").iterdir()
    assert "+two" in patch.read_text()
    assert any(str(patch) in event.text for event in played.of("main", Notice))  # type: ignore[attr-defined]


@pytest.mark.threat("T317")
def test_a_command_that_is_stopped_is_in_the_list(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting: list[asyncio.Task[None]] = []

    async def stop_when_written() -> None:
        await until_async(lambda: list((state_dir(os.environ) / "transactions").glob("*/*/upper/e")))
        let_time_pass(1000)

    def second(request: object) -> object:
        waiting.append(asyncio.ensure_future(stop_when_written()))
        return [do("echo y > e; sleep 600")]

    user = TryingUser(everything)
    bounds = RunLimits(seconds=1000)
    steps = [[do("echo two > a")], second]
    play(tmp_path, monkeypatch, {"main": steps}, mode=Mode.DEFAULT, approver=user, bounds=bounds)
    (asked,) = user.asked
    assert asked.card.tried is not None
    assert asked.card.tried.commands[1].endswith("ended by cancelled")
    assert files(work) == {**PLAIN, "a": "two\n", "e": "y\n"}


@pytest.mark.threat("T317")
def test_a_process_that_lives_on_changes_nothing_for_the_next_command(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = new_nap()
    loop = "while :; do echo evil > a; echo evil > z; echo evil >> /tmp/z; done"
    lives = (
        f"echo shown > a; (trap '' HUP TERM; setsid bash -c '{loop}' {mark} </dev/null >/dev/null 2>&1 &); "
        "until [ -s z ]; do :; done; sleep 0.01"
    )

    def second(request: object) -> object:
        assert not processes(mark), "it lives on while nobody changes the files"
        return [do("echo mine > a; cat a; ls /proc | grep -c '^[0-9]'")]

    def wait(question: Question) -> Answer:
        assert not processes(mark)
        return everything(question)

    user = TryingUser(wait)
    played = turn(tmp_path, monkeypatch, user, [do(lives)], second, [do("cat a")])
    assert "mine" in played.results[1]
    assert "evil" not in played.results[1]
    assert "mine" in played.results[2]
    assert (work / "a").read_text() == "mine\n"


@pytest.mark.threat("T317")
@pytest.mark.parametrize("when", ["between", "shown"])
@pytest.mark.parametrize("how", ["same size", "more"])
def test_a_layer_that_something_else_changed_is_lost(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str, how: str
) -> None:
    """A program of the same user outside of the sandbox stands for a process that nobody knows of."""

    def tamper() -> None:
        (upper,) = (state_dir(os.environ) / "transactions").glob("*/*/upper")
        if how == "more":
            (upper / "z").write_text("evil\n")
            return
        found = os.stat(upper / "a")
        (upper / "a").write_text("2wo\n")
        os.utime(upper / "a", ns=(found.st_atime_ns, found.st_mtime_ns))

    def between(request: object) -> object:
        if when == "between":
            tamper()
        return [do("cat a > e")]

    def shown(question: Question) -> Answer:
        if when == "shown":
            tamper()
        return everything(question)

    user = TryingUser(shown)
    played = turn(tmp_path, monkeypatch, user, [do("echo two > a")], between)
    assert "no longer those that the user saw" in results(played)
    assert files(work) == (PLAIN if when == "shown" else {**PLAIN, "e": "one\n"})
    assert not layers()


@pytest.mark.threat("T317")
@pytest.mark.threat("T304")
def test_changes_of_others_win_and_the_next_command_sees_them(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def edit(request: object) -> object:
        (work / "a").write_text("mine\n")
        (work / "b").write_text("mine too\n")
        return [do("cat a b > e")]

    played = turn(tmp_path, monkeypatch, TryingUser(everything), [do("echo two > a")], edit)
    assert files(work) == {"a": "mine\n", "b": "mine too\n", "e": "two\nmine too\n"}
    assert "another program changed it" in results(played)


@pytest.mark.threat("T317")
def test_an_auto_run_file_is_held_back_although_a_later_command_used_it(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = TryingUser(everything)
    steps = [[do("mkdir .vscode; echo {} > .vscode/settings.json")], [do("cp .vscode/settings.json e; echo y > g")]]
    played = turn(tmp_path, monkeypatch, user, *steps)
    tried = user.asked[0].card.tried
    assert tried is not None
    assert any(each.startswith("held back: .vscode") for each in tried.notes)
    assert files(work) == {**PLAIN, "e": "{}\n", "g": "y\n"}
    assert "new auto-run file" in results(played)


@pytest.mark.threat("T317")
def test_a_later_command_gets_no_more_than_the_sandbox_gives_the_first(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first command changes what the second one runs, and prepares links and folders for it."""
    (work / ".env").write_text("TOKEN=ghp_0123456789abcdefghijklmnopqrstuvwxyz\n")
    (work / "sub").mkdir()
    (work / "sub/.env").write_text("TOKEN=ghp_0123456789abcdefghijklmnopqrstuvwxyz\n")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine").write_text("mine\n")
    first = (
        "echo 'import os; os.system(\"cat .env sub/.env sub2/.env secret; touch out/evil; "
        f"touch {tmp_path}/out/evil; cat out/mine; curl -sS -m 3 http://example.org\")' > do.py; "
        f"ln -s {tmp_path}/out out; ln -s .env secret; mv sub sub2; rm -rf sub; ln -s {tmp_path}/out sub; true"
    )
    user = TryingUser(No())
    played = turn(tmp_path, monkeypatch, user, [do(first)], [do("x")], [("bash", {"command": "ls"})])
    assert "ghp_" not in results(played)
    assert "mine" not in played.results[1].replace("out/mine", "")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]
    assert (work / "do.py").read_text() == DO


@pytest.mark.threat("T317")
def test_a_runner_that_is_killed_applies_nothing_and_loses_nothing(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(question: Question) -> Answer:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    def kill_between(request: object) -> str:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    for steps in ([[do("echo two > a")], [do("rm b")]], [[do("echo two > a")], kill_between]):
        child = os.fork()
        if child == 0:
            try:
                turn(tmp_path, monkeypatch, TryingUser(kill), *steps)
            finally:
                os._exit(0)
        assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
        assert files(work) == PLAIN
        monkeypatch.setenv("HOME", str(tmp_path / "h"))
        assert layers(), "the layer of the killed runner is left"
        turn(tmp_path, monkeypatch, TryingUser(everything), [do("echo y > e")])
        assert files(work) == {**PLAIN, "e": "y\n"}
        assert not layers(), "the next action removed it"
        (work / "e").unlink()


def test_a_sub_agent_is_asked_as_soon_as_its_command_has_ended(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts: dict[str, list[object]] = {
        "main": [[spawn("general", "work")], "done"],
        "general-1": [[do("echo two > a")], [("read", {"path": "a"})], "done"],
    }
    play(tmp_path, monkeypatch, scripts, mode=Mode.TRUST_PROJECT, approver=(user := TryingUser(everything)))
    assert [each.again for each in user.asked] == ["other agents use the workspace at the same time"]
    assert user.asked[0].card.agent == "general-1"
    assert files(work) == {**PLAIN, "a": "two\n"}


@pytest.mark.threat("T317")
def test_a_command_with_other_rights_waits_for_the_decision(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule covers both commands, and the second one may read a file that the first one may not."""
    rule = RULE.replace('"do.py", "**"]', '["do.py", "/**"], "**"]')
    (tmp_path / "h/.config/ringfence/config.toml").write_text(rule)
    (tmp_path / "other.py").write_text("print(open('a').read())\n")
    user = TryingUser(everything, Yes())
    other = ("bash", {"command": f"python3 {tmp_path}/other.py"})
    played = turn(tmp_path, monkeypatch, user, [do("echo two > a")], [other])
    assert user.asked[0].again.startswith("the next"), user.asked[0].again
    assert "two" in played.results[1], "it runs after the decision"


@pytest.mark.threat("T317")
def test_an_approver_that_fails_at_the_end_keeps_nothing(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(question: Question) -> Answer:
        raise RuntimeError("the terminal is gone")

    with pytest.raises(RuntimeError, match="is gone"):
        turn(tmp_path, monkeypatch, TryingUser(fails), [do("echo two > a")])
    assert files(work) == PLAIN
    assert not layers()


def test_commands_that_changed_nothing_leave_no_question(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = TryingUser()
    turn(
        tmp_path,
        monkeypatch,
        user,
        [do("cp -p a /tmp/old; echo two > a")],
        [do("cp -p /tmp/old a")],
    )
    assert not user.asked
    assert files(work) == PLAIN
    assert not layers()


def test_the_output_of_each_command_is_shown_while_it_runs(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = turn(tmp_path, monkeypatch, TryingUser(No()), [do("echo hello; echo two > a")])
    ends = [event for event in played.events if isinstance(event, ActionFinished)]
    assert "hello" in ends[0].text
    shown = [event.text for event in played.events if isinstance(event, CommandOutput)]
    assert "".join(shown) == "hello\n"
