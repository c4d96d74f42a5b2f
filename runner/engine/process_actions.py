"""The actions about processes that stay: the start, and reads, input and signals for one that runs.

No sandbox runs the last three: their permits allow exactly what this module does with the process.
"""

import asyncio
import signal
import time
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from policy.model.action import Action, ProcessAction, ReadProcess, SignalProcess, StartProcess, WriteProcess
from policy.model.deadline import deadline
from policy.model.profile import MAIN
from policy.model.verdict import Permit, Problem, Rights
from runner.engine.output_log import OutputLog, line_pattern
from runner.engine.processes import SessionProcess, TooManyProcesses
from runner.engine.terminal_screen import SequenceFilter, TerminalScreen
from runner.gate.wording import action_words
from sandbox.backend import Listener, Outcome, TerminalSize
from tools.processes import state_words

if TYPE_CHECKING:
    from policy.model.tier import Tier
    from runner.engine.run_context import RunContext

TERMINAL = TerminalSize(40, 120)
_WRITE = deadline(10.0)  # seconds that a process may take to accept its input
_SETTLE = 0.1  # seconds of further output that belong to the first new output
_PARTING = deadline(2.0)  # seconds that a process may take to end after SIGTERM or SIGINT before the answer
_SOON = deadline(0.1)  # seconds that it may take to end after another signal


def known(action: Action, ctx: "RunContext") -> Action | Problem:
    """Return the action with what the session knows about its process, or the problem if there is no such process."""
    if not isinstance(action, ProcessAction):
        return action
    found = ctx.processes.get(action.process)
    # THREAT T223: a sub-agent reaches no process of another agent, which may have more rights.
    if found is None or found.server or (ctx.agent != MAIN and found.agent != ctx.agent):
        mine = [each for each in ctx.processes.commands if ctx.agent in (MAIN, each.agent)]
        names = ", ".join(f"`{each.id}`" for each in mine)
        why = f"the processes of this session are {names}" if names else "this session has started no process"
        fix = "start one with `bash` and `background`; processes of an earlier run have ended"
        return Problem(f"there is no process `{action.process[:20]}`", why, fix)
    own = not found.by_user
    match action:
        case WriteProcess():
            writes = found.permit.terms.rights is Rights.WORKSPACE_WRITE
            return replace(action, command=found.command, tiers=found.tiers, writes=writes)
        case SignalProcess():
            return replace(action, command=found.command, own=own)
        case ReadProcess(pattern=str()):
            compiled = line_pattern(action.pattern or "")
            return compiled if isinstance(compiled, Problem) else action
        case _:
            return action


async def perform(
    permit: Permit,
    number: int,
    tiers: "tuple[Tier, ...]",
    ctx: "RunContext",
    listen: Listener,
    *,
    by_user: bool = False,
) -> Outcome:
    """Do what `permit` allows with a process, and return the outcome.

    `number` is the record of the decision, `tiers` are its tiers, and `by_user` is True for a command of the user.

    Raise SandboxUnavailable or AuditError if a process cannot be started.
    """
    action = permit.action
    assert isinstance(action, StartProcess | ProcessAction)  # the caller asks for no other action
    if isinstance(action, StartProcess):
        if not action.stays:
            return await _run_in_terminal(permit, ctx, listen)
        words = action_words(action, ctx.cwd)
        labels = tuple(tier.label for tier in tiers)
        terminal = TERMINAL if action.pty else None
        try:
            started = await ctx.processes.start(
                permit, words, number, terminal, ctx.agent, command=action.script, tiers=labels, by_user=by_user
            )
        except TooManyProcesses as error:
            return Outcome(1, problem=error.problem)
        return Outcome(0, data={"process": started.id}, enforcement=started.process.enforcement)
    found = ctx.processes.get(action.process)
    if found is None:
        return Outcome(1, problem=Problem("the process is gone", "it has ended, and newer ones followed", "start it"))
    began = time.monotonic()
    match action:
        case ReadProcess():
            outcome = await _read(found, action, ctx)
        case WriteProcess():
            outcome = await _write(found, action)
        case SignalProcess():
            outcome = await _signal(found, action, ctx)
        case never:
            assert_never(never)
    if not found.alive:
        found.end_known.add(ctx.agent)  # the result says so
    return replace(outcome, seconds=time.monotonic() - began)


async def _read(found: SessionProcess, action: ReadProcess, ctx: "RunContext") -> Outcome:
    pattern = line_pattern(action.pattern) if action.pattern is not None else None
    if isinstance(pattern, Problem):
        return Outcome(1, problem=pattern)
    reader = ctx.agent
    position = found.read.get(reader, 0)
    try:
        async with asyncio.timeout(action.wait):
            looked = position  # output before this position was compared with the pattern
            while found.alive:
                news = found.log.since(looked)
                if news.text if pattern is None else pattern.matching(news.text):
                    break
                looked = news.end - len(news.text.rpartition("\n")[2])  # an unfinished line is compared again
                await found.log.changed()
            if found.alive:
                await asyncio.sleep(_SETTLE)
    except TimeoutError:
        pass  # the answer is what there is by now
    piece = found.log.since(position)
    found.read[reader] = piece.end
    text = piece.text
    if pattern is not None:
        text = "".join(f"{line}\n" for line in pattern.matching(text))
    violations = found.process.violations[found.told :]
    found.told += len(violations)
    data: dict[str, object] = {"process": found.id, "alive": found.alive, "state": state_of(found)}
    if piece.lost:
        data["lost"] = piece.lost
    if found.log.path:
        data["path"] = found.log.path
    if found.screen is not None:
        data["screen"] = "\n".join(ctx.redactor.mask(list(found.screen.lines())))
        data["cursor"] = "row {}, column {}".format(*found.screen.cursor)
    return Outcome(0, stdout=text.encode("utf-8", "replace"), violations=violations, data=data)


def state_of(found: SessionProcess) -> str:
    """Return the state of the process in words."""
    outcome = found.outcome or Outcome(0)
    return state_words(found.id, found.alive, found.seconds, outcome.status, outcome.ended_by)


async def _write(found: SessionProcess, action: WriteProcess) -> Outcome:
    what = f"the text was not written to {found.id}"
    if not found.alive:
        return Outcome(1, problem=Problem(what, state_of(found), "read its output with `bash_output`"))
    try:
        async with asyncio.timeout(_WRITE):
            data = action.text.encode("utf-8", "surrogateescape")
            await found.process.write(data)
            found.given += len(data)
    except TimeoutError:
        why = f"it has read only a part of it, or nothing, within {_WRITE:g} s"
        return Outcome(1, problem=Problem(what, why, "read its output: it may be busy, or expect no input"))
    except UnicodeEncodeError:
        return Outcome(1, problem=Problem(what, "the text is no valid Unicode", "write other characters"))
    except OSError:
        return Outcome(1, problem=Problem(what, "its input is closed", "read its output with `bash_output`"))
    if action.close:
        found.process.close_input()
    return Outcome(0, data={"process": found.id, "state": state_of(found)})


async def _signal(found: SessionProcess, action: SignalProcess, ctx: "RunContext") -> Outcome:
    if found.alive and action.signal == "KILL":
        await ctx.processes.end(found.id)
    elif found.alive:
        number = getattr(signal, f"SIG{action.signal}", None)
        if not isinstance(number, signal.Signals):
            problem = Problem("no signal was sent", "there is no such signal", "use TERM or KILL")
            return Outcome(1, problem=problem)
        await ctx.processes.signal(found.id, number)
        await ctx.processes.ended(found.id, _PARTING if number in (signal.SIGTERM, signal.SIGINT) else _SOON)
    return Outcome(0, data={"process": found.id, "alive": found.alive, "state": state_of(found)})


async def _run_in_terminal(permit: Permit, ctx: "RunContext", listen: Listener) -> Outcome:
    """Run a command in a terminal to its end, and return the text that scrolled away and the last screen as output."""
    screen, plain = TerminalScreen(TERMINAL), SequenceFilter()
    log = OutputLog(ctx.redactor)

    def take(stream: int, chunk: bytes) -> None:
        screen.feed(chunk)
        listen(stream, log.take(stream, chunk, plain.plain).encode())

    process = await ctx.sandbox.start(permit, listen=take, terminal=TERMINAL)
    try:
        async with asyncio.timeout(permit.terms.limits.wall):
            outcome = await process.wait()
    except TimeoutError:
        outcome = await process.end("wall")
    except BaseException:
        await asyncio.shield(process.end())
        raise
    finally:
        log.close()
    lines = (*screen.history(), *screen.lines())
    text = "\n".join(ctx.redactor.mask(list(lines)))
    return replace(outcome, stdout=text.encode("utf-8", "replace"), stderr=b"")
