"""Tool calls of a model, from their arguments to a judged action, and their results as messages and events."""

import codecs
from dataclasses import replace
from typing import TYPE_CHECKING

from policy.model.action import (
    Action,
    AskUser,
    LoadSkill,
    ManageAgent,
    ManageTasks,
    ProcessAction,
    ProposeNote,
    QueryCode,
    ScheduleJob,
    SignalProcess,
    StartProcess,
    WriteProcess,
)
from policy.model.frozen import dataclass
from policy.model.tier import Tier
from policy.model.verdict import Allow, Deny, Problem
from runner.engine.run_context import RunContext
from runner.events import ActionFinished, CommandOutput, Denied, Emit
from runner.gate.wording import action_words
from runner.messages import ImageBlock, TextBlock, ToolCall, ToolResult, joined_text
from runner.text.sanitize import one_line
from sandbox.backend import MOST_TOLD, Listener, Outcome
from tools.arguments import parse
from tools.extract import ExtractTool
from tools.file_result import problem_of
from tools.tool import ModelTool, TextPart, find

if TYPE_CHECKING:
    from policy.model.profile import PermissionRule
    from policy.permission.flag_rights import FlagRights
    from runner.audit.records import RecordedHook
    from runner.engine.authorize import EarlyAnswer, Evaluation
    from runner.engine.hook_access import EventAnswer

_LONGEST_NAME = 200  # characters
_REFUSED = 1000  # characters of a refused action; the event `ToolProposed` contains the whole action


def bounded(name: str) -> str:
    """Return the name of a tool as the model wrote it, shortened. No tool has a longer name."""
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One call of a session.

    Attributes:
        key: The unique key of the call in the session. The id of the provider may repeat.
        of: The call as the provider sent it.
        own: True if the user typed the command, and no model called.
    """

    key: str
    of: ToolCall
    own: bool = False

    @property
    def name(self) -> str:
        """Return the name of the called tool for events and records."""
        return bounded(self.of.name)


@dataclass(frozen=True, slots=True)
class Planned:
    """A call with the action that `tool` planned. The tool renders the outcome for the model.

    Attributes:
        tiers: The tiers of the decision about the action; empty before the decision.
        hosts: The hosts that a process of the session may reach as long as it runs.
        usual: The hosts that are the usual ones of the programs of the action, such as a registry.
        credentials: The credentials that requests of the action could get.
    """

    call: ModelCall
    tool: ModelTool
    action: Action
    tiers: tuple[Tier, ...] = ()
    hosts: tuple[str, ...] = ()
    usual: frozenset[str] = frozenset()
    credentials: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HookedCall:
    """The effect of hooks on one call.

    Attributes:
        rules: The rules about the action that the answers are; they ask or deny.
        recorded: The answers for the record.
        proposed: The action that the model proposed, if a hook changed it; else None.
        changed_by: The file and line of the hook that changed it, or empty.
        answers: The answers.
    """

    rules: "tuple[PermissionRule, ...]"
    recorded: "tuple[RecordedHook, ...]"
    proposed: Action | None
    changed_by: str
    answers: "tuple[EventAnswer, ...]"

    def changed_words(self, cwd: str) -> str:
        """Return what the model proposed before a hook changed it, for the card; empty if no hook changed it."""
        if self.proposed is None:
            return ""
        words = one_line(action_words(self.proposed, cwd), _REFUSED)
        return f"the hook {self.changed_by} changed this action; the model proposed: {words}"


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on one planned call, before a user is asked.

    Attributes:
        planned: The planned call.
        evaluation: The verdict on its action.
        model: The model that made the call, as `provider:model`.
        early: The answer that the user gave before the call was due, or None.
        hooked: The effect of hooks on the call, or None in a session without hooks.
        typed: The rights that the user typed for the call, or None.
    """

    planned: Planned
    evaluation: "Evaluation"
    model: str
    early: "EarlyAnswer | None" = None
    hooked: HookedCall | None = None
    typed: "FlagRights | None" = None

    @property
    def only_reads(self) -> bool:
        """Return True if the action is allowed and only reads. Such calls may run concurrently.

        The start of a process, its input and a signal keep their order, whatever their tier is.
        """
        evaluation = self.evaluation
        if isinstance(self.planned.action, ManageAgent | ManageTasks | AskUser | ScheduleJob):
            return False
        if isinstance(self.planned.action, QueryCode) and self.planned.action.operation == "rename":
            return False
        if isinstance(self.planned.action, StartProcess | WriteProcess | SignalProcess):
            return False
        return isinstance(evaluation.verdict, Allow) and evaluation.assessment.tiers == (Tier.READ,)


def plan(call: ModelCall, ctx: RunContext) -> Planned | Problem:
    """Return the action that `call` asks for, or the problem: an unknown tool, broken JSON, or unfit arguments."""
    own = ctx.plan_tool()
    tools = ctx.tools.every if call.own else ctx.tools
    if ctx.unattended and call.name == AskUser.tool and ctx.tools.selection.selects(call.name):
        from tools import ASK_TOOL  # the answer says that nobody can answer

        tools = (ASK_TOOL,)
    tool = find(tools, call.name, [each.name for each in own])
    if isinstance(tool, Problem):
        return tool
    arguments = parse(tool, call.of.arguments, call.of.raw)
    if isinstance(arguments, Problem):
        return arguments
    action = tool.plan(arguments, ctx.cwd, ctx.seen)
    if isinstance(action, ProcessAction):
        from runner.engine.process_actions import known  # few sessions have processes that stay

        action = known(action, ctx)
    elif isinstance(action, LoadSkill):
        from runner.engine.skill_use import known_skill  # few calls load a skill

        action = known_skill(action, ctx)
    elif isinstance(action, ProposeNote) and ctx.notes is not None:
        action = ctx.notes.known(action, ctx.agent, ctx.tools.names)
    elif isinstance(action, ScheduleJob):
        if ctx.jobs is None:
            return Problem("nothing was done", "this session cannot request jobs", "do without it")
        outside = tuple(each.words for each in ctx.flow.untrusted) if ctx.flow is not None else ()
        action = ctx.jobs.known(action, ctx.agent, ctx.live.mode, ctx.live.named, outside)
    elif isinstance(action, QueryCode):
        if ctx.code is None:
            return Problem("nothing was asked", "this session has no language servers", "use `read` and `grep`")
        action = ctx.code.known(action, ctx)
    return action if isinstance(action, Problem) else Planned(call, tool, action)


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of one call.

    Attributes:
        result: The result for the model.
        denied: The denial, or None.
        output: The number of bytes that the action printed.
    """

    result: ToolResult
    denied: Denied | None = None
    output: int = 0


def refused(call: ModelCall, problem: Problem, ctx: RunContext, note: str | None = None) -> ToolResult:
    """Return a refusal with its cause and an alternative, so that the model can act on it.

    `note` is appended. Without a note the call could not become an action, which is counted.
    """
    if note is None:
        note = ctx.refusals.malformed(call.name)
    text = ctx.redactor.text(f"not done: {problem.what}\nwhy: {problem.why}\ninstead: {problem.fix}{note}")
    return ToolResult(call.of.id, (TextBlock(text),), is_error=True)


def denied(planned: Planned, verdict: Deny, ctx: RunContext, record: int) -> CallResult:
    """Report that the policy or a user denied the action."""
    action = one_line(action_words(planned.action, ctx.cwd), _REFUSED)
    event = Denied(
        planned.call.key,
        action,
        verdict.cell.tier,
        verdict.reason.rule,
        verdict.problem,
        record,
        verdict.allowed_in,
        verdict.asked_in,
    )
    ctx.emit(event)
    return CallResult(refused(planned.call, verdict.problem, ctx, ctx.refusals.denied(verdict.cell.tier)), event)


def finished(planned: Planned, outcome: Outcome, ctx: RunContext, record: int) -> CallResult:
    """Report the outcome of the action. A long output is stored whole, and the model gets what the tool shows of it.

    The stored and the shown text contain no live secret: the outcome is masked before it is shortened.
    """
    outcome = ctx.redactor.mask(outcome)
    stored: list[str] = []

    def keep(stdout: bytes, stderr: bytes) -> str:
        stored.append(ctx.outputs.keep(stdout, stderr))
        return stored[-1]

    parts = planned.tool.render(planned.action, outcome, ctx.seen, keep=keep)
    content = tuple(
        TextBlock(ctx.redactor.text(part.text))
        if isinstance(part, TextPart)
        else ImageBlock(part.media_type, part.data)
        for part in parts
    )
    problem = problem_of(outcome)
    if ctx.flow is not None:
        reached = (each.host for each in outcome.connections if each.allowed and each.host)
        ctx.flow.saw(
            planned.action,
            joined_text(content) if problem is None else "",
            hosts=tuple(dict.fromkeys((*planned.hosts, *reached))),
            usual=planned.usual,
            tiers=planned.tiers,
            credentials=planned.credentials,
            quarantined=planned.tool.name == ExtractTool.name,
        )
    ctx.emit(
        ActionFinished(
            call=planned.call.key,
            status=outcome.status,
            seconds=outcome.seconds,
            ended_by=outcome.ended_by,
            violations=outcome.violations,
            problem=problem,
            text=joined_text(content),
            kept=stored[-1] if stored else None,
            connections=outcome.connections[:MOST_TOLD],
            record=record,
        )
    )
    failed = problem is not None or outcome.ended_by is not None  # a command's own exit status is its answer
    output = len(outcome.stdout) + len(outcome.stderr)
    return CallResult(ToolResult(planned.call.of.id, content, is_error=failed), output=output)


def headed(report: CallResult, notice: str, ctx: RunContext) -> CallResult:
    """Return `report` with `notice` before the text for the model."""
    head = TextBlock(ctx.redactor.text(f"{notice}\n"))
    return replace(report, result=replace(report.result, content=(head, *report.result.content)))


def noted(report: CallResult, note: str, ctx: RunContext) -> CallResult:
    """Return `report` with `note` after the text for the model."""
    if not note:
        return report
    tail = TextBlock(ctx.redactor.text(f"\n{note}"))
    return replace(report, result=replace(report.result, content=(*report.result.content, tail)))


def listener(call: ModelCall, emit: Emit) -> Listener:
    """Return a listener that emits output as text. A character split over two chunks stays one character."""
    decoders = {stream: codecs.getincrementaldecoder("utf-8")("replace") for stream in (1, 2)}

    def listen(stream: int, chunk: bytes) -> None:
        text = decoders[stream].decode(chunk)
        if text:
            emit(CommandOutput(call.key, stream, text))

    return listen
