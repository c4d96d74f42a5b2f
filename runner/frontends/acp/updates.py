"""The updates of the protocol (`session/update`) for the events of a session.

All texts of events are masked already. Texts that a model or a command wrote are shown as code or as inert Markdown.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from acp import schema

from policy.model.action import (
    Action,
    CallServerTool,
    EditFile,
    EditNotebook,
    FetchAddress,
    GlobFiles,
    GrepFiles,
    ListFolder,
    LoadSkill,
    QueryCode,
    ReadFile,
    ReadProcess,
    ReadServerResource,
    RunArgv,
    RunScript,
    SearchNotes,
    SearchTools,
    SearchWeb,
    WriteFile,
)
from policy.model.profile import MAIN
from policy.model.tier import Ruling
from runner import events
from runner.approval.approver import Question
from runner.engine.authorize import text_before
from runner.frontends.acp.markdown import InertMarkdown, code, fenced, inert
from runner.gate.wording import action_words
from runner.tasks.task_list import TaskList, TaskState
from runner.text.sanitize import one_line, visible, visible_prose

Update = schema.BaseModel
ToolContent = schema.ContentToolCallContent | schema.FileEditToolCallContent | schema.TerminalToolCallContent

_LONGEST_TITLE = 200  # characters
_LONGEST_OUTPUT = 20_000  # characters of the output of a call
_LONGEST_LIVE = 4_000  # characters of the output of a running command
_LONGEST_DIFF = 200_000  # characters of each side of a diff
_PAUSE = 0.25  # seconds between two updates about the output of a running command
_MOST_CALLS = 2_000  # calls whose state is kept

_KINDS: tuple[tuple[tuple[type[Action], ...], schema.ToolKind], ...] = (
    ((ReadFile, ReadProcess, ReadServerResource, LoadSkill), "read"),
    ((WriteFile, EditFile), "edit"),
    ((ListFolder, GlobFiles, GrepFiles, SearchTools, QueryCode, SearchNotes), "search"),
    ((FetchAddress, SearchWeb), "fetch"),
    ((CallServerTool,), "other"),
    ((RunScript, RunArgv), "execute"),
)
# By the name of the tool, for calls of earlier runs.
KINDS_OF_TOOLS: dict[str, schema.ToolKind] = {
    "read": "read", "skill": "read", "write": "edit", "edit": "edit", "notebook_edit": "edit", "ls": "search",
    "glob": "search", "grep": "search", "lsp": "search", "web_fetch": "fetch", "web_search": "fetch",
    "bash": "execute",
}  # fmt: skip
_STATES: dict[TaskState, schema.PlanEntryStatus] = {
    TaskState.PENDING: "pending",
    TaskState.IN_PROGRESS: "in_progress",
    TaskState.COMPLETED: "completed",
}


def kind_of(action: Action | None) -> schema.ToolKind:
    """Return the kind of an action in the words of the protocol."""
    return next((kind for types, kind in _KINDS if isinstance(action, types)), "other")


def text(words: str) -> schema.TextContentBlock:
    """Return a block of text."""
    return schema.TextContentBlock(type="text", text=words)


def shown(words: str) -> schema.ContentToolCallContent:
    """Return a text as the content of a call."""
    return schema.ContentToolCallContent(type="content", content=text(words))


def said(words: str, message: str, *, thought: bool = False) -> Update:
    """Return the update for a piece of the message with the id `message`."""
    if thought:
        return schema.AgentThoughtChunk(session_update="agent_thought_chunk", content=text(words), message_id=message)
    return schema.AgentMessageChunk(session_update="agent_message_chunk", content=text(words), message_id=message)


def heard(words: str, message: str) -> Update:
    """Return the update for a prompt of the user."""
    return schema.UserMessageChunk(session_update="user_message_chunk", content=text(words), message_id=message)


def clipped(words: str, most: int = _LONGEST_OUTPUT) -> str:
    """Return a text with its middle left out if it is too long."""
    if len(words) <= most:
        return words
    half = most // 2
    return f"{words[:half]}\n[{len(words) - 2 * half} characters are not shown]\n{words[-half:]}"


def plan_of(tasks: TaskList) -> Update:
    """Return the update with the whole task list."""
    tasks_shown = [task for task in tasks.tasks.values() if task.state is not TaskState.DELETED]
    entries = [
        schema.PlanEntry(
            content=inert(visible(each.subject, lines=False)), priority="medium", status=_STATES[each.state]
        )
        for each in tasks_shown
    ]
    return schema.AgentPlanUpdate(session_update="plan", entries=entries)


def locations_of(action: Action | None) -> list[schema.ToolCallLocation] | None:
    """Return the file that an action is about."""
    if not isinstance(action, ReadFile | WriteFile | EditFile | ListFolder):
        return None
    line = action.offset if isinstance(action, ReadFile) and action.offset > 1 else None
    return [schema.ToolCallLocation(path=action.path, line=line)]


def title_of(action: Action | None, tool: str, workspace: str) -> str:
    """Return one line about a call. Editors show it as Markdown."""
    words = action_words(action, workspace) if action is not None else tool
    return code(one_line(words, _LONGEST_TITLE) or one_line(tool, _LONGEST_TITLE) or "call")


class ShownCall:
    """The state of one call for the editor."""

    def __init__(self, id: str, action: Action | None, title: str) -> None:
        self.id = id
        self.action = action
        self.title = title
        self.diff: schema.FileEditToolCallContent | None = None
        self.output = ""
        self.timer: asyncio.TimerHandle | None = None

    def update(self, **fields: Any) -> Update:
        """Return an update of this call."""
        return schema.ToolCallProgress(session_update="tool_call_update", tool_call_id=self.id, **fields)

    @property
    def content(self) -> list[ToolContent]:
        """Return the diff of the call, if there is one."""
        return [self.diff] if self.diff is not None else []


class SessionUpdates:
    """The updates of one session. `post` sends one at once, and `mask` hides secrets in texts of files."""

    def __init__(self, post: Callable[[Update], None], mask: Callable[[str], str]) -> None:
        self._post = post
        self._mask = mask
        self.workspace = ""
        self._runs = 0
        self._messages = 0
        self._calls: dict[str, ShownCall] = {}
        self._streams: dict[bool, InertMarkdown] = {False: InertMarkdown(), True: InertMarkdown()}
        self._written: bool | None = None  # the kind of the piece that came last: a thought, a text, or neither

    def call_id(self, call: str, agent: str = MAIN) -> str:
        """Return the id of a call for the editor. The keys of calls are unique within one run of one agent only."""
        return ".".join((f"r{self._runs}", *((agent,) if agent != MAIN else ()), call))

    def call(self, id: str) -> ShownCall | None:
        """Return the state of a call that was shown."""
        return self._calls.get(id)

    def begin_run(self) -> None:
        """Note that calls from now on belong to a new run."""
        self._runs += 1
        self._calls.clear()

    def note(self, words: str) -> None:
        """Show a message of the program itself, apart from the text of the model."""
        self._end_piece()
        lines = "\n".join(f"> {line}".rstrip() for line in inert(words).split("\n"))
        self._post(said(f"{lines}\n\n", self._next_message()))

    def answer(self, words: str) -> None:
        """Show Markdown as a message of its own."""
        self._end_piece()
        self._post(said(f"{inert(words)}\n", self._next_message()))

    def card(self, words: str) -> None:
        """Show the card of a question as a message of its own."""
        self._end_piece()
        self._post(said(f"\n\n{fenced(words)}\n\n", self._next_message()))

    def tell(self, event: events.Event) -> None:
        """Send the updates for an event."""
        if isinstance(event, events.ModelText | events.ModelThinking):
            if event.agent == MAIN:
                self._piece(event.text, thought=isinstance(event, events.ModelThinking))
            return
        if not isinstance(event, events.ContextUsed):
            self._end_piece()
        if isinstance(event, events.CommandOutput):
            self._output(event)
            return
        for update in self._updates(event):
            self._post(update)

    def _updates(self, event: events.Event) -> Iterator[Update]:
        match event:
            case events.ToolProposed():
                yield from self._proposed(event)
            case events.VerdictReached(verdict=ruling) if (call := self._found(event)) is not None:
                if ruling is not Ruling.DENY:
                    call.diff = self._diff(call.action)
                if ruling is Ruling.ALLOW:
                    yield call.update(status="in_progress", content=call.content or None)
            case events.QuestionAnswered(yes=True) if (call := self._found(event)) is not None:
                yield call.update(status="in_progress")
            case events.ActionFinished() if (call := self._found(event)) is not None:
                yield self._finished(event, call)
            case events.Denied(problem=problem) if (call := self._found(event)) is not None:
                yield self._failed(call, f"not allowed: {problem.what}: {problem.why}")
            case events.MalformedCall(problem=problem) if (call := self._found(event)) is not None:
                yield self._failed(call, f"not run: {problem.what}: {problem.why}")
            case events.ContextUsed(tokens=used, window=size) if event.agent == MAIN and size:
                # The cost is left out: the protocol needs a currency, and prices of the configuration name none.
                yield schema.UsageUpdate(session_update="usage_update", used=used, size=size)
            case _:
                return

    def _proposed(self, event: events.ToolProposed) -> Iterator[Update]:
        id = self.call_id(event.call, event.agent)
        title = title_of(event.action, event.tool, self.workspace)
        title = title if event.agent == MAIN else f"[{one_line(event.agent, 40)}] {title}"
        before = self._calls.get(id)
        if before is None and len(self._calls) >= _MOST_CALLS:
            return
        call = self._calls[id] = ShownCall(id, event.action, title)
        kind, places = kind_of(event.action), locations_of(event.action)
        if before is not None:  # the user or a hook replaced the command
            yield call.update(title=title, kind=kind, locations=places, status="pending")
            return
        yield schema.ToolCallStart(
            session_update="tool_call",
            tool_call_id=id,
            title=title,
            kind=kind,
            status="pending",
            locations=places,
            raw_input={"tool": one_line(event.tool, _LONGEST_TITLE)},
        )

    def asked(self, question: Question, mask: Callable[[str], str]) -> ShownCall:
        """Return the call that a question is about, and show it if it was not shown yet."""
        id = self.call_id(question.call or question.id, question.card.agent)
        call = self._calls.get(id)
        if call is None:
            action = question.ask.assessment.action
            call = ShownCall(id, None, mask(title_of(action, "", self.workspace)))
            if len(self._calls) < _MOST_CALLS:
                self._calls[id] = call
            kind = kind_of(action)
            self._post(
                schema.ToolCallStart(
                    session_update="tool_call", tool_call_id=id, title=call.title, kind=kind, status="pending"
                )
            )
        return call

    def _found(self, event: Any) -> ShownCall | None:
        return self._calls.get(self.call_id(event.call, event.agent))

    def _diff(self, action: Action | None) -> schema.FileEditToolCallContent | None:
        """Return the change that an action makes to a file; None if its texts are too long or not known."""
        if not isinstance(action, WriteFile | EditFile) or isinstance(action, EditNotebook):
            return None
        before = text_before(action)
        before = self._mask(before) if before is not None else None
        if isinstance(action, WriteFile):
            old, new = before, action.content
        elif before is not None and action.old and action.old in before:
            old, new = before, before.replace(action.old, action.new, -1 if action.replace_all else 1)
        else:
            old, new = action.old, action.new
        if max(len(old or ""), len(new)) > _LONGEST_DIFF:
            return None
        return schema.FileEditToolCallContent(type="diff", path=action.path, old_text=old, new_text=new)

    def _finished(self, event: events.ActionFinished, call: ShownCall) -> Update:
        self._stop_timer(call)
        failed = event.problem is not None or event.status != 0 or event.ended_by is not None
        words = clipped(visible(event.text))
        content = [*call.content, *([shown(fenced(words))] if words.strip() and not call.content else [])]
        if failed and call.content and words.strip():
            content.append(shown(fenced(words)))
        raw = {
            "status": event.status,
            "seconds": round(event.seconds, 3),
            "endedBy": event.ended_by,
            "output": words,
            "record": event.record,
        }
        return call.update(status="failed" if failed else "completed", content=content, raw_output=raw)

    def _failed(self, call: ShownCall, words: str) -> Update:
        self._stop_timer(call)
        return call.update(status="failed", content=[*call.content, shown(inert(visible(words)))])

    # ---- the output of running commands

    def _output(self, event: events.CommandOutput) -> None:
        call = self._found(event)
        if call is None:
            return
        call.output = (call.output + event.text)[-_LONGEST_LIVE:]
        if call.timer is None:
            call.timer = asyncio.get_running_loop().call_later(_PAUSE, self._send_output, call)

    def _send_output(self, call: ShownCall) -> None:
        call.timer = None
        self._post(call.update(content=[*call.content, shown(fenced(visible(call.output)))]))

    @staticmethod
    def _stop_timer(call: ShownCall) -> None:
        if call.timer is not None:
            call.timer.cancel()
            call.timer = None

    def end_run(self) -> None:
        """End the pieces of text and the updates of commands that were stopped."""
        self._end_piece()
        for call in self._calls.values():
            self._stop_timer(call)

    # ---- the text of the model

    def _piece(self, words: str, *, thought: bool) -> None:
        if self._written is not thought:
            self._end_piece()
            self._messages += 1
            self._written = thought
        if words := self._streams[thought].feed(words):
            self._post(said(visible_prose(words), f"m{self._messages}", thought=thought))

    def _end_piece(self) -> None:
        written, self._written = self._written, None
        if written is not None and (words := self._streams[written].end()):
            self._post(said(visible_prose(words), f"m{self._messages}", thought=written))

    def _next_message(self) -> str:
        self._messages += 1
        return f"m{self._messages}"


def dumped(update: Sequence[Update] | Update) -> Any:
    """Return the JSON form of a value of the protocol."""
    if isinstance(update, schema.BaseModel):
        return update.model_dump(mode="json", by_alias=True, exclude_none=True)
    return [each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in update]
