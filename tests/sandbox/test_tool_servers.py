"""Tool servers in their sandbox: what they may do, what is stopped, and how the session takes it."""

import asyncio
import contextlib
import json
import shutil
import socket
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from policy.model.action import CallServerTool, ReadServerResource
from policy.model.tier import Mode
from runner.audit.chain import Wanted
from runner.events import Event, InputWanted
from runner.frontends.jsonl.approver import Questions
from runner.frontends.jsonl.protocol import AnswerLine
from runner.mcp.servers import ServerState
from tests.support.marked_processes import new_nap, processes
from tests.support.server_session import environ, hostile, server_session
from tests.support.waiting import until, until_async

PATIENCE = 180.0  # seconds, only to end a test that hangs: some start two sessions


@pytest.fixture
def place() -> Iterator[Path]:
    """A home with a key, and a workspace below it."""
    base = Path(tempfile.mkdtemp(prefix="servers-", dir="/var/tmp")).resolve()
    (base / "home/work/.git/hooks").mkdir(parents=True)
    (base / "home/.ssh").mkdir()
    (base / "home/.ssh/id_rsa").write_text("walnut")
    (base / "home/work/.env").write_text("WORD=walnut")
    (base / "home/work/notes.txt").write_text("noon")
    yield base
    shutil.rmtree(base)


def text_of(outcome: Any) -> str:
    return "".join(str(block.get("text", "")) for block in outcome.data["content"])


def run(work: Any) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE):
            await work()

    asyncio.run(bounded())


@pytest.mark.parametrize("kind", ["plain", "modern", "greeting"])
def test_a_server_of_each_generation_is_used(place: Path, kind: str) -> None:
    async def work() -> None:
        async with server_session(place / "home/work", environ(place), hostile("one", kind)) as session:
            row = session.row("one")
            assert (row.state, len(row.tools)) == (ServerState.READY, 5)
            assert row.protocol == ("2026-07-28" if kind == "modern" else "2025-11-25")
            assert text_of(await session.call("one", "echo", text="hi")) == "hi"
            assert session.shelf.names["one"] == ["echo", "read", "connect", "slow", "ask"]

    run(work)


@pytest.mark.threat("T179")
@pytest.mark.parametrize(
    ("rights", "path", "seen"),
    [
        ((), "home/.ssh/id_rsa", None),
        ((), "home/work/notes.txt", None),
        (("home/work",), "home/work/notes.txt", "noon"),
        (("home/work",), "home/work/.env", None),
        ((), "state/ringfence", None),
        ((), "/proc/1/environ", None),
    ],
    ids=[
        "a key",
        "the workspace without a right",
        "the workspace",
        "a secret of the workspace",
        "our state",
        "the machine",
    ],
)
def test_a_server_reads_what_its_configuration_names(
    place: Path, rights: tuple[str, ...], path: str, seen: str | None
) -> None:
    async def work() -> None:
        read = tuple(str(place / each) for each in rights)
        config = hostile("one", "plain", read=(str(Path(__file__).parents[1] / "support"), *read))
        async with server_session(place / "home/work", environ(place), config) as session:
            outcome = await session.call("one", "read", path=str(place / path))
            assert outcome.data["failed"] is (seen is None)
            assert "walnut" not in text_of(outcome)
            if seen is not None:
                assert text_of(outcome) == seen

    run(work)


@pytest.mark.threat("T179")
def test_a_server_sees_no_variable_of_the_user_and_no_network(place: Path) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]

    async def work() -> None:
        async with server_session(place / "home/work", environ(place), hostile("one", "plain")) as session:
            names = text_of(await session.call("one", "read", path="/proc/self/environ"))
            assert "PATH=" in names
            assert "walnut" not in names
            refused = await session.call("one", "connect", host="127.0.0.1", port=port)
            assert refused.data["failed"] is True

    run(work)
    listener.settimeout(0)
    with pytest.raises(BlockingIOError):
        listener.accept()


@pytest.mark.threat("T176")
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("line",), "more than 16 MiB"),
        (("noise",), "lines that are no messages"),
        (("requests",), "messages at once"),
        (("exit",), "ended with status 2; it wrote: ImportError"),
        (("many", "10000"), "more than 2,000 tools"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_server_that_floods_or_dies_is_ended_with_a_reason(
    place: Path, words: tuple[str, ...], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if words == ("requests",):  # one read has more, so that the speed of the server does not decide
        monkeypatch.setattr("runner.mcp.stdio._MOST_WAITING", 200)
    if words != ("exit",):  # the process of the others does not end by itself
        monkeypatch.setattr("runner.mcp.servers._DYING", 0.1)

    async def work() -> None:
        config = hostile("one", *words, timeout=20.0)
        async with server_session(place / "home/work", environ(place), config) as session:
            assert session.row("one").state is ServerState.FAILED
            assert why in session.row("one").error
            assert any(why in notice for notice in session.notices)
            assert (await session.call("one", "echo", text="x")).problem is not None

    run(work)


@pytest.mark.threat("T176")
def test_the_wait_for_a_silent_server_is_told_and_ends(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.mcp.servers._PATIENCE", 0.1)
    monkeypatch.setattr("runner.mcp.servers._DYING", 0.1)  # its process does not end by itself

    async def work() -> None:
        config = hostile("silent", "silent", start_timeout=1.0)
        async with server_session(place / "home/work", environ(place), config) as session:
            assert session.notices[0] == "waiting for the server `silent`, 1 s at most (`start_timeout`)"
            assert session.row("silent").state is ServerState.FAILED
            assert "no answer in 1 s" in session.row("silent").error

    run(work)


@pytest.mark.threat("T176")
@pytest.mark.slow("a server writes without end until the session is closed")
def test_standard_error_without_end_and_silence_hold_up_nothing(place: Path) -> None:
    async def work() -> None:
        configs = (hostile("errors", "errors"), hostile("silent", "silent"), hostile("good", "plain"))
        async with server_session(place / "home/work", environ(place), *configs, wait=False) as session:
            await until_async(lambda: session.row("good").state is ServerState.READY)
            assert text_of(await session.call("good", "echo", text="hi")) == "hi"

    run(work)


def test_a_server_that_dies_at_its_start_is_told_with_its_denials(place: Path) -> None:
    async def work() -> None:
        async with server_session(place / "home/work", environ(place), hostile("one", "crash-after-list")) as session:
            assert session.row("one").state is ServerState.FAILED
            assert any("ended with status 7" in notice and "id_rsa" in notice for notice in session.notices)

    run(work)


def test_a_crash_in_a_call_is_an_error_of_that_call_and_the_server_is_started_anew(place: Path) -> None:
    async def work() -> None:
        async with server_session(place / "home/work", environ(place), hostile("one", "crash-in-call")) as session:
            assert (await session.call("one", "echo", text="x")).problem is not None
            # Its end is noticed after the call.
            await until_async(lambda: any("out of memory" in notice for notice in session.notices))
            await until_async(lambda: session.row("one").state is ServerState.READY)
            await until_async(lambda: session.shelf.names["one"])  # its tools are offered again after it is ready

    run(work)


@pytest.mark.threat("T176")
def test_answers_to_other_requests_are_ignored(place: Path) -> None:
    async def work() -> None:
        async with server_session(place / "home/work", environ(place), hostile("one", "other-id")) as session:
            for word in ("a", "b"):
                assert text_of(await session.call("one", "echo", text=word)) == word

    run(work)


@pytest.mark.threat("T176")
def test_the_processes_of_a_server_end_with_the_session(place: Path) -> None:
    sleeps = new_nap()

    async def work() -> None:
        async with server_session(place / "home/work", environ(place), hostile("one", "fork", sleeps)) as session:
            assert session.row("one").state is ServerState.READY

    run(work)
    until(lambda: not processes(sleeps), what="the end of the processes")


@pytest.mark.threat("T178")
def test_a_tool_that_is_not_approved_is_not_called(place: Path) -> None:
    from runner.mcp.servers import ApprovedOffer

    def only_echo(config: Any, offer: Any) -> ApprovedOffer:
        return ApprovedOffer(tuple(each for each in offer.tools if each.name == "echo"), (("read", "it is new"),))

    async def work() -> None:
        config = hostile("one", "plain")
        async with server_session(place / "home/work", environ(place), config, check=only_echo) as session:
            assert session.shelf.names["one"] == ["echo"]
            problem = (await session.call("one", "read", path="/etc/hostname")).problem
            assert problem is not None
            assert "it is new" in problem.why

    run(work)


def test_modes_and_rules_hold_for_the_start(place: Path) -> None:
    (place / "config").mkdir()
    (place / "config/config.toml").write_text('[[rule]]\nverdict = "deny"\ntool = ["mcp__bad__*"]\nwhy = "not here"\n')

    async def work() -> None:
        configs = (hostile("bad", "plain"), hostile("good", "plain"))
        async with server_session(place / "home/work", environ(place), *configs, mode=Mode.DEFAULT) as session:
            assert session.row("bad").state is ServerState.FAILED
            assert "not here" in session.row("bad").error
            assert session.row("good").state is ServerState.READY
        async with server_session(
            place / "home/work", environ(place), hostile("good", "plain"), mode=Mode.PLAN
        ) as plan:
            assert plan.row("good").state is ServerState.FAILED

    run(work)


def test_a_key_in_the_rights_or_the_words_of_a_server_is_refused(place: Path) -> None:
    async def work() -> None:
        configs = (
            hostile("keys", "plain", read=(str(place / "home/.ssh"),)),
            hostile("word", "plain", str(place / "home/.ssh/id_rsa")),
            hostile("part", "plain", write=(str(place / "home/work/docs"),)),
        )
        async with server_session(place / "home/work", environ(place), *configs) as session:
            assert session.row("keys").state is ServerState.FAILED
            assert session.row("part").state is ServerState.FAILED
            word = session.row("word")
            if word.state is ServerState.READY:  # the words of an unknown program give no right
                outcome = await session.call("word", "read", path=str(place / "home/.ssh/id_rsa"))
                assert "walnut" not in text_of(outcome)

    run(work)


def test_resources_prompts_progress_and_questions(place: Path) -> None:
    asked: list[tuple[str, ...]] = []
    answers = ["y", "red", "y"]

    async def elicit(lines: list[str], prompt: str) -> str | None:
        asked.append((*lines, prompt))
        return answers.pop(0)

    async def work() -> None:
        told: list[bytes] = []
        config = hostile("one", "plain")
        async with server_session(place / "home/work", environ(place), config, elicit=elicit) as session:
            note = await session.perform(ReadServerResource("one", "note://one"))
            assert note.data["content"][0]["resource"]["text"] == "a note"
            prompt = await session.servers.prompt("one", "greet", {"who": "Ann"})
            assert prompt.content[0]["text"] == "Greet Ann."
            await session.perform(
                CallServerTool("one", "slow", '{"seconds":0.5}'), lambda stream, chunk: told.append(chunk)
            )
            assert b"working" in b"".join(told)
            answer = text_of(await session.call("one", "ask", field="colour"))
            assert json.loads(answer)["content"] == {"colour": "red"}
            refused = text_of(await session.call("one", "ask", field="password"))
            assert json.loads(refused)["action"] == "decline"
            assert not answers
            assert asked[0][0] == "the tool server `one` asks:"
            assert any("the field" in notice or "asks for a secret" in notice for notice in session.notices)

            def emit(event: Event) -> None:  # a program in JSON mode
                assert isinstance(event, InputWanted)
                answer = AnswerLine(event.id, "yes", values={str(event.fields[0]["name"]): "blue"})
                asyncio.get_running_loop().call_soon(program.answer, answer)

            program = Questions(emit)
            session.ctx.approver.answer_server = program.answer_server  # type: ignore[attr-defined]  # as in JSON mode
            answer = text_of(await session.call("one", "ask", field="colour"))
            assert json.loads(answer)["content"] == {"colour": "blue"}
            records = [(each.kind, json.loads(each.body)) for each in session.ctx.audit.store.select(Wanted())]
            replies = [body for kind, body in records if kind == "replied"]
            assert [(each["verdict"], each["action"]["fields"]) for each in replies] == [("allow", ["colour"])] * 2
            assert replies[0]["action"]["server"] == "one"
            assert not any("red" in json.dumps(each["action"]) for each in replies), "no values are recorded"

    run(work)


def test_an_answer_that_cannot_be_recorded_is_not_sent(place: Path) -> None:
    answers = ["y", "red", "y"]
    full = (
        "CREATE TRIGGER full BEFORE INSERT ON records WHEN NEW.kind = 'replied' BEGIN SELECT RAISE(ABORT, 'full'); END"
    )

    async def elicit(lines: list[str], prompt: str) -> str | None:
        return answers.pop(0)

    async def work() -> None:
        config = hostile("one", "plain")
        async with server_session(place / "home/work", environ(place), config, elicit=elicit) as session:
            with contextlib.closing(sqlite3.connect(place / "state/audit.db")) as other:
                other.execute(full)
            answer = text_of(await session.call("one", "ask", field="colour"))
            assert json.loads(answer)["action"] == "decline"
            assert not answers
            assert any("got no answer" in each and "could not be recorded" in each for each in session.notices)

    run(work)


def test_every_start_is_recorded_with_its_rights(place: Path) -> None:
    async def work() -> None:
        config = hostile("one", "plain", hosts=("example.org",))
        async with server_session(place / "home/work", environ(place), config) as session:
            records = [(each.kind, json.loads(each.body)) for each in session.ctx.audit.store.select(Wanted())]
            (start,) = [body for _, body in records if body.get("tool") == "mcp__one__@start"]
            assert start["verdict"] == "allow"
            assert start["terms"]["hosts"] == ["example.org"]
            assert "--server one" in start["typed"]
            (began,) = [body for kind, body in records if kind == "started"]
            assert began["process"] == "mcp-one"

    run(work)


def test_the_instructions_of_a_server_are_given_once_and_marked(place: Path) -> None:
    async def work() -> None:
        config = hostile("one", "instructions")
        async with server_session(place / "home/work", environ(place), config) as session:
            text = await session.servers.introduction()
            assert '<server-instructions server="one"' in text
            assert "\u202e" not in text
            assert await session.servers.introduction() == ""

    run(work)


@pytest.mark.threat("T178")
def test_a_call_for_another_definition_of_a_tool_is_not_made(place: Path) -> None:
    from runner.mcp.pins import tool_digest

    async def work() -> None:
        async with server_session(place / "home/work", environ(place), hostile("one", "plain")) as session:
            offer = session.servers.offer("one")
            pins = {tool.name: tool_digest(tool) for tool in offer.tools}
            called = await session.perform(CallServerTool("one", "echo", '{"text":"x"}', pin=pins["echo"]))
            assert called.problem is None
            refused = await session.perform(CallServerTool("one", "echo", '{"text":"x"}', pin=pins["read"]))
            assert refused.problem is not None
            assert "another one by now" in refused.problem.why

    run(work)


@pytest.mark.threat("T178")
def test_a_stated_change_is_looked_at_and_a_new_tool_is_quarantined(place: Path) -> None:
    from runner.mcp.servers import ApprovedOffer

    def known_ones(config: Any, offer: Any) -> ApprovedOffer:
        held = [(each.name, "it is new") for each in offer.tools if each.name == "later"]
        return ApprovedOffer(tuple(each for each in offer.tools if each.name != "later"), tuple(held), "one is new")

    async def work() -> None:
        config = hostile("one", "live")
        async with server_session(place / "home/work", environ(place), config, check=known_ones) as session:
            await session.call("one", "echo", text="x")
            await until_async(lambda: session.row("one").held)
            assert session.row("one").held == (("later", "it is new"),)
            assert "later" not in session.shelf.names["one"]
            assert "one is new" in session.notices

    run(work)


def test_a_stopped_call_is_cancelled_at_the_server(place: Path) -> None:
    async def work() -> None:
        async with server_session(place / "home/work", environ(place), hostile("one", "cancel")) as session:
            begun = asyncio.Event()
            slow = CallServerTool("one", "slow", '{"seconds":60}')
            waiting = asyncio.create_task(session.perform(slow, lambda stream, chunk: begun.set()))
            await begun.wait()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert len(json.loads(text_of(await session.call("one", "echo", text="x")))) == 1

    run(work)
