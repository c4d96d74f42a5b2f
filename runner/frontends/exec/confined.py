"""The second half of `agent exec`: an allowed action is run in the sandbox, and its outcome is recorded.

Commands that only read, the most frequent ones, run without an event loop, because the import of `asyncio` would take a
sixth of their time. The same coroutines run as in an event loop (`in_loop.py`), and none of them is ever suspended:
what they wait for is awaited by poll(2).
"""

import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Protocol, TypeVar

from policy.model.frozen import dataclass, replace
from policy.model.verdict import Allow, Permit, Problem, Rights, Terms
from runner.audit.records import Ran
from runner.frontends.exec.report import ExecCase, Report
from runner.problems import Exit, Stopped, ending_signals
from runner.state.paths import cache_dir, state_dir
from runner.stderr import print_problem
from sandbox.backend import Backend, Enforcement, Level, Outcome
from sandbox.linux.helper_request import Interrupted, PollWait
from sandbox.linux.launch import PrelaunchedHelper

if TYPE_CHECKING:
    from runner.changes.transaction.place import MadeAhead
    from runner.config.settings import Settings
    from sandbox.egress.credential_injection import InjectorFactory
    from sandbox.workspace.layer import ChangeLayer


@dataclass(frozen=True, slots=True)
class ExecResult:
    """The end of one run: the exit code of `agent exec`, the outcome, and the session of the record."""

    code: int
    outcome: Outcome
    session: str


WantedSandbox = tuple[str | None, Level]  # the name of the backend, or None, and the least enforcement
OpenedSandbox = tuple[Backend, Enforcement]
_Result = TypeVar("_Result")


class Driver(Protocol):
    """The way in which a run waits: in an event loop, or without one."""

    def boundary(
        self,
        wanted: WantedSandbox,
        terms: Terms,
        ahead: PrelaunchedHelper | None,
        settings: "Settings",
        lend: "InjectorFactory | None" = None,
    ) -> contextlib.AbstractAsyncContextManager[Awaitable[OpenedSandbox]]:
        """Start a sandbox while the caller continues, and always close it at the end."""
        ...

    async def run(
        self,
        backend: Backend,
        verdict: Allow,
        stdin: int | None,
        report: Report,
        *,
        interactive: bool = False,
        layer: "ChangeLayer | None" = None,
    ) -> tuple[Outcome, int | None]:
        """Run the permit, on a layer if there is one. Return the outcome, and the exit code if a signal or an output
        error ended the run, else None.
        """
        ...


async def confine(
    driver: Driver,
    case: ExecCase,
    verdict: Allow,
    report: Report,
    stdin: int | None,
    wanted: WantedSandbox,
    ahead: PrelaunchedHelper | None,
    lend: "InjectorFactory | None" = None,
    *,
    interactive: bool = False,
    session: str = "",
    folders: "MadeAhead | None" = None,
) -> "ExecResult":
    """Run an allowed action in a sandbox, record the decision and the outcome, and return the result.

    The canary runs first, because the session record contains its result.

    Args:
        driver: The way in which the run waits.
        stdin: The descriptor of the standard input, or None for an empty one.
        interactive: True if the command gets a terminal that is connected to the terminal of this process.
        session: The session of an earlier run of the command; empty for a new one.
        folders: The folders of its transaction, over which the helper `ahead` was launched; None for others.
    """
    async with driver.boundary(wanted, verdict.permit.terms, ahead, case.gate.settings, lend) as opening:
        from runner.audit.log import open_log

        with contextlib.ExitStack() as at_once:
            # The records are durable at once. The closing of the file copies them to another place, which can wait.
            later = ahead.later if ahead is not None and ahead.later is not None else at_once
            audit = later.enter_context(open_log(case.gate.settings, os.environ))
            policy = case.policy()  # while the helper locks itself in
            case.noted.parts()
            backend, enforcement = await opening
            # INVARIANT: the decision is on the disk before anything runs. If it cannot be written, nothing runs.
            decision = case.decision(verdict, backend.name)
            if session:
                decided = audit.decided(session, decision)
            else:
                session, decided = audit.began(case.session(enforcement, policy), case.session_name(), decision)
            ran, held = Ran(time.time()), tuple[Problem, ...]()
            try:
                if verdict.permit.sourced:
                    require_unchanged(verdict.permit)
                report.started(case.assessment, verdict, session, enforcement)
                run = partial(driver.run, backend, verdict, stdin, report, interactive=interactive)
                transacted = None
                writes = verdict.permit.terms.rights is Rights.WORKSPACE_WRITE and not interactive
                # The default is on; `value` would load the table of keys to tell that.
                if writes and case.gate.settings.values.get(("sandbox", "transactions")) is not False:
                    from runner.frontends.exec.transacted import run_transacted  # only for commands that may write

                    transacted = await run_transacted(
                        case, verdict, session, backend, lambda layer: run(layer=layer), folders
                    )
                if transacted is not None:
                    outcome, ours, held = transacted.outcome, transacted.code, transacted.held
                    ran = replace(ran, changed=transacted.changed, transaction=transacted.transaction)
                elif case.guarded is None and case.gate.flow is None:
                    outcome, ours = await run()
                else:
                    from runner.frontends.exec.guarded import with_undo  # commands of the user have no undo

                    ended = await with_undo(case, verdict, session, run)
                    outcome, ours, held = ended.outcome, ended.code, ended.held
                    ran = replace(ran, changed=ended.changed)
            except BaseException:
                audit.finished(decided, Outcome(status=Exit.FAILED, ended_by="failure"), ran)
                raise
            if ahead is not None:
                ahead.dismiss()
            audit.finished(decided, outcome, replace(ran, given=outcome.given))
        code = report.finished(outcome, verdict.permit.terms.limits, held) if ours is None else ours
        return ExecResult(code, outcome, session)


def require_unchanged(permit: Permit) -> None:
    """Raise Stopped if a file on whose content the decision rests has changed."""
    from runner.facts.sourced_file import changed_file  # few commands read shell text from a file

    if (problem := changed_file(permit.sourced)) is not None:
        raise Stopped(problem, Exit.DENIED)


async def open_sandbox(
    wanted: WantedSandbox,
    terms: Terms,
    ahead: PrelaunchedHelper | None,
    settings: "Settings",
    lend: "InjectorFactory | None",
    waits: PollWait | None = None,
) -> OpenedSandbox:
    """Return the best sandbox that is wanted, opened for `terms`. Raises SandboxUnavailable.

    `waits` are those of a program without an event loop.
    """
    from sandbox.backends import open_backend

    name, minimum = wanted
    return await open_backend(
        name,
        minimum,
        terms=terms,
        cache=cache_dir(os.environ),
        aside=state_dir(os.environ) / "aside",
        files=False,
        ahead=ahead,
        container=settings.container,
        lend=lend,
        network=settings.network,
        waits=waits,
    )


class RunEnd:
    """The end of a run that is not the end of its command: by a signal, or because its output cannot be written.

    Attributes:
        code: The exit code of this program then; None as long as there is no such end.
    """

    def __init__(self, report: Report, stop: Callable[[], object]) -> None:
        """`stop` is called at the end of the run. It ends the command."""
        self.code: int | None = None
        self._report, self._stop = report, stop

    def end(self, code: int) -> None:
        """End the run with the exit code `code`."""
        if self.code is None:  # only once: a second call of `stop` would interrupt the killing of the command
            self.code = code
            self._stop()

    def listen(self, stream: int, chunk: bytes) -> None:
        """Pass output on to the report, and end the run if it cannot be written."""
        if self.code is not None:
            return
        try:
            self._report.listen(stream, chunk)
        except BrokenPipeError:
            self.end(Exit.BROKEN_PIPE)
        except Stopped as error:
            print_problem(error.problem)
            self.end(error.code)


def heard_signals() -> tuple[int, ...]:
    """Return the signals that end a run. A signal that the caller of this program ignores (nohup, a background job)
    stays ignored.
    """
    heard = ending_signals()
    return heard if signal.getsignal(signal.SIGINT) is signal.SIG_IGN else (signal.SIGINT, *heard)


class WithoutLoop:
    """The driver of a run whose waits are those of `waits`."""

    def __init__(self, waits: PollWait) -> None:
        self._waits = waits

    @contextlib.asynccontextmanager
    async def boundary(
        self,
        wanted: WantedSandbox,
        terms: Terms,
        ahead: PrelaunchedHelper | None,
        settings: "Settings",
        lend: "InjectorFactory | None" = None,
    ) -> AsyncIterator[Awaitable[OpenedSandbox]]:
        backends: list[Backend] = []

        async def opened() -> OpenedSandbox:
            found = await open_sandbox(wanted, terms, ahead, settings, lend, self._waits)
            backends.append(found[0])
            return found

        opening = opened()  # the helper that was launched before prepares itself meanwhile
        try:
            yield opening
        finally:
            opening.close()
            for backend in backends:
                await backend.close()

    async def run(
        self,
        backend: Backend,
        verdict: Allow,
        stdin: int | None,
        report: Report,
        *,
        interactive: bool = False,
        layer: "ChangeLayer | None" = None,
    ) -> tuple[Outcome, int | None]:
        assert not interactive  # a terminal needs an event loop
        ending, heard = RunEnd(report, self._waits.interrupt), heard_signals()
        before = {number: signal.signal(number, lambda number, _: ending.end(128 + number)) for number in heard}
        try:
            outcome = await backend.run(verdict.permit, stdin=stdin, listen=ending.listen, layer=layer)
        except Interrupted:
            if ending.code is None:
                raise
            outcome = Outcome(status=ending.code, ended_by="cancelled")
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        return outcome, ending.code


def run_without_loop(waits: PollWait, work: Coroutine[object, object, _Result]) -> _Result:
    """Run a coroutine whose waits are those of `waits` to its end, and return its result.

    As in an event loop, the first Ctrl-C ends the next wait, and KeyboardInterrupt is raised in the end; a second one
    raises it at once.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)
        waits.interrupt()

    pressed: list[int] = []
    if usual := signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    try:
        work.send(None)
    except StopIteration as done:
        result: _Result = done.value
        return result
    except Interrupted:
        raise KeyboardInterrupt from None
    finally:
        if usual:
            signal.signal(signal.SIGINT, signal.default_int_handler)
    work.close()
    raise RuntimeError("a run without an event loop waited for something else than its helper")
