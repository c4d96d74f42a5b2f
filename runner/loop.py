"""The loop of a run. START HERE. Every call of the model passes through these steps, in this order:

    prompt > provider > call > plan > classify > decide > (ask) > audit > sandbox > audit > render > message

`handle_call` performs these steps for one call; `run` repeats them until the model is done or a limit is reached.
"""

import asyncio

from policy.model.frozen import dataclass
from policy.model.profile import MAIN
from runner.audit.chain import AuditError
from runner.engine.budget import BudgetExceeded, Limit
from runner.engine.execute import StopListener, execute_call
from runner.engine.judge import judge_call
from runner.engine.run_context import RunContext
from runner.engine.steering import STANDARD_INPUT
from runner.engine.tool_calls import CallResult, Judgement, ModelCall
from runner.engine.transaction_helper import helper_ahead
from runner.engine.turns import TurnLoop
from runner.events import Denied, ErrorRaised, Prompted, RunEnded
from runner.messages import ImageBlock, Message, ProviderError, TextBlock, Usage, UserBlock, UserMessage
from runner.problems import Exit
from runner.sessions.store import JournalError
from sandbox.backend import SandboxUnavailable

# Errors that end a run with a message of their own. The conversation may continue after them.
BREAKS = (ProviderError, SandboxUnavailable, AuditError, JournalError)


async def handle_call(call: ModelCall, ctx: RunContext, stopped: StopListener = lambda report: None) -> CallResult:
    """Judge and execute one call of the model, and return its recorded result. Raise one of `BREAKS`.

    If the task is cancelled while a command runs, `stopped` is called with the result so far.
    """
    if ctx.hooks is None or call.own:  # hooks are about calls of the model
        judged = judge_call(call, ctx)
        return judged if isinstance(judged, CallResult) else await execute_call(judged, ctx, stopped)
    from runner.engine.hooked_calls import after_call, judge_hooked  # few sessions have hooks

    judged = await judge_hooked(call, ctx)
    if isinstance(judged, CallResult):
        return judged
    report = await execute_call(judged, ctx, stopped)
    return await after_call(judged, report, ctx) if isinstance(judged, Judgement) else report


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a run.

    Attributes:
        exit: The exit code for the program.
        reason: The reason in words.
        turns: The number of turns.
        usage: The tokens as the provider counts them.
        denied: The denied actions.
        limit: The limit that ended the run, or None.
        cost: The cost of the run, or None if the price is unknown.
        text: The answer of the model, with secrets masked: the text of its last message. Empty if the run ended after a
            call, before the model had answered.
        output: The value of the answer, if the session has an output schema and the answer is valid; else None.
    """

    exit: Exit
    reason: str
    turns: int
    usage: Usage
    denied: tuple[Denied, ...]
    limit: Limit | None = None
    cost: float | None = None
    text: str = ""
    output: object = None


async def run(
    prompt: str,
    ctx: RunContext,
    history: list[Message] | None = None,
    typed: str = "",
    images: tuple[ImageBlock, ...] = (),
) -> Ending:
    """Let the model work on `prompt`, and return the end of the run after all child processes have ended.

    `history` is extended in place and stays complete (every call has its result), so that a conversation can continue.
    `typed` is shown to users in place of the prompt if it is not empty. `images` belong to the prompt, as do the files
    that it names with `@`. Raise an exception of the approver or of
    `emit`.
    """
    work = TurnLoop(ctx, [] if history is None else history)
    prompt = ctx.redactor.text(prompt)  # the user may have pasted a key by mistake
    ctx.skills.begin(prompt, ctx.context)
    if ctx.flow is not None and ctx.agent == MAIN:  # the prompt of a sub-agent is text of a model
        ctx.flow.hear(ctx.redactor.text(typed) or prompt)
        if typed and STANDARD_INPUT in prompt:
            ctx.flow.note_untrusted("standard input", prompt)
    ctx.emit(Prompted(prompt, ctx.redactor.text(typed)))
    limit: Limit | None = None
    stopped = False
    ctx.tries.begin()
    try:
        refusal, notes = "", [_process_note(ctx), _agent_note(ctx)]
        files: tuple[UserBlock, ...] = images
        try:
            if ctx.hooks is not None:
                refusal, added = await _ask_hooks(prompt, ctx, resumed=len(work.messages) > 0)
                notes.append(added)
            if ctx.servers is not None and not refusal:  # the first request describes their tools
                notes.append(ctx.redactor.text(await ctx.servers.introduction()))
            if ctx.agent == MAIN and "@" in (typed or prompt) and not refusal:
                from runner.engine.attachments import attachments  # few prompts attach files

                files = (*images, *await attachments(typed or prompt, ctx, f"@{len(work.messages)}"))
        finally:  # a prompt that is stopped before the first request stays in the conversation
            notes = [] if refusal else notes
            prompt = f"[a prompt that a hook refused: {refusal}]" if refusal else prompt
            texts = tuple(TextBlock(text) for text in (prompt, *notes) if text)
            blocks = (*texts, *(() if refusal else files))
            asked, typed = UserMessage(blocks), typed or (prompt if len(blocks) > 1 else "")
            work.messages.append(asked)
            ctx.journal.message(asked, typed=typed)
        async with asyncio.timeout(ctx.live.limits.seconds) as clock, helper_ahead(ctx):
            reason = refusal or await work.through(clock.when())
        exit = Exit.DENIED if work.denied or refusal else Exit.DONE
    except BudgetExceeded as end:
        exit, reason, limit = end.exit, end.reason, end.limit
    except BREAKS as error:
        ctx.emit(ErrorRaised(error.problem))
        exit = Exit.SANDBOX if isinstance(error, SandboxUnavailable) else Exit.FAILED
        reason = error.problem.what
    except TimeoutError:
        if not clock.expired():
            raise
        exit, reason = Exit.LIMIT, f"stopped after {ctx.live.limits.seconds:g} s, the time this run may take"
        limit = Limit.WALL
    except asyncio.CancelledError:
        exit, reason, stopped = Exit.INTERRUPTED, "stopped by the user", True
    except Exception as error:  # from the approver or a listener; raised to the caller after `RunEnded` was emitted
        gone = isinstance(error, BrokenPipeError)
        reason = "the reader of the output is gone" if gone else "the approver or a listener failed"
        ctx.tries.leave(reason, lambda event: None)  # nobody would hear of it
        _end_run(work, ctx, Exit.BROKEN_PIPE if gone else Exit.FAILED, reason, None)
        raise
    finally:
        ctx.tries.open = False
    if ctx.tries.list is not None:
        from runner.engine.settle import settle_at_end  # only for rules that try

        try:
            denied = await settle_at_end(ctx, stopped=stopped)
        except Exception:  # from the approver or a listener
            _end_run(work, ctx, Exit.FAILED, "the approver or a listener failed", None)
            raise
        if denied is not None:
            work.denied.append(denied)
            exit = Exit.DENIED if exit is Exit.DONE else exit
    _tell_decisions(work, ctx)
    return _end_run(work, ctx, exit, reason, limit)


def _tell_decisions(work: TurnLoop, ctx: RunContext) -> None:
    """Add the decisions about changes that waited to the conversation: the model reads them with the next prompt."""
    if news := ctx.redactor.text(ctx.tries.news()).strip():
        try:
            work.say(news)
        except BREAKS as error:
            ctx.emit(ErrorRaised(error.problem))


def _process_note(ctx: RunContext) -> str:
    """Return the note about the processes of the session for the model; empty without processes."""
    if not ctx.processes.known:
        return ""
    from runner.engine.process_notes import prompt_note  # few sessions have processes that stay

    return f"\n\n{note}" if (note := ctx.redactor.text(prompt_note(ctx.processes, ctx.agent))) else ""


def _agent_note(ctx: RunContext) -> str:
    """Return the note about sub-agents that have ended in the background; empty without any."""
    note = ctx.redactor.text(ctx.agents.note(ctx.agent)) if ctx.agents is not None else ""
    return f"\n\n{note}" if note else ""


def _end_run(work: TurnLoop, ctx: RunContext, exit: Exit, reason: str, limit: Limit | None) -> Ending:
    work.over()
    spent = work.spent
    # Without a valid answer there is none: a program must not read half of a value.
    text = ctx.redactor.text(work.answer) if ctx.output is None or work.valid else ""
    ending = Ending(exit, reason, spent.turns, spent.usage, tuple(work.denied), limit, spent.money, text, work.output)
    ctx.emit(
        RunEnded(int(exit), reason, spent.turns, spent.usage, ending.denied, limit, spent.money, text, work.output)
    )
    return ending


async def _ask_hooks(prompt: str, ctx: RunContext, *, resumed: bool) -> tuple[str, str]:
    """Ask the hooks about a prompt. Return the sentence about a refusal, or an empty text, and the texts they add."""
    from runner.engine.hooked_calls import begin_prompt, refused_prompt  # few sessions have hooks

    denial, added = await begin_prompt(prompt, ctx, resumed=resumed)
    return (refused_prompt(denial, ctx) if denial is not None else ""), f"\n\n{added}" if added else ""
