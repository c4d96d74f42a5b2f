"""Language servers in their sandbox: two real ones, and a hostile one with each of its faults."""

import asyncio
import json
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from policy.model.frozen import replace
from policy.model.tier import Mode
from runner.audit.chain import Wanted
from runner.engine.tool_calls import ModelCall
from runner.loop import handle_call
from runner.lsp import client as lsp_client
from runner.lsp import framing, session_servers
from runner.lsp.session_servers import CodeServerState
from runner.messages import ToolCall, joined_text
from tests.support.language_session import HOSTILE, code_session, only
from tests.support.marked_processes import processes_about
from tests.support.waiting import until_async
from tools.registry import NarrowedTools, ToolSelection

PATIENCE = 90.0  # seconds, only to end a test that hangs

A = '"""Module."""\n\n\ndef parse(text: str) -> int:\n    """Return the number."""\n    return int(text)\n'
B = 'from a import parse\n\nprint(parse("3"))\n'


@pytest.fixture
def place() -> Iterator[Path]:
    """A home with a key, and a workspace with two modules below it."""
    base = Path(tempfile.mkdtemp(prefix="languages-", dir="/var/tmp")).resolve()
    work = base / "home/work"
    (work / ".git/hooks").mkdir(parents=True)
    (base / "home/.ssh").mkdir()
    (base / "home/.ssh/id_rsa").write_text("walnut")
    (work / ".env").write_text("WORD=walnut")
    (work / "a.py").write_text(A)
    (work / "b.py").write_text(B)
    yield base
    shutil.rmtree(base)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> str:
    """Wait for the diagnostics of an edit as long as it takes, and return the setting that this needs."""
    monkeypatch.setattr(session_servers, "_BASELINE", PATIENCE)
    return f'[code]\nwait = "{PATIENCE:.0f}s"\n'


def no_wait_for_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the waits for a process that does not end by itself, and does not answer to a request to end."""
    monkeypatch.setattr(session_servers, "_DYING", 0.1)
    monkeypatch.setattr(lsp_client, "_PARTING", 0.1)


def run(work: Any) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE):
            await work()

    asyncio.run(bounded())


def hostile(*words: str) -> str:
    """Return a configuration with the hostile server for files `*.x` alone."""
    hidden = [word.encode().hex() for word in words[1:]]
    args = json.dumps(["-I", "-u", str(HOSTILE), words[0], *hidden])
    read = json.dumps([str(HOSTILE.parent)])
    return f'[language.one]\ncommand = "{sys.executable}"\nargs = {args}\nfiles = ["*.x"]\nread = {read}\n' + only()


# ---- real servers


@pytest.mark.parametrize("name", ["ty", "pylsp"])
def test_a_real_server_answers_and_its_new_name_is_a_row_of_edits(place: Path, name: str) -> None:
    work = place / "home/work"

    async def use() -> None:
        async with code_session(place, only(name)) as session:
            assert "lsp" in session.ctx.tools.names
            definition = await session.lsp("definition", path="b.py", line=3, symbol="parse")
            assert definition.splitlines()[0].startswith(("a.py:4:5: def parse", "b.py:1:"))
            references = await session.lsp("references", path="a.py", symbol="parse")
            assert {line.split(":")[0] for line in references.splitlines()} == {"a.py", "b.py"}
            assert "parse(text: str) -> int" in await session.lsp("hover", path="a.py", line=4, symbol="parse")
            assert "4: function parse" in await session.lsp("symbols", path="a.py")
            text = await session.lsp("rename", path="a.py", line=4, symbol="parse", new_name="read_number")
            assert "a.py: changed" in text
            assert "b.py: changed" in text
            assert (work / "a.py").read_text() == A.replace("parse", "read_number")
            assert (work / "b.py").read_text() == B.replace("parse", "read_number")
            found = await session.lsp("references", path="a.py", line=4, symbol="read_number")
            assert "b.py:3:7" in found
            records = [(each.kind, json.loads(each.body)) for each in session.ctx.audit.store.select(Wanted())]
            kinds = [body["action"]["type"] for kind, body in records if kind == "decided"]
            assert "started" in {kind for kind, _ in records}
            assert kinds.count("StartLanguageServer") == 1
            assert kinds.count("EditFile") == 2
            assert session.row(name).state is CodeServerState.READY

    run(use)


def test_an_edit_reports_the_errors_that_it_adds_and_no_others(place: Path, patient: str) -> None:
    work = place / "home/work"
    (work / "b.py").write_text(f"{B}print(old_fault)\n")

    async def use() -> None:
        async with code_session(place, patient + only("ty")) as session:
            assert "old_fault" in await session.lsp("diagnostics", path="b.py")
            await session.text("read", path="b.py")
            text = await session.text("edit", path="b.py", old_string='print(parse("3"))', new_string="new_fault()")
            assert "new errors after this edit" in text
            assert "b.py:3:1: error" in text
            assert "old_fault" not in text.partition("[new errors")[2]
            text = await session.text("edit", path="b.py", old_string="new_fault()", new_string='parse("4")')
            assert "[new errors" not in text
            text = await session.text("write", path="c.py", content="import a\n\na.missing()\n")
            assert "c.py:3:1: error" in text
            text = await session.text("bash", command="printf 'def added():\\n    pass\\n' > d.py")
            found = await session.lsp("workspace_symbols", symbol="added")
            assert "d.py:1" in found, "a server learns of files that commands create"

    run(use)


def test_a_server_starts_in_the_background_of_the_first_edit(place: Path, patient: str) -> None:
    async def use() -> None:
        async with code_session(place, patient + only("ty")) as session:
            text = await session.text("write", path="e.py", content="missing()\n")
            assert "[new errors" not in text
            await until_async(lambda: session.row("ty").state is CodeServerState.READY)
            assert "missing" in await session.text("write", path="f.py", content="missing()\n")

    run(use)


def test_no_server_is_used_if_the_settings_say_so(place: Path) -> None:
    async def use() -> None:
        async with code_session(place, "[code]\nservers = false\n") as session:
            assert session.code is None
            assert "lsp" not in session.ctx.tools.names
        async with code_session(place, "[code]\ndiagnostics = false\n" + only("ty")) as session:
            await session.text("write", path="e.py", content="missing()\n")
            assert session.row("ty").state is CodeServerState.WAITING

    run(use)


def test_a_server_without_use_is_ended_and_starts_again(place: Path) -> None:
    async def use() -> None:
        async with code_session(place, '[code]\nidle = "1s"\n' + only("ty")) as session:
            assert "parse" in await session.lsp("symbols", path="a.py")
            await until_async(lambda: not session.ctx.processes.alive)
            assert session.row("ty").state is CodeServerState.WAITING
            assert "parse" in await session.lsp("symbols", path="a.py")

    run(use)


# ---- the start


@pytest.mark.threat("T258")
def test_a_program_of_the_workspace_needs_a_mode_that_runs_code(place: Path) -> None:
    program = place / "home/work/server"
    program.write_text(f"#!{sys.executable} -Iu\n" + HOSTILE.read_text())
    program.chmod(0o755)
    (place / "home/work/one.x").write_text("one two\n")
    config = '[language.one]\ncommand = "./server"\nargs = ["plain"]\nfiles = ["*.x"]\n' + only()

    async def use() -> None:
        async with code_session(place, config, mode=Mode.DEFAULT) as session:
            text = await session.lsp("definition", path="one.x", line=1, symbol="one")
            assert "was not started" in text or "does not run" in text
            assert not session.ctx.processes.alive
        async with code_session(place, config, mode=Mode.TRUST_PROJECT) as session:
            assert "one.x:1:1: one two" in await session.lsp("definition", path="one.x", line=1, symbol="one")

    run(use)


@pytest.mark.threat("T258")
def test_a_rule_of_the_user_allows_a_program_of_the_workspace(place: Path) -> None:
    program = place / "home/work/server"
    program.write_text(f"#!{sys.executable} -Iu\n" + HOSTILE.read_text())
    program.chmod(0o755)
    (place / "home/bin").mkdir()
    (place / "home/bin/linked").symlink_to(program)
    (place / "home/work/one.x").write_text("one two\n")
    config = f'[language.one]\ncommand = "{place}/home/bin/linked"\nargs = ["plain"]\nfiles = ["*.x"]\n' + only()
    rule = '[[rule]]\nverdict = "allow"\ntool = ["lsp@one"]\n'

    async def use() -> None:
        async with code_session(place, config, mode=Mode.DEFAULT) as session:
            assert "error" in await session.lsp("definition", path="one.x", line=1, symbol="one")
        async with code_session(place, config + rule, mode=Mode.DEFAULT) as session:
            assert "one.x:1:1: one two" in await session.lsp("definition", path="one.x", line=1, symbol="one")
            text = await session.lsp("rename", path="one.x", line=1, symbol="one", new_name="two")
            assert "one.x: not changed" in text, "an edit is a question in this mode, and nobody answers"

    run(use)


@pytest.mark.threat("T258")
def test_a_repository_names_no_server(place: Path) -> None:
    folder = place / "home/work/.ringfence"
    folder.mkdir()
    (folder / "config.toml").write_text('[language.mine]\ncommand = "/bin/sh"\nfiles = ["*.x"]\n')
    (place / "home/work/one.x").write_text("one\n")

    async def use() -> None:
        async with code_session(place, only("ty")) as session:
            assert [row.name for row in session.code.rows()] == ["ty"]
            assert "no language server" in await session.lsp("symbols", path="one.x")

    run(use)


# ---- confinement

ATTEMPTS = [
    (["read", "home/.ssh/id_rsa"], "refused", "a key of the home"),
    (["read", "home/work/.env"], "refused", "a secret of the workspace"),
    (["read", "state/ringfence"], "refused", "the state of this program"),
    (["write", "home/work/a.py"], "refused", "a file of the workspace"),
    (["write", "home/work/new.py"], "refused", "a new file of the workspace"),
    (["write", "home/work/.git/hooks/pre-commit"], "refused", "a hook of Git"),
    (["read", "home/work/a.py"], "Module", "a file of the workspace is readable"),
]


@pytest.mark.threat("T259")
@pytest.mark.parametrize(("words", "said", "why"), ATTEMPTS, ids=[row[-1] for row in ATTEMPTS])
def test_a_server_only_reads_the_workspace(place: Path, words: list[str], said: str, why: str) -> None:
    (place / "home/work/one.x").write_text("one\n")

    async def use() -> None:
        config = hostile("plain", words[0], str(place / words[1]))
        async with code_session(place, config) as session:
            text = await session.lsp("hover", path="one.x", line=1, symbol="one")
            assert said in text, why
            assert "walnut" not in text
        assert (place / "home/work/a.py").read_text() == A
        assert not (place / "home/work/new.py").exists()

    run(use)


@pytest.mark.threat("T259")
def test_a_server_has_no_network_and_no_variable_of_the_user(place: Path) -> None:
    (place / "home/work/one.x").write_text("one\n")
    listener = socket.create_server(("127.0.0.1", 0))

    async def use() -> None:
        async with code_session(place, hostile("plain", "connect", str(listener.getsockname()[1]))) as session:
            assert "refused" in await session.lsp("hover", path="one.x", line=1, symbol="one")
        async with code_session(place, hostile("plain", "variables")) as session:
            text = await session.lsp("hover", path="one.x", line=1, symbol="one")
            assert "PATH" in text
            assert "walnut" not in text

    run(use)
    listener.settimeout(0)
    with pytest.raises(BlockingIOError):
        listener.accept()


@pytest.mark.threat("T259")
def test_processes_that_a_server_leaves_end_with_it(place: Path) -> None:
    (place / "home/work/one.x").write_text("one\n")
    mark = f"left-by-{os.getpid()}-{place.name}"

    def alive() -> bool:
        return bool({*processes_about(mark)} & {*processes_about("time.sleep(600)")})

    async def use() -> None:
        async with code_session(place, hostile("forks", mark)) as session:
            assert "one.x" in await session.lsp("definition", path="one.x", line=1, symbol="one")
            await until_async(alive)
            await session.code.restart("one")
            await until_async(lambda: not alive())

    run(use)


# ---- what a server sends

FAULTS = [
    ("flood", "more than", "messages without an end"),
    ("asking", "does not", "requests without an end"),
    ("header", "header", "a header without an end"),
    ("huge", "more than 8 MiB", "a length of a gigabyte"),
    ("wrong", "it ", "a length that is too small"),
    ("two", "exactly one length", "two lengths"),
    ("text", "no message", "a greeting"),
    ("ends", "ended with status 3", "the end of the program"),
    ("deep", "no answer", "JSON that is too deep"),
    ("mute", "no answer", "no answer"),
    ("shape", "not what the protocol allows", "an answer of the wrong shape"),
]


@pytest.mark.threat("T260")
@pytest.mark.parametrize(("kind", "said", "why"), FAULTS, ids=[row[-1] for row in FAULTS])
def test_a_fault_of_a_server_is_a_plain_message(
    place: Path, kind: str, said: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_servers, "_ANSWER", 3.0 if said == "no answer" else 60.0)
    # The limits are for a window of some seconds, in which a busy machine reads only a part of a flood.
    monkeypatch.setattr(framing, "_WINDOW", 600.0)
    monkeypatch.setattr(framing, "_MOST_MESSAGES", 2_000)
    if kind != "ends":
        no_wait_for_its_end(monkeypatch)
    (place / "home/work/one.x").write_text("one\n")

    async def use() -> None:
        async with code_session(place, hostile(kind)) as session:
            text = await session.lsp("definition", path="one.x", line=1, symbol="one")
            assert text.startswith("error"), why
            if kind == "asking":
                assert "more than" in text or said in text
            else:
                assert said in text, why
            assert "print(" in await session.text("read", path="b.py"), "the session goes on"

    run(use)


@pytest.mark.threat("T260")
def test_a_server_that_ends_again_and_again_is_not_started_any_more(place: Path) -> None:
    (place / "home/work/one.x").write_text("one\n")

    async def use() -> None:
        async with code_session(place, hostile("ends")) as session:
            for _ in range(5):
                await session.lsp("definition", path="one.x", line=1, symbol="one")
                await asyncio.sleep(0.1)
            assert session.row("one").state is CodeServerState.FAILED
            assert session.code.count == 3
            assert any("language server `one`" in notice for notice in session.notices)

    run(use)


def test_the_next_server_is_used_if_the_first_one_cannot_start(place: Path) -> None:
    (place / "home/work/one.x").write_text("one\n")
    config = '[language.bad]\ncommand = "/bin/false"\nfiles = ["*.x"]\n' + hostile("plain")

    async def use() -> None:
        async with code_session(place, config) as session:
            assert "ended with status 1" in await session.lsp("symbols", path="one.x")
            assert "one.x:1:1: one" in await session.lsp("definition", path="one.x", line=1, symbol="one")

    run(use)


@pytest.mark.threat("T260")
def test_a_server_that_never_answers_is_ended(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_servers, "_START", 2.0)
    no_wait_for_its_end(monkeypatch)
    (place / "home/work/one.x").write_text("one\n")

    async def use() -> None:
        async with code_session(place, hostile("silent")) as session:
            assert "no answer in 2 s" in await session.lsp("symbols", path="one.x")
            assert not session.ctx.processes.alive

    run(use)


# ---- what a server names


@pytest.mark.threat("T261")
def test_no_file_outside_of_the_workspace_is_read_for_a_server(place: Path) -> None:
    work = place / "home/work"
    (work / "one.x").write_text("one\n")
    (work / "link").symlink_to(place / "home/.ssh/id_rsa")
    (work / "folder").symlink_to(place / "home/.ssh")
    uris = [
        "file:///etc/passwd",
        f"file://{place}/home/.ssh/id_rsa",
        f"file://{work}/link",
        f"file://{work}/folder/id_rsa",
        f"file://{work}/.env",
        f"file://{work}/../.ssh/id_rsa",
        f"file://{work}/%2e%2e/.ssh/id_rsa",
        f"file://elsewhere{work}/one.x",
        "http://127.0.0.1/a",
        "file:///proc/self/environ",
        f"file://{work}/gone.x",
        f"file://{work}/a.py",
    ]

    async def use() -> None:
        async with code_session(place, hostile("places", *uris)) as session:
            for operation, more in (("references", {"line": 1, "symbol": "one"}), ("workspace_symbols", {})):
                arguments = {"path": "one.x", **(more or {"symbol": "s"})}
                text = await session.lsp(operation, **arguments)
                assert "walnut" not in text
                assert "root:" not in text
                assert "a.py:1:1" in text
                assert '"""Module."""' in text
                assert "outside of what this session may read" in text
                assert ".ssh" not in text

    run(use)


REFUSED_EDITS = [
    (["edits", "file:///etc/passwd"], "no file of the workspace"),
    (["edits", "file://{work}/../.ssh/id_rsa"], "no file"),
    (["edits", "file://{work}/link"], "no file of the workspace"),
    (["edits", "file://{work}/a.py", "file://{work}/link"], "nothing was changed"),
    (["edits", "file://{work}/.env"], "no file of the workspace"),
    (["creates", "file://{work}/new.py"], "creates, renames or deletes"),
    (["deletes", "file://{work}/a.py"], "creates, renames or deletes"),
    (["overlaps"], "do not fit"),
    (["far"], "do not fit"),
]


@pytest.mark.threat("T262")
@pytest.mark.parametrize(("words", "said"), REFUSED_EDITS, ids=[" ".join(row[0]) for row in REFUSED_EDITS])
def test_edits_that_no_name_explains_are_refused_as_a_whole(place: Path, words: list[str], said: str) -> None:
    work = place / "home/work"
    (work / "one.x").write_text("one\n")
    (work / "link").symlink_to(place / "home/.ssh/id_rsa")

    async def use() -> None:
        config = hostile(*(word.format(work=work) for word in words))
        async with code_session(place, config) as session:
            text = await session.lsp("rename", path="one.x", line=1, symbol="one", new_name="two")
            assert said in text
        assert (work / "a.py").read_text() == A
        assert (work / "one.x").read_text() == "one\n"
        assert (place / "home/.ssh/id_rsa").read_text() == "walnut"
        assert not (work / "new.py").exists()

    run(use)


@pytest.mark.threat("T262")
def test_each_edit_of_a_server_passes_the_gate(place: Path) -> None:
    work = place / "home/work"
    (work / "one.x").write_text("one\n")
    (work / ".git/hooks/pre-commit").write_text("#!/bin/sh\n")
    hook = f"file://{work}/.git/hooks/pre-commit"

    async def use() -> None:
        async with code_session(place, hostile("edits", hook, f"file://{work}/a.py")) as session:
            text = await session.lsp("rename", path="one.x", line=1, symbol="one", new_name="two")
            assert "pre-commit: not changed" in text
            assert "a.py: not changed" in text
        async with code_session(place, hostile("edits", f"file://{work}/a.py"), mode=Mode.PLAN) as session:
            assert "a.py: not changed" in await session.lsp(
                "rename", path="one.x", line=1, symbol="one", new_name="two"
            )
        assert (work / ".git/hooks/pre-commit").read_text() == "#!/bin/sh\n"
        assert (work / "a.py").read_text() == A

    run(use)


@pytest.mark.threat("T262")
def test_edits_after_untrusted_text_meet_the_rules_about_trusted_files(place: Path) -> None:
    work = place / "home/work"
    (work / "one.x").write_text("one\n")
    (work / "AGENTS.md").write_text("Use tabs.\n")

    async def use() -> None:
        async with code_session(place, hostile("edits", f"file://{work}/AGENTS.md")) as session:
            session.ctx.flow.note_untrusted("the page x", "text")
            text = await session.lsp("rename", path="one.x", line=1, symbol="one", new_name="two")
            assert "AGENTS.md: not changed" in text
        assert (work / "AGENTS.md").read_text() == "Use tabs.\n"

    run(use)


def test_agents_share_the_servers_of_their_workspace(place: Path) -> None:
    work = place / "home/work"
    (work / "one.x").write_text("one\n")

    async def use() -> None:
        async with code_session(place, hostile("plain")) as session:
            narrow = NarrowedTools(session.ctx.tools, ToolSelection(("read", "lsp")))
            child = replace(session.ctx, agent="explore-1", parent="main", tools=narrow)
            call = ToolCall("c1", "lsp", {"operation": "rename", "path": "one.x", "symbol": "one", "new_name": "two"})
            report = await handle_call(ModelCall("k1", call), child)
            assert "one.x: not changed" in joined_text(report.result.content), "the agent has no tool `edit`"
            assert (work / "one.x").read_text() == "one\n"
            (process,) = session.ctx.processes.alive
            assert process.agent == "main", "it goes on after the end of the sub-agent"
            assert "one.x:1:1: one" in await session.lsp("definition", path="one.x", line=1, symbol="one")
            assert session.code.count == 1

    run(use)


@pytest.mark.threat("T263")
def test_requests_of_a_server_are_refused_and_counted(place: Path) -> None:
    work = place / "home/work"
    (work / "one.x").write_text("one\n")

    async def use() -> None:
        async with code_session(place, hostile("asks", f"file://{work}/a.py")) as session:
            assert "one.x:1:1: one" in await session.lsp("definition", path="one.x", line=1, symbol="one")
            assert "one.x:1:1: one" in await session.lsp("definition", path="one.x", line=1, symbol="one")
            refused = session.row("one").refused
            assert "workspace/applyEdit (2)" in refused
            assert "window/showDocument (2)" in refused
            assert "client/registerCapability (2)" in refused
        assert (work / "a.py").read_text() == A

    run(use)


@pytest.mark.threat("T264")
@pytest.mark.parametrize("operation", ["definition", "hover", "diagnostics"])
def test_an_answer_about_untrusted_text_is_untrusted(place: Path, operation: str) -> None:
    (place / "home/work/one.x").write_text("one\n")

    async def use() -> None:
        async with code_session(place, hostile("plain")) as session:
            await session.lsp(operation, path="one.x", line=1, symbol="one")
            assert not session.ctx.flow.untrusted
            session.ctx.flow.note_untrusted("the page x", "text")
            await session.text("write", path="two.x", content="one\n")
        async with code_session(place, hostile("plain")) as session:
            assert not session.ctx.flow.untrusted
            path = "two.x" if operation == "definition" else "one.x"
            await session.lsp(operation, path=path, line=1, symbol="one")
            assert session.ctx.flow.untrusted

    run(use)


@pytest.mark.threat("T264")
def test_text_of_a_server_is_marked_bounded_and_on_one_line(place: Path) -> None:
    (place / "home/work/one.x").write_text("one\n")

    async def use() -> None:
        async with code_session(place, hostile("codes")) as session:
            text = await session.lsp("hover", path="one.x", line=1, symbol="one")
            assert text.startswith('<language-server server="one"')
            assert "\x1b" not in text
            assert "\u200b" not in text
            assert not text.endswith("</language-server>")
            assert "a␊b" in await session.lsp("symbols", path="one.x")
        async with code_session(place, hostile("diagnoses")) as session:
            text = await session.lsp("diagnostics", path="one.x")
            assert len(text.splitlines()) == 1
            assert "\x1b" not in text
            assert "\u202e" not in text
        async with code_session(place, hostile("many")) as session:
            text = await session.lsp("diagnostics", path="one.x")
            assert len(text.splitlines()) == 101

    run(use)
