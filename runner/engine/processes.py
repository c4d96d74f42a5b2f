"""The processes of one session that stay beside later commands.

The sandbox ends every process with its backend, and the kernel does so if the runner is killed. The pool adds what the
session needs: a name for each process, its output, the record of its start and its end, and a limit on their number.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from policy.model.profile import MAIN
from policy.model.verdict import Permit, Problem, ProblemError, Rights
from runner.audit.records import Ran
from runner.engine.output_log import OutputLog
from runner.events import Emit, Notice, ProcessEnded, ProcessStarted
from sandbox.backend import Outcome

if TYPE_CHECKING:
    from runner.audit.log import AuditLog
    from runner.engine.terminal_screen import SequenceFilter, TerminalScreen
    from runner.secrets.redactor import Redactor
    from runner.state.output_store import OutputFile, OutputStore
    from sandbox.backend import Backend, Process, TerminalSize

MOST = 16  # processes of one session that are alive at the same time
_MOST_ENDED = 100  # processes that have ended and whose output can still be read


class TooManyProcesses(ProblemError):
    """The error for a process beyond the limit. Nothing was started."""


class SessionProcess:
    """One process of the session, alive or ended.

    Attributes:
        id: The name of the process: `p1`, `p2` and so on in the order of their starts, unless its start named it.
        words: The command as the user would type it, with secrets masked.
        permit: The permit that the process executes.
        process: The process in the sandbox.
        log: The output so far. For a terminal: its text without control sequences.
        screen: The screen of its terminal, or None without a terminal.
        command: The script of the process, with secrets masked.
        tiers: The labels of the tiers of the decision. Input for the process has at least these tiers.
        began: The start, in seconds since 1970.
        record: The number of the decision in the audit log.
        agent: The name of the agent that started it.
        by_user: True if the user started it with a command of their own.
        outcome: None while the process runs, then its outcome.
        end_known: The agents that know of its end.
        settled: True if it has ended and what it changed can be undone.
        server: The name of the tool server that the process is; empty for a command. A model neither reads it nor
            writes to it nor ends it.
        messages: A function that takes the standard output of a server, which is not in the log; None for a command.
    """

    def __init__(
        self,
        id: str,
        words: str,
        permit: Permit,
        log: OutputLog,
        screen: "TerminalScreen | None",
        record: int,
        agent: str,
        command: str,
        tiers: tuple[str, ...],
        *,
        by_user: bool = False,
    ) -> None:
        self.by_user = by_user
        self.id, self.words, self.permit = id, words, permit
        self.command, self.tiers = command, tiers
        self.log, self.screen = log, screen
        self.began, self.record, self.agent = time.time(), record, agent
        self.outcome: Outcome | None = None
        self.process: Process  # set by `SessionProcesses.start` before anyone else sees this object
        self.read: dict[str, int] = {}  # by reader: the position in the log up to which it has read
        self.given = 0  # bytes that were written to it
        self.end_known: set[str] = set()
        self.settled = False
        self.server = ""
        self.messages: Callable[[bytes], None] | None = None
        self.told = 0  # violations that were told to a reader
        self._plain = _plain_filter() if screen is not None else None
        self._monotonic = time.monotonic()
        self._listeners: list[Callable[[str], None]] = []

    @property
    def alive(self) -> bool:
        """Return True while the process runs."""
        return self.outcome is None

    @property
    def seconds(self) -> float:
        """Return the time since the start, or the time that the process ran."""
        return self.outcome.seconds if self.outcome is not None else time.monotonic() - self._monotonic

    def listen(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Call `listener` with all further output as masked text. Return the function that ends this."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def take(self, stream: int, chunk: bytes) -> None:
        """Take output of the process."""
        if self.messages is not None and stream == 1:
            self.messages(chunk)
        elif self.screen is None or self._plain is None:
            self._tell(self.log.take(stream, chunk))
        else:
            self.screen.feed(chunk)
            self._tell(self.log.take(stream, chunk, self._plain.plain))

    def end_output(self) -> None:
        """End the log after the end of the process."""
        self._tell(self.log.close())

    def _tell(self, text: str) -> None:
        if text:
            for listener in tuple(self._listeners):
                listener(text)


class SessionProcesses:
    """The processes of one session. All methods are called in the thread of the event loop.

    Attributes:
        most: The number of processes that may be alive at the same time.
    """

    def __init__(
        self,
        sandbox: "Backend",
        audit: "AuditLog",
        redactor: "Redactor",
        outputs: "OutputStore",
        emit: Emit,
        earlier: Sequence[tuple[str, str]] = (),
    ) -> None:
        """`earlier` are the names and commands of the processes of the runs that the session continues."""
        self.most = MOST
        self._sandbox, self._audit, self._redactor, self._outputs, self._emit = sandbox, audit, redactor, outputs, emit
        self._all: dict[str, SessionProcess] = {}
        self._earlier = tuple(earlier)
        self._count = max((int(id[1:]) for id, _ in earlier if id[1:].isdecimal()), default=0)
        self._starting = 0
        self._watchers: dict[str, asyncio.Task[None]] = {}
        self._changes: Callable[[SessionProcess], tuple[tuple[str, str], ...] | None] = lambda process: None
        self._closed = False

    @property
    def all(self) -> tuple[SessionProcess, ...]:
        """Return the processes in the order of their starts, the newest 100 of those that have ended."""
        return tuple(self._all.values())

    @property
    def alive(self) -> tuple[SessionProcess, ...]:
        """Return the processes that run."""
        return tuple(each for each in self._all.values() if each.alive)

    @property
    def commands(self) -> tuple[SessionProcess, ...]:
        """Return the processes that are commands, and no tool servers, as `all` does."""
        return tuple(each for each in self._all.values() if not each.server)

    @property
    def known(self) -> bool:
        """Return True if the session has started a command that stays, or continues a session that has."""
        return bool(self._earlier) or any(not each.server for each in self._all.values())

    def take_earlier(self) -> tuple[tuple[str, str], ...]:
        """Return, once, the names and commands of the processes of the runs that the session continues."""
        earlier, self._earlier = self._earlier, ()
        return earlier

    def writers(self) -> tuple[tuple[str, Permit], ...]:
        """Return the names and permits of the processes that may write, or may have written before they ended, since
        `settle` was called the last time.
        """
        found = (each for each in self._all.values() if each.alive or not each.settled)
        return tuple(
            (each.id, each.permit)
            for each in found
            if each.permit.terms.rights is Rights.WORKSPACE_WRITE or each.permit.terms.writable
        )

    def settle(self) -> None:
        """Note that the changes of the processes that have ended are stored."""
        for each in self._all.values():
            each.settled = each.settled or not each.alive

    def get(self, id: str) -> SessionProcess | None:
        """Return the process with this name, or None."""
        return self._all.get(id)

    def on_end(self, changes: Callable[[SessionProcess], tuple[tuple[str, str], ...] | None]) -> None:
        """Call `changes` when a process has ended. It returns the changed files for the record, or None."""
        self._changes = changes

    async def start(
        self,
        permit: Permit,
        words: str,
        record: int,
        terminal: "TerminalSize | None" = None,
        agent: str = MAIN,
        *,
        command: str = "",
        tiers: tuple[str, ...] = ("unknown",),
        by_user: bool = False,
        name: str | None = None,
        server: str = "",
        messages: Callable[[bytes], None] | None = None,
    ) -> SessionProcess:
        """Start the command of `permit` and record the start.

        `words` is the command as the user would type it, `command` its script (`words` if empty), and `tiers` are the
        labels of the tiers of the decision. `by_user` is True for a command of the user. `name` is the name of the
        process, or None for the next number. `server` and `messages` are those of `SessionProcess`; servers do not
        count for the limit.

        Raise TooManyProcesses, or SandboxUnavailable if the sandbox cannot be built; then nothing runs. If the start
        cannot be recorded, the process is ended and AuditError is raised.
        """
        if self._closed:
            why, fix = "the session is being closed", "start it in the next session"
            raise TooManyProcesses(Problem("the process was not started", why, fix))
        commands = sum(not each.server for each in self.alive)
        if not server and commands + self._starting >= self.most:
            why = f"{self.most} processes run already, the most of a session"
            raise TooManyProcesses(Problem("the process was not started", why, "end one of them with `bash_kill`"))
        if not name:
            self._count += 1
        id = name or f"p{self._count}"
        log = OutputLog(self._redactor, self._file(id))
        screen = _screen(terminal) if terminal is not None else None
        words = self._redactor.text(words)
        command = self._redactor.text(command) or words
        started = SessionProcess(id, words, permit, log, screen, record, agent, command, tiers, by_user=by_user)
        started.server, started.messages = server, messages
        self._starting += not server
        try:
            started.process = await self._sandbox.start(permit, listen=started.take, terminal=terminal)
        except BaseException:
            log.close()
            raise
        finally:
            self._starting -= not server
        try:
            self._audit.started(record, id, agent=agent, terminal=screen is not None)
        except BaseException:
            await started.process.end("failure")
            log.close()
            raise
        self._all[id] = started
        if not server:  # a server tells its state itself
            self._emit(ProcessStarted(id, started.words, record, screen is not None, permit.terms.rights, agent=agent))
        self._watchers[id] = asyncio.create_task(self._watch(started))
        if self._closed:  # closed while the process was being started
            await self.end(id)
        return started

    async def signal(self, id: str, number: int) -> bool:
        """Send a signal to the process with this name. Return False if there is none, or it has ended."""
        found = self._all.get(id)
        if found is None or not found.alive:
            return False
        await found.process.signal(number)
        return True

    async def end(self, id: str, why: str = "cancelled") -> Outcome | None:
        """End the process with this name, and return its outcome, or None if there is no such process.

        The outcome of a process that has ended already is that of its end.
        """
        found = self._all.get(id)
        if found is None:
            return None
        if found.alive:
            await found.process.end(why)
        await asyncio.shield(self._watchers[id])
        return found.outcome

    async def ended(self, id: str, seconds: float) -> bool:
        """Wait until the process has ended, at most `seconds`. Return False if it still runs."""
        if (watcher := self._watchers.get(id)) is not None:
            await asyncio.wait((watcher,), timeout=seconds)
        return (found := self._all.get(id)) is None or not found.alive

    async def close(self) -> None:
        """End all processes and record their ends. Call this before the sandbox is closed."""
        self._closed = True
        await asyncio.gather(*(self.end(each.id, "session") for each in self.alive), return_exceptions=True)
        await asyncio.gather(*self._watchers.values(), return_exceptions=True)

    async def _watch(self, started: SessionProcess) -> None:
        """Wait for the end of a process, then record and report it."""
        outcome = await started.process.wait()
        started.end_output()
        started.outcome = self._redactor.mask(outcome)
        ran = Ran(started.began, given=started.given, changed=self._changes(started), printed=started.log.printed)
        try:
            self._audit.finished(started.record, outcome, ran, agent=started.agent)
        except ProblemError as error:  # the next action fails for the same reason, with its own message
            self._emit(Notice(f"{error.problem.what}: {error.problem.why}"))
        end = started.outcome
        if started.server:
            self._forget_oldest()
            return
        self._emit(
            ProcessEnded(
                started.id, end.status, end.seconds, end.ended_by, end.violations, started.record, agent=started.agent
            )
        )
        self._forget_oldest()

    def _forget_oldest(self) -> None:
        ended = [each.id for each in self._all.values() if not each.alive]
        for id in ended[:-_MOST_ENDED]:
            del self._all[id]
            self._watchers.pop(id, None)

    def _file(self, id: str) -> "OutputFile | None":
        try:
            return self._outputs.open(id)
        except OSError as error:
            self._emit(Notice(f"the output of {id} is not stored: {(error.strerror or 'disk error').lower()}"))
            return None


def _plain_filter() -> "SequenceFilter":
    from runner.engine.terminal_screen import SequenceFilter

    return SequenceFilter()


def _screen(size: "TerminalSize") -> "TerminalScreen":
    from runner.engine.terminal_screen import TerminalScreen  # few processes have a terminal

    return TerminalScreen(size)
