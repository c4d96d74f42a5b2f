"""The second half of `agent exec`: an allowed action is run in the sandbox, and its outcome is recorded."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING

from policy.model.frozen import dataclass, replace
from policy.model.verdict import Allow, Permit, Problem, Rights, Terms
from runner.audit.records import Ran
from runner.frontends.exec.report import ExecCase, Report
from runner.problems import Exit, Stopped, ending_signals
from runner.state.paths import cache_dir, state_dir
from runner.stderr import print_problem
from sandbox.backend import Backend, Enforcement, Level, Outcome, interrupted_connections
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


Opening = asyncio.Task[tuple[Backend, Enforcement]]


async def confine(
    case: ExecCase,
    verdict: Allow,
    report: Report,
    stdin: int | None,
    wanted: tuple[str | None, Level],
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
        stdin: The descriptor of the standard input, or None for an empty one.
        wanted: The name of the backend, or None, and the least enforcement.
        interactive: True if the command gets a terminal that is connected to the terminal of this process.
        session: The session of an earlier run of the command; empty for a new one.
        folders: The folders of its transaction, over which the helper `ahead` was launched; None for others.
    """
    async with boundary(wanted, verdict.permit.terms, ahead, case.gate.settings, lend) as opening:
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
                run = partial(run_confined, backend, verdict, stdin, report, interactive=interactive)
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


@contextlib.asynccontextmanager
async def boundary(
    wanted: tuple[str | None, Level],
    terms: Terms,
    ahead: PrelaunchedHelper | None,
    settings: "Settings",
    lend: "InjectorFactory | None",
) -> AsyncIterator[Opening]:
    """Start a sandbox while the caller continues, and always close it at the end."""
    from sandbox.backends import open_backend

    name, minimum = wanted
    cache, aside = cache_dir(os.environ), state_dir(os.environ) / "aside"
    open_here = partial(
        open_backend,
        terms=terms,
        cache=cache,
        aside=aside,
        files=False,
        container=settings.container,
        network=settings.network,
    )
    opening = asyncio.create_task(open_here(name, minimum, ahead=ahead, lend=lend))
    await asyncio.sleep(0)  # unless a helper was launched before, it is started now and prepares on another core
    try:
        yield opening
    finally:
        opening.cancel()
        (result,) = await asyncio.gather(opening, return_exceptions=True)
        if isinstance(result, tuple):
            await result[0].close()


async def run_confined(
    backend: Backend,
    verdict: Allow,
    stdin: int | None,
    report: Report,
    *,
    interactive: bool = False,
    layer: "ChangeLayer | None" = None,
) -> tuple[Outcome, int | None]:
    """Run the permit, on a layer if there is one. Return the outcome, and the exit code if a signal or an output error
    ended the run, else None.
    """
    ended: list[int] = []

    def listen(stream: int, chunk: bytes) -> None:
        if ended:
            return
        try:
            report.listen(stream, chunk)
        except BrokenPipeError:
            end(Exit.BROKEN_PIPE)
        except Stopped as error:
            print_problem(error.problem)
            end(error.code)

    def end(code: int) -> None:
        if not ended:  # only once: a second cancel would interrupt the killing of the command
            ended.append(code)
            running.cancel()

    if interactive:
        from runner.frontends.exec.interactive import run_interactively  # only at a terminal

        running = asyncio.create_task(run_interactively(backend, verdict.permit, listen))
    else:
        running = asyncio.create_task(backend.run(verdict.permit, stdin=stdin, listen=listen, layer=layer))
    loop = asyncio.get_running_loop()
    # A signal that the caller of this program ignores (nohup, a background job) stays ignored.
    heard = ending_signals()
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        heard = (signal.SIGINT, *heard)
    # Only the first signal gets a handler of the loop, which then wakes at every signal. The others use `signal`: one
    # more `add_signal_handler` takes longer than the start of a command, because it builds the set of all signals.
    for number in heard[:1]:
        loop.add_signal_handler(number, end, 128 + number)
    for number in heard[1:]:
        signal.signal(number, lambda number, _: loop.call_soon_threadsafe(end, 128 + number))
    try:
        outcome = await running
    except asyncio.CancelledError as cancel:
        if not ended:
            raise
        outcome = Outcome(status=ended[0], ended_by="cancelled", connections=interrupted_connections(cancel))
    finally:
        for number in heard[:1]:
            loop.remove_signal_handler(number)
        for number in heard[1:]:
            signal.signal(number, signal.SIG_DFL)
    return outcome, ended[0] if ended else None
