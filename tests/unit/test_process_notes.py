"""The notes for the model about processes that stay, with processes that only exist in memory."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from policy.model.action import RunScript
from policy.model.verdict import _MINT, Limits, Permit, Rights, Terms
from runner.audit.log import AuditLog
from runner.audit.records import SessionInfo
from runner.engine.process_notes import end_note, prompt_note
from runner.engine.processes import SessionProcesses
from runner.secrets.redactor import Redactor
from runner.state.output_store import OutputStore
from sandbox.backend import Connection, Enforcement, Level, Listener, Outcome, TerminalSize, Violation


class _Still:
    """A process that listens on port 3000 until it is ended."""

    violations: tuple[Violation, ...] = ()
    connections: tuple[Connection, ...] = ()

    def __init__(self, permit: Permit) -> None:
        self.permit, self.enforcement = permit, Enforcement(Level.FULL, "fake", ())
        self.outcome: Outcome | None = None
        self._over = asyncio.Event()

    async def wait(self) -> Outcome:
        await self._over.wait()
        assert self.outcome is not None
        return self.outcome

    async def end(self, why: str = "cancelled") -> Outcome:
        self.outcome = Outcome(3, seconds=1.0)
        self._over.set()
        return self.outcome

    def ports(self) -> tuple[int, ...]:
        return (3000,)


class _StillSandbox:
    async def start(self, permit: Permit, *, listen: Listener, terminal: TerminalSize | None = None) -> _Still:
        listen(1, b"ready\n")
        return _Still(permit)


FRAME = ("[note of the program] ", " [end of the note]")


async def _ended_once(processes: SessionProcesses) -> str:
    await processes.end("p4")
    return end_note(processes, "main") + "|" + end_note(processes, "main") + "|" + end_note(processes, "other")


async def _many(processes: SessionProcesses) -> str:
    terms = Terms(Rights.READ_ONLY, "/w", "/home", (), (), (), limits=Limits())
    processes.most = 30
    for _ in range(24):
        await processes.start(Permit(RunScript("x", "/w"), terms, _MINT), "x", 1)
    return prompt_note(processes, "main").splitlines()[-3]


async def _with_user(processes: SessionProcesses) -> str:
    terms = Terms(Rights.READ_ONLY, "/w", "/home", (), (), (), limits=Limits())
    await processes.start(Permit(RunScript("y", "/w"), terms, _MINT), "y\nz", 1, by_user=True)
    found = processes.get("p4")
    assert found is not None
    found.read["main"] = found.log.end
    prompt_note(processes, "main")
    return prompt_note(processes, "main")


async def _first(processes: SessionProcesses) -> str:
    return prompt_note(processes, "main")


GONE = "These processes of the earlier session ended with it, and their ids are not used again:\np3: vite"
# fmt: off
ROWS = [
    (_first,      f"Processes of this session, as of now:\np4 is running, since T (listens on 3000; 6 characters of output not read): npm run dev\n{GONE}", "what runs, and once what is gone"),
    (_with_user,  "Processes of this session, as of now:\np4 is running, since T (listens on 3000): npm run dev\np5 is running, since T (started by the user; listens on 3000; 6 characters of output not read): y␊z", "later only what runs, one line each"),
    (_ended_once, "p4 has ended with exit status 3, after T (6 characters of output not read): npm run dev [end of the note]||[note of the program] p4 has ended with exit status 3, after T (6 characters of output not read): npm run dev", "an end is told once to each agent"),
    (_many,       "and 5 more", "a list is bounded"),
]
# fmt: on


@pytest.mark.parametrize(("steps", "wanted", "why"), ROWS, ids=[row[2] for row in ROWS])
def test_the_model_is_told_which_processes_run(
    steps: Callable[..., object], wanted: str, why: str, tmp_path: Path
) -> None:
    async def play() -> str:
        audit = AuditLog.open(tmp_path / "audit.db")
        audit.session(SessionInfo("default", "/w", False, None))
        earlier = (("p3", "vite"),)
        outputs = OutputStore(tmp_path / "kept")
        processes = SessionProcesses(_StillSandbox(), audit, Redactor(), outputs, lambda event: None, earlier)  # type: ignore[arg-type]  # a fake
        terms = Terms(Rights.READ_ONLY, "/w", "/home", (), (), (), limits=Limits())
        await processes.start(Permit(RunScript("npm run dev", "/w"), terms, _MINT), "npm run dev", 1)
        text = await steps(processes)  # type: ignore[misc]  # each of the rows is a coroutine function
        await processes.close()
        audit.close()
        return str(text)

    told = re.sub(r"(since|after) [\d.]+ m?s", r"\1 T", asyncio.run(play()))
    assert told.removeprefix(FRAME[0]).removesuffix(FRAME[1]) == wanted.removesuffix(FRAME[1]), why


def test_nothing_is_told_without_processes(tmp_path: Path) -> None:
    processes = SessionProcesses(None, None, Redactor(), OutputStore(tmp_path), lambda event: None)  # type: ignore[arg-type]  # unused
    assert not processes.known
    assert prompt_note(processes, "main") == end_note(processes, "main") == ""
