"""HTTP hooks and prompt hooks, the other events, the examples of the guide, and the commands about hooks."""

import asyncio
import http.server
import json
import re
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from policy.model.tier import Mode
from runner.agent.open_session import SessionOptions, open_session
from runner.approval.approver import Unattended
from runner.audit.decisions import trail_of
from runner.audit.detail_view import deed_text
from runner.audit.log import AuditLog
from runner.config import load
from runner.config.agentfiles.definitions.definition import BUILT_IN
from runner.frontends.serve.calls import ProgressReports, ServedCalls
from runner.hooks.configured import find_hooks
from runner.messages import ToolCall, ToolResult, joined_text
from runner.problems import Exit
from runner.providers import OpenModel
from runner.providers.scripted import ScriptedProvider, Turn
from tests.support.cli_harness import CliHarness
from tests.support.hook_session import folders, hook, play

DONE = Turn("done")
GUIDE = Path(__file__).parents[2] / "docs/guide/hooks.md"


def bash(command: str) -> Turn:
    return Turn(calls=(ToolCall("", "bash", {"command": command}),))


class Receiver(http.server.BaseHTTPRequestHandler):
    """Answers each request with `answer`, and keeps what it got."""

    answer: tuple[int, str] = (200, "{}")
    got: ClassVar[list[tuple[dict[str, str], dict[str, Any]]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        type(self).got.append((dict(self.headers), json.loads(body)))
        status, text = type(self).answer
        self.send_response(status)
        if 300 <= status < 400:
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_words: object) -> None:
        return


@pytest.fixture
def receiver() -> Iterator[int]:
    Receiver.got.clear()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


def http_hook(port: int, *, private: bool, **values: object) -> str:
    hosts = f'hosts = ["127.0.0.1:{port} private"]\n' if private else ""
    more = "".join(f"{key} = {value}\n" for key, value in values.items())
    return f'[[hook]]\nevent = "PreToolUse"\nurl = "http://127.0.0.1:{port}/hook"\n{hosts}{more}'


# fmt: off
POSTED = [
    ((200, '{"decision": "block", "reason": "not today"}'), True,  "not today",       "an answer denies"),
    ((200, "{}"),                                           True,  "",                "an answer without an objection"),
    ((500, "{}"),                                           True,  "status 500",      "a status that is no answer"),
    ((302, "{}"),                                           True,  "status 302",      "a redirect is not followed"),
    ((200, "not json"),                                     True,  "invalid JSON",    "an answer that is no JSON"),
    ((200, '"' + "a" * 3_000_000 + '"'),                    True,  "the hook failed", "an answer without end"),
    ((200, "{}"),                                           False, "the hook failed", "a private address that nobody named"),
]
# fmt: on


@pytest.mark.threat("T206")
@pytest.mark.parametrize(("answer", "private", "said", "why"), POSTED, ids=[row[3] for row in POSTED])
def test_an_http_hook_answers_through_the_egress_rules(
    answer: tuple[int, str], private: bool, said: str, why: str, receiver: int, tmp_path: Path
) -> None:
    Receiver.answer = answer
    got = play(tmp_path, http_hook(receiver, private=private), bash("touch made"), DONE)
    assert got.ending is not None
    assert (got.ending.exit is Exit.DENIED) is bool(said), why
    assert (tmp_path / "work/made").exists() is not bool(said)
    assert said in json.dumps(got.records), why
    assert len(Receiver.got) == (1 if private else 0)
    if private:
        assert Receiver.got[0][1]["tool_input"] == {"command": "touch made"}


@pytest.mark.parametrize(("answer", "denied"), [('{"ok": true}', False), ('Sure: {"ok": false, "reason": "publishes"}', True),
                                                ("I think it is fine", True)])  # fmt: skip
def test_a_prompt_hook_asks_the_small_model_on_the_budget(answer: str, denied: bool, tmp_path: Path) -> None:
    asks = '[[hook]]\nevent = "UserPromptSubmit"\nprompt = "Does this publish? $ARGUMENTS"\n'
    got = play(tmp_path, asks, Turn(answer), DONE)
    assert got.ending is not None
    assert (got.ending.exit is Exit.DENIED) is denied
    kinds = [record["action"]["question"] for record in got.records if record["kind"] == "decided"]
    assert kinds == ["Does this publish? $ARGUMENTS"]


def test_a_hook_of_the_end_and_one_in_the_background_are_recorded(tmp_path: Path) -> None:
    both = hook("SessionEnd", "exit 0") + hook("PreToolUse", "exit 2", background=True)
    got = play(tmp_path, both, bash("touch made"), DONE)
    assert (tmp_path / "work/made").exists(), "nothing waits for a hook in the background"
    assert [each[0] for each in got.answers("PreToolUse")] == ["deny"]


def test_hooks_of_a_sub_agent_start_guard_and_stop_it(tmp_path: Path) -> None:
    configuration = (
        hook("SubagentStart", "cat > /dev/null; echo 'be brief'")
        + hook(
            "PreToolUse",
            'test "$(jq -r .agent_id)" != null && { echo "not by agents" >&2; exit 2; }; exit 0',
            matcher="Bash",
        )
        + hook("SubagentStop", '[ "$(jq -r .stop_hook_active)" = true ] || { echo more >&2; exit 2; }')
        + hook("UserPromptSubmit", "cat > /dev/null")
    )
    start = Turn(calls=(ToolCall("", "agent", {"agent": "general", "prompt": "look around"}),))
    turns = (start, bash("touch made"), Turn("first report"), Turn("second report"), DONE)
    got = play(tmp_path, configuration, *turns, agents=BUILT_IN)
    assert "second report" in got.told[0]
    assert not (tmp_path / "work/made").exists()
    assert [each[0] for each in got.answers("SubagentStart")] == ["allow"]
    assert [each[0] for each in got.answers("SubagentStop")] == ["retry", "allow"]
    assert [each[0] for each in got.answers("PreToolUse")] == ["deny"]
    assert len(got.answers("UserPromptSubmit")) == 1, "the prompt of an agent is no prompt of the user"


def test_hooks_guard_the_calls_of_clients(tmp_path: Path) -> None:
    work, environ = folders(tmp_path, hook("PreToolUse", "echo 'not for clients' >&2; exit 2"))
    settings = load(work, environ)
    hooks = find_hooks(settings, str(work), environ["HOME"])

    async def called() -> ToolResult:
        model = OpenModel(ScriptedProvider(()), "none")
        options = SessionOptions(work, True, Mode.TRUST_PROJECT, hooks=hooks)
        nobody = Unattended(lambda event: None)
        async with open_session(
            options, settings, environ, model=model, approver=nobody, emit=lambda event: None
        ) as ctx:
            served = ServedCalls(ctx)
            return await served.call("bash", {"command": "touch made"}, "probe 1", nobody, ProgressReports())

    result = asyncio.run(called())
    assert "not for clients" in joined_text(result.content)
    assert not (work / "made").exists()


@pytest.mark.threat("T211")
def test_plan_mode_refuses_a_hook_that_may_change_files(tmp_path: Path) -> None:
    writes = hook("PreToolUse", "touch made", write=["."])
    got = play(tmp_path, writes, bash("ls"), DONE, mode=Mode.PLAN)
    assert not (tmp_path / "work/made").exists()
    assert "the hook failed" in got.told[0]
    reads = play(tmp_path, hook("PreToolUse", "cat >/dev/null"), bash("ls"), DONE, mode=Mode.PLAN)
    assert "exit status 0" in reads.told[0]


# ---- the examples of the guide

EXAMPLES = {
    match[1]: match[2]
    for match in re.finditer(r"### (A formatter|A linter|A notifier|Green tests).*?```toml\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
}  # fmt: skip


def example(name: str) -> str:
    assert tomllib.loads(EXAMPLES[name])["hook"]
    return EXAMPLES[name]


def test_the_formatter_of_the_guide_formats_after_an_edit(tmp_path: Path) -> None:
    written = Turn(calls=(ToolCall("", "write", {"path": "a.json", "content": '{"a":1}'}),))
    got = play(tmp_path, example("A formatter"), written, DONE, mode=Mode.ACCEPT_EDITS)
    assert (tmp_path / "work/a.json").read_text() == '{\n  "a": 1\n}\n', got.notices


def test_the_linter_of_the_guide_denies_a_commit(tmp_path: Path) -> None:
    files = {"a.py": "x = 1  # TODO\n"}
    got = play(tmp_path, example("A linter"), bash("git commit -m x"), bash("true"), DONE, files=files)
    assert "remove these before the commit" in got.told[0]
    assert "a.py:1" in got.told[0]
    assert "exit status 0" in got.told[1]


def test_the_notifier_of_the_guide_writes_a_line(tmp_path: Path) -> None:
    (tmp_path / "home/notes").mkdir(parents=True)

    class Nobody:
        name = "person"

        async def ask(self, ask: Any, offer: Any = None) -> Any:
            from runner.approval.approver import No

            return No()

    play(tmp_path, example("A notifier"), bash("touch made"), DONE, mode=Mode.DEFAULT, approver=Nobody())
    assert "touch made" in (tmp_path / "home/notes/agent.log").read_text()


def test_the_stop_hook_of_the_guide_requires_green_tests(tmp_path: Path) -> None:
    files = {"run-tests.sh": "test -e fixed\n"}
    turns = (Turn("all done"), bash("touch fixed"), Turn("fixed"))
    got = play(tmp_path, example("Green tests"), *turns, files=files)
    assert got.ending is not None
    assert got.ending.text == "fixed"
    assert sum("the tests fail" in each for each in got.asked) == 1


# ---- commands


def test_the_commands_list_try_import_and_explain(tmp_path: Path) -> None:
    agent = CliHarness(tmp_path)
    agent.work.mkdir(parents=True)
    folders(tmp_path)
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    (home / ".claude").mkdir()
    settings = {
        "hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "echo no >&2; exit 2"}]}]}
    }
    (home / ".claude/settings.json").write_text(json.dumps(settings))
    listed = agent.agent("hooks", "list", "--json")
    row = json.loads(listed.stdout)
    assert (row["place"], row["runs"], row["state"]) == ("~/.claude/settings.json:1", 0, "on")
    tried = agent.agent("hooks", "test", "PreToolUse", "--input", '{"command": "ls"}', "--json")
    assert tried.returncode == Exit.DENIED, tried.stderr
    answer = json.loads(tried.stdout)["answers"][0]
    assert (answer["decision"], answer["reason"]) == ("deny", "no")
    assert json.loads(agent.agent("hooks", "list", "--json").stdout)["runs"] == 1
    with AuditLog.open_to_read(tmp_path / "state/audit.db") as log:
        record = log.get(answer["record"])
        assert record is not None
        trail = trail_of(log, record)
        assert trail is not None
        shown = deed_text(trail)
    assert f"~/.claude/settings.json:1 (PreToolUse, record {record.id}) answered deny: no" in shown
    doctor = json.loads(agent.agent("doctor", "--json").stdout)
    assert [each["detail"] for each in doctor["findings"] if each["name"] == "hook"] == [
        "PreToolUse(Bash), ~/.claude/settings.json:1: ran 1 time"
    ]
    done = agent.agent("hooks", "import", "claude")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in agent.agent("hooks", "list", "--json").stdout.splitlines()]
    assert len(rows) == 2
    assert len(json.loads(agent.agent("hooks", "test", "PreToolUse", "--json").stdout)["answers"]) == 1, (
        "equal ones run once"
    )
    again = agent.agent("hooks", "import", "claude", "--json")
    assert json.loads(again.stdout)["imported"] is False
    assert agent.agent("hooks", "test", "PreTool").returncode == Exit.USAGE


def test_a_replay_takes_the_answers_of_hooks_as_recorded(tmp_path: Path) -> None:
    agent = CliHarness(tmp_path)
    agent.work.mkdir(parents=True)
    (tmp_path / "home").mkdir()
    (tmp_path / "config/ringfence").mkdir(parents=True)
    (tmp_path / "config/ringfence/config.toml").write_text(hook("PreToolUse", "echo no >&2; exit 2"))
    script = {"turn": [{"calls": [{"name": "bash", "arguments": {"command": "touch made"}}]}, {"text": "done"}]}
    (tmp_path / "script.json").write_text(json.dumps(script))
    done = agent.agent("run", f"--model=scripted:{tmp_path}/script.json", "--mode=trust-project", "go")
    assert done.returncode == Exit.DENIED, done.stderr
    replayed = json.loads(agent.agent("audit", "replay", "--json").stdout)
    assert (replayed["replayed"], replayed["differences"], replayed["unknown"]) == (2, [], []), replayed
