"""START HERE. Every request of the model travels this way, in this order, and no other:

    prompt > provider > call > plan > classify > decide > (ask) > audit > sandbox > audit > render > message

`answer` is the arrow for one call; `run` repeats it until the model is done or a bound is reached.
"""

import asyncio
import time
from collections.abc import Callable

from policy.extra import Extra
from policy.record import dataclass
from policy.verdict import Deny, Permit, Problem
from runner.asking import ahead, heard
from runner.audit import records
from runner.audit.log import AuditError
from runner.beyond import beyond
from runner.calls import Call, Judgement, Planned, plan, raw_arguments
from runner.events import Denied, Failed, Malformed, Notice, Prompted, Proposed, RunEnded
from runner.judging import judged
from runner.messages import Message, ProviderError, TextBlock, Usage, UserMessage
from runner.plan_mode import Proposal, proposal, propose
from runner.problems import Exit
from runner.reports import Report, again, denied, edited, finished, listener, refused, stopped
from runner.sessions.call import verdict_of
from runner.sessions.store import JournalError
from runner.spending import Ended, Limit
from runner.turns import Arrow, Turns
from runner.undo.failure import UndoError
from runner.wording import action_words
from runner.world import World
from sandbox.backend import Outcome, SandboxUnavailable, noted_connections

Changed = tuple[tuple[str, str], ...] | None  # (path, how), where somebody looked
# What ends a run with words of its own, after which a conversation may go on.
BREAKS = (ProviderError, SandboxUnavailable, AuditError, JournalError)


async def answer(call: Call, world: World) -> Report:
    """Take one call from the model all the way to a sealed result."""
    found = judge(call, world)
    return found if isinstance(found, Report) else await settle(found, world)


def judge(call: Call, world: World) -> Judgement | Proposal | Report:
    """Plan the call and put it before the policy. A call that makes no sense is reported back at once."""
    if (handed := proposal(call, world)) is not None:
        return handed
    return told(call, weigh(call, world), world)


def weigh(call: Call, world: World) -> Judgement | Problem:
    """What the gate says of the call now; nobody is told, and nothing is recorded."""
    planned = plan(call, world)
    return planned if isinstance(planned, Problem) else judged(planned, world)


def told(call: Call, weighed: Judgement | Problem, world: World) -> Judgement | Report:
    """Tell everybody of the call; a Report when it makes no sense."""
    if isinstance(weighed, Judgement):
        world.emit(Proposed(call.key, call.name, weighed.planned.action))
        return weighed
    world.emit(Proposed(call.key, call.name, None))
    world.audit.refused(world.session, records.Refusal(call.name, raw_arguments(call), weighed))
    world.emit(Malformed(call.key, call.name, weighed))
    return Report(refused(call, weighed, world))


async def settle(judgement: Judgement | Proposal, world: World) -> Report:
    """Ask if the verdict is a question, seal the decision, and only then let the sandbox act on it."""
    if isinstance(judgement, Proposal):
        return await propose(judgement, world)
    found = await heard(judgement, world)
    planned, verdict = found.judged.planned, found.verdict
    decision = records.Decision(
        planned.call.name,
        found.judged.assessment,
        verdict,
        world.sandbox.name,
        found.answer,
        grants=found.names,
        granted=found.by,
        reach=world.sandbox.name,
        noted=found.judged.noted,
        proposed=found.proposed,
        model=world.named,
    )
    number = _sealed(planned, decision, world)
    if isinstance(verdict, Deny):
        report = denied(planned, verdict, world, number)
    else:
        outcome = await _undoable(verdict.permit, number, planned, world)
        report = await _ended(planned, verdict.permit, outcome, number, world)
    return report if found.proposed is None else edited(report, planned, world)


def _sealed(planned: Planned, decision: records.Decision, world: World) -> int:
    """Its number in the log. INVARIANT: the record is durable before anything runs. When it cannot be written, this
    raises and nothing runs."""
    number = world.audit.decided(world.session, decision)
    world.journal.call(verdict_of(planned, decision, number, world.cwd))
    return number


async def _ended(planned: Planned, permit: Permit, outcome: Outcome, number: int, world: World) -> Report:
    """The end of an action; where the sandbox stopped it, once more with the right that a person adds."""
    gained: list[Extra] = []
    while (more := await beyond(planned, permit.terms, outcome, world, gained)) is not None:
        gained.append(more.extra)
        decision = records.Decision(
            planned.call.name,
            more.judged.assessment,
            more.verdict,
            world.sandbox.name,
            more.answer,
            tuple(each.words for each in gained),
            reach=world.sandbox.name,
            noted=more.judged.noted,
            model=world.named,
        )
        number, before = _sealed(planned, decision, world), number
        if isinstance(more.verdict, Deny):
            return stopped(finished(planned, outcome, world, before), more.verdict.problem, world)
        permit = more.verdict.permit
        world.emit(Notice(f"it runs once more, with {more.extra.words}"))
        outcome = await _undoable(permit, number, planned, world)
    report = finished(planned, outcome, world, number)
    return again(report, " and ".join(each.words for each in gained), world) if gained else report


async def _undoable(permit: Permit, number: int, planned: Planned, world: World) -> Outcome:
    """Run the permit between two looks at what it may write."""
    if world.undo is None:
        return await _confined(permit, number, planned.call, world, lambda: None)
    words = world.redactor.text(action_words(planned.action, world.cwd))
    try:
        running = await world.undo.before(permit, words, planned.call.key)
    except UndoError as error:  # the person wants nothing to run that cannot be undone
        outcome = Outcome(status=1, problem=error.problem)
        world.audit.finished(number, outcome)
        return outcome
    except asyncio.CancelledError:
        world.audit.finished(number, Outcome(status=130, ended_by="cancelled"))
        raise
    undo = world.undo

    def look() -> Changed:
        step = undo.after(running)
        if step is not None:
            world.journal.snapshot(str(step), planned.call.key)
        return undo.changed

    return await _confined(permit, number, planned.call, world, look)


async def _confined(permit: Permit, number: int, call: Call, world: World, look: Callable[[], Changed]) -> Outcome:
    """Run the permit; whatever ends it, the record says so, and what `look` then finds changed."""
    started, began = time.monotonic(), time.time()
    try:
        outcome = await world.sandbox.run(permit, listen=listener(call, world.emit))
    except BaseException as end:
        how = "cancelled" if isinstance(end, asyncio.CancelledError) else "failure"
        seconds, made = time.monotonic() - started, noted_connections(end)
        world.audit.finished(
            number,
            Outcome(status=130, seconds=seconds, ended_by=how, connections=made),
            records.Ran(began, changed=look()),
        )
        raise
    world.audit.finished(number, outcome, records.Ran(began, changed=look()))
    return outcome


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended. `exit` is the program's; `reason` says it in words; `limit` is the bound that ended it, if one
    did. `cost` is None where no price is known."""

    exit: Exit
    reason: str
    turns: int
    usage: Usage
    denied: tuple[Denied, ...]
    limit: Limit | None = None
    cost: float | None = None


async def run(prompt: str, world: World, history: list[Message] | None = None, typed: str = "") -> Ending:
    """Let the model work on `prompt` until it is done. Whatever ends it is an Ending; no child is left behind.

    `history` is extended in place and stays whole (every call has its result), so that a conversation can go on.
    `typed`, where it is not empty, stands for the prompt wherever a person reads it.
    """
    work = Turns(world, [] if history is None else history, Arrow(weigh, told, judge, ahead, settle))
    prompt = world.redactor.text(prompt)  # who pastes a key did not mean to send it
    world.emit(Prompted(prompt, world.redactor.text(typed)))
    asked = UserMessage((TextBlock(prompt),))
    limit: Limit | None = None
    work.messages.append(asked)
    try:
        world.journal.message(asked, typed=typed)
        async with asyncio.timeout(world.bounds.seconds) as clock:
            reason = await work.through(clock.when())
        exit = Exit.DENIED if work.denied else Exit.DONE
    except Ended as end:
        exit, reason, limit = end.exit, end.reason, end.limit
    except BREAKS as error:
        world.emit(Failed(error.problem))
        exit = Exit.SANDBOX if isinstance(error, SandboxUnavailable) else Exit.FAILED
        reason = error.problem.what
    except TimeoutError:
        if not clock.expired():
            raise
        exit, reason = Exit.LIMIT, f"stopped after {world.bounds.seconds:g} s, the time this run may take"
        limit = Limit.WALL
    except asyncio.CancelledError:
        exit, reason = Exit.INTERRUPTED, "stopped by the user"
    except Exception:  # of who answers or listens, who learns of it; the run has its end all the same
        _over(work, world, Exit.FAILED, "whoever answers or listens failed", None)
        raise
    return _over(work, world, exit, reason, limit)


def _over(work: Turns, world: World, exit: Exit, reason: str, limit: Limit | None) -> Ending:
    work.over()
    spent = work.spent
    ending = Ending(exit, reason, spent.turns, spent.usage, tuple(work.denied), limit, spent.money)
    world.emit(RunEnded(int(exit), reason, spent.turns, spent.usage, ending.denied, limit, spent.money))
    return ending
