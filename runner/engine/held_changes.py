"""Changes of files that are trusted later, which a command made after untrusted text was read.

THREAT T267: such a change is taken back as soon as the command has ended, and proposed to the user as a write of the
file: with the difference, once for each content. Without an approval the file keeps its old content.
"""

import os
from collections.abc import Awaitable, Callable, Sequence

from policy.flow.state import FlowMode
from policy.flow.trusted_later import trusted_later, trusted_link
from policy.model.action import RunArgv, RunScript, WriteFile
from policy.model.verdict import Permit, Problem
from runner.changes.undo.recorder import Hold
from runner.engine.judge import evaluate_action
from runner.engine.run_context import RunContext
from runner.engine.tool_calls import CallResult, Judgement, ModelCall, Planned, headed
from runner.events import Notice, ToolProposed
from runner.flow.held_change import HeldChange
from runner.flow.written_files import content_hash
from runner.messages import ToolCall
from runner.text.sanitize import one_line
from tools.tool import find

HELD_CHANGE = "held_change"  # in place of the name of a tool: no model called it
_LONGEST = 300  # characters of a path

Perform = Callable[[Judgement], Awaitable[CallResult]]


def holds_back(permit: Permit, planned: Planned, ctx: RunContext) -> bool:
    """Return True if changes of files that are trusted later are held back."""
    flow = ctx.flow
    if flow is None or not flow.untrusted or flow.copied or planned.call.own:
        return False
    return flow.mode(ctx.live.mode) is FlowMode.GUARD and isinstance(permit.action, RunScript | RunArgv)


def held_in_layer(permit: Permit, planned: Planned, ctx: RunContext, upper: str) -> Callable[[str], str] | None:
    """Return the function that tells as what a file in the workspace is trusted, if its new content, which is in the
    folder `upper`, is held back; None if no change is.
    """
    flow, workspace = ctx.flow, permit.terms.workspace
    if flow is None or not holds_back(permit, planned, ctx):
        return None
    linked = _linked_files(workspace)

    def later(path: str) -> str:
        new = upper + path[len(workspace) :]
        link = os.path.islink(new)
        what = (trusted_link if link else trusted_later)(path, workspace)
        what = what or ("a file behind a link of such a name" if path in linked else "")
        # The content behind a link is not what the user approved.
        approved = what and not link and flow.approved(path, content_hash(new))
        return "" if approved else what

    return later


def held_files(permit: Permit, planned: Planned, ctx: RunContext) -> Hold | None:
    """Return the function that tells which changes of a command are held back, or None if no change is."""
    flow = ctx.flow
    if flow is None or not holds_back(permit, planned, ctx):
        return None
    workspace = permit.terms.workspace
    linked = _linked_files(workspace)

    def hold(path: str) -> bool:
        link = os.path.islink(path)
        later = path in linked or bool((trusted_link if link else trusted_later)(path, workspace))
        return later and (link or not flow.approved(path, content_hash(path)))

    return hold


def _linked_files(workspace: str) -> frozenset[str]:
    """Return the files to which links in the top folder lead whose names are those of trusted files."""
    try:
        links = [entry.path for entry in os.scandir(workspace) if entry.is_symlink()]
    except OSError:
        return frozenset()
    return frozenset(os.path.realpath(link) for link in links if trusted_later(link, workspace))


def note_changes(changed: Sequence[tuple[str, str]], permit: Permit, ctx: RunContext) -> None:
    """Report the trusted files that a command changed, in a session in which nothing is held back."""
    flow = ctx.flow
    if flow is None or not flow.untrusted or flow.mode(ctx.live.mode) is not FlowMode.NOTE:
        return
    for path, how in changed:
        if how != "deleted" and (what := trusted_later(path, permit.terms.workspace)):
            name = one_line(path.removeprefix(permit.terms.workspace + "/"), _LONGEST)
            source = flow.untrusted[-1].said
            ctx.emit(Notice(f"`{name}` ({what}) was changed after untrusted text was read ({source})"))


async def propose_held(
    held: Sequence[HeldChange], report: CallResult, judgement: Judgement, ctx: RunContext, perform: Perform
) -> CallResult:
    """Propose each change to the user, and return `report` with the results for the model.

    `perform` judges, records and runs one write, as it does with each call.
    """
    lines = []
    for number, change in enumerate(held, 1):
        name = one_line(change.path.removeprefix(ctx.look().workspace + "/"), _LONGEST)
        if change.problem:
            ctx.emit(
                Notice(f"`{name}` was changed after untrusted text, and could not be brought back: {change.problem}")
            )
            lines.append(f"`{name}`: its change stays, because it could not be taken back")
            continue
        if change.text is None:
            ctx.emit(Notice(f"the change of `{name}` was taken back: no question can show its new content"))
            lines.append(f"`{name}`: taken back, because no question can show its content")
            continue
        judged = _judged(change.path, change.text, number, judgement, ctx)
        if judged is None:
            lines.append(f"`{name}`: taken back, because this session has no tool `write`")
            continue
        done = await perform(judged)
        lines.append(f"`{name}`: {'refused, so the file has its old content' if done.denied else 'approved'}")
    head = "after untrusted text, changes of files that are trusted later need an approval:"
    return headed(report, "\n".join([head, *lines]), ctx)


def _judged(path: str, text: str, number: int, judgement: Judgement, ctx: RunContext) -> Judgement | None:
    """Return the judgement of the write of a held change, as a call of its own; None without the tool."""
    tool = find(ctx.tools.every, WriteFile.tool)
    if isinstance(tool, Problem):
        return None
    of = judgement.planned.call
    key = f"{of.key}:{number}"
    call = ModelCall(key, ToolCall(of.of.id, HELD_CHANGE, {"path": path, "content": text}))
    action = WriteFile(path, text)
    ctx.emit(ToolProposed(key, call.name, action))
    return Judgement(Planned(call, tool, action), evaluate_action(action, ctx), judgement.model)
