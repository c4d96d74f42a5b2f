"""The history of a session, read from its file: the conversation to continue, and a summary of it for the user.

The file does not set permissions: the mode is that of the current run. The model of the file is used only if the user
names none.
"""

import gc
import re
from collections.abc import Sequence
from typing import BinaryIO

from policy.model.frozen import dataclass, replace
from policy.model.verdict import Problem
from runner.flow.flow_entry import FlowEntry
from runner.messages import AssistantMessage, Message, TextBlock, ToolCall, ToolResult, Usage, UserMessage, answers
from runner.problems import option
from runner.sessions.entries import VERSION, Answered, CompactionRecord, JournalEntry, Unsound, message_of, parse, usual
from runner.sessions.rewind import RewindPoint, rewind_points, text_of, typed_of
from runner.sessions.store import SessionError
from runner.sessions.tree import Tree
from runner.state.lineage import SessionLineage

_NEEDED = ("session", "run", "message", "grant", "mode", "model", "compaction", "process", "flow")
_UNANSWERED = "unknown: the session ended before the result of this call was recorded; the call may have been executed"
_TITLE = 200  # characters kept of a prompt or an answer that is only shown


@dataclass(frozen=True, slots=True)
class SessionHistory:
    """The current branch of a session. Every call in `history` has its result.

    Attributes:
        session: The id of the session.
        workspace: The workspace of the session.
        forked_from: The id of the original session, or None.
        began: The time of the first line.
        until: The time of the last line.
        history: The conversation.
        grants: The answers remembered for the session.
        mode: The mode of the last process that worked on the session.
        model: The model of that process.
        cwd: The working folder of that process.
        prompts: The number of prompts.
        turns: The number of answers of the model.
        first: The first prompt, shortened.
        last: The last prompt, shortened.
        said: The last text of the model, shortened.
        leaf: The id of the last entry that counts.
        path: The lines from the first entry to the leaf.
        notices: The parts of the file that were left out, in words.
        folds: The compaction records, each with the place that its numbers count back from.
        counted: The last request that the provider counted, or None.
        marks: The prompts that /rewind can return to.
        earlier: The runs whose actions belong to the session.
        processes: The processes that were started, each with its name and its command. None of them still runs.
        flow: The changes of the information flow. Sessions of earlier versions have none.
    """

    session: str
    workspace: str
    forked_from: str | None
    began: str
    until: str
    history: tuple[Message, ...]
    grants: tuple[dict[str, object], ...]
    mode: str
    model: str
    cwd: str
    prompts: int
    turns: int
    first: str
    last: str
    said: str
    leaf: str
    path: Sequence[int]
    notices: tuple[str, ...] = ()
    folds: tuple[tuple[int, CompactionRecord], ...] = ()
    counted: "CountedRequest | None" = None
    marks: tuple[RewindPoint, ...] = ()
    earlier: SessionLineage = SessionLineage()
    processes: tuple[tuple[str, str], ...] = ()
    flow: tuple[FlowEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class CountedRequest:
    """The last token count of the provider: for a request with the first `sent` messages and its `answer`."""

    sent: int
    answer: AssistantMessage
    usage: Usage
    model: str


def index(file: BinaryIO, name: str) -> Tree:
    """Return the tree of a session's file. Raise SessionError if the file is not a session."""
    try:
        return Tree(file)
    except Unsound as error:
        raise no_session(name, str(error)) from None


def last_model(tree: Tree) -> str:
    """Return the last model of the branch that ends at the last line of `tree`; empty if its lines are not valid."""
    model = ""
    for _, _, raw in tree.lines(tree.path(), ("run", "model")):
        try:
            model = str(parse(raw).body["model"])
        except Unsound:  # `history_of` reports this
            return ""
    return model


def history_of(tree: Tree, name: str, *, model: str = "", lenient: bool = False, upto: str = "") -> SessionHistory:
    """Return the history of the branch that ends at the last line of `tree`, or at its entry `upto`.

    `model` is the model of the current run; thoughts of other models are left out. A damaged line on the branch raises
    SessionError. With `lenient`, the branch ends before that line and a notice says so.
    """
    if not (tree.whole_end or lenient):
        first = tree.damages[0]
        why = f"line {first.line} of its file is damaged: {first.why}; the latest messages follow that line"
        raise _stopped(name, why)
    builder = _HistoryBuilder(tree, name, model)
    path = tree.path()
    while upto and path and tree.id(path[-1]) != upto:
        path.pop()
    if not path:
        raise no_session(name, "the entry to continue from is not on a valid branch")
    taken, broken = 0, ""
    collecting = gc.isenabled()
    gc.disable()  # the collector would scan hundreds of thousands of lasting values repeatedly
    try:
        for at, type, raw in tree.lines(path, _NEEDED):
            message = usual(raw) if type == "message" else None
            if message is not None:
                builder.add_message(message, at)
            else:
                builder.take(parse(raw), at)
            taken = at
        builder.close_calls()
    except Unsound as error:
        broken = f"line {tree.line(at)}: {error}"
        if builder.head is None:
            raise no_session(name, broken) from None
        if not lenient:
            raise _stopped(name, broken) from None
        path = path[: path.index(taken) + 1]
        builder.close_calls()
    finally:
        if collecting:
            gc.enable()
    # Lines of other types were not read so far, and the last line may be one of them.
    while True:
        try:
            _, last = next(tree.entries(path[-1:]))
            break
        except Unsound as error:
            if not lenient:
                raise _stopped(name, str(error)) from None
            broken, path = broken or str(error), path[:-1]
    steps = [(at, step) for at, step in steps_of(tree) if not upto or at < path[-1]]
    return builder.history(path, broken, last, steps)


def _counted(tree: Tree, path: Sequence[int], history: Sequence[Message]) -> CountedRequest | None:
    """Return the last request that the provider counted, or None if the file has no count for the last answer."""
    types = [tree.type(at) for at in path]
    try:
        place = len(types) - 1 - types[::-1].index("usage")
        ways = [path[place], path[place + 1 :][types[place + 1 :].index("message")]]
        (_, usage), (_, answer) = tree.entries(ways)
        message = message_of(answer.body)
    except (ValueError, Unsound):  # the count is optional
        return None
    last = next((at for at in range(len(history) - 1, -1, -1) if isinstance(history[at], AssistantMessage)), None)
    if last is None or not isinstance(message, AssistantMessage) or history[last] != message:
        return None
    counts = {name: int(str(usage.body[name])) for name in Usage.__slots__}
    return CountedRequest(last, message, Usage(**counts), str(usage.body["model"]))


class _HistoryBuilder:
    """A builder of the history from the entries of a branch, one by one."""

    def __init__(self, tree: Tree, name: str, model: str) -> None:
        self._tree = tree
        self._name = name
        self._now = model
        self.head: JournalEntry | None = None
        self._messages: list[Message] = []
        self._open: tuple[ToolCall, ...] = ()  # the calls of the last message, until all are answered
        self._results: dict[int, ToolResult] = {}
        self._folds: list[tuple[int, CompactionRecord]] = []
        self._processes: list[tuple[str, str]] = []
        self._grants: list[dict[str, object]] = []
        self._flow: list[FlowEntry] = []
        self._mode = self._model = self._cwd = ""
        self._count = self._turns = 0
        self._said: AssistantMessage | None = None
        self._prompts: list[tuple[int, int]] = []  # lines of the user's messages, each with its place in the history

    def take(self, entry: JournalEntry, at: int) -> None:
        """Add an entry. Raise Unsound, without a change, if the entry does not follow from those before it."""
        body = entry.body
        match entry.type:
            case "message":
                self.add_message(message_of(body), at)
            case "session":
                version = body["version"]
                if version != VERSION:
                    raise Unsound(f"its format is {version}, and this version reads {VERSION}")
                self.head = entry
            case "run":
                self._mode, self._model, self._cwd = str(body["mode"]), str(body["model"]), str(body["cwd"])
            case "mode":
                self._mode = str(body["mode"])
            case "model":
                self._model = str(body["model"])
            case "grant" if isinstance(body["grant"], dict):
                self._grants.append(body["grant"])
            case "process":
                self._processes.append((str(body["process"]), str(body["command"])))
            case "flow":
                self._flow.append(FlowEntry(*(str(body[name]) for name in ("kind", "text", "at", "sha256"))))
            case "compaction":
                self.close_calls()
                counts = {name: body[name] for name in CompactionRecord.__slots__}
                self._folds.append((len(self._messages), CompactionRecord(**counts)))  # type: ignore[arg-type]  # `KINDS` checked
            case _:
                raise Unsound("an entry of this type is not allowed at this place")

    def add_message(self, message: UserMessage | AssistantMessage | Answered, at: int) -> None:
        """Add a message. `at` is its line. Raise Unsound for a result that belongs to no call."""
        if isinstance(message, Answered):
            place, result = message.place, message.result
            calls = self._open
            if place >= len(calls) or calls[place].id != result.call_id or place in self._results:
                raise Unsound("it is the result of a call that does not exist")
            self._results[place] = result
            return
        self.close_calls()
        if isinstance(message, UserMessage):
            self._count += 1
            if message.content:
                self._prompts.append((at, len(self._messages)))
        else:
            self._turns += 1
            if any(isinstance(block, TextBlock) for block in message.content):
                self._said = message
            if self._model != self._now and self._now:
                # Only the provider that signed a thought accepts the signature.
                message = replace(message, content=message.spoken)
            self._open = message.calls
        if message.content:
            self._messages.append(message)

    def close_calls(self) -> None:
        """Complete the open calls, so that each has a result."""
        if self._open:
            self._messages.append(answers(self._open, self._results, _UNANSWERED))
            self._open, self._results = (), {}

    def history(
        self, path: Sequence[int], broken: str, last_entry: JournalEntry, steps: Sequence[tuple[int, int]]
    ) -> SessionHistory:
        """Return the history. `steps` are the lines that name a step of /undo, each with that step."""
        assert self.head is not None  # a file without a first line is not a Tree
        tree, body, messages = self._tree, self.head.body, tuple(self._messages)
        origin = body["forked_from"]
        first, last = (
            "".join(cut(typed_of(tree, path, at, messages[place])) for at, place in prompts)
            for prompts in (self._prompts[:1], self._prompts[-1:])
        )
        return SessionHistory(
            session=self._name,
            workspace=str(body["workspace"]),
            forked_from=str(origin["session"]) if isinstance(origin, dict) else None,
            began=self.head.time,
            until=last_entry.time,
            history=messages,
            grants=tuple(self._grants),
            mode=self._mode,
            model=self._model,
            cwd=self._cwd,
            prompts=self._count,
            turns=self._turns,
            first=first,
            last=last,
            said=cut(text_of(self._said)) if self._said is not None else "",
            leaf=last_entry.id,
            path=path,
            notices=tuple(_notices(tree, broken)),
            folds=tuple(self._folds),
            counted=_counted(tree, path, messages),
            marks=tuple(rewind_points(tree, path, self._prompts, messages, steps)),
            earlier=earlier_of(tree, steps, str(body["session"])),
            processes=tuple(self._processes),
            flow=tuple(self._flow),
        )


def cut(text: str) -> str:
    """Return a prompt or an answer on one line, shortened for a list."""
    return re.sub(r"\s+", " ", text[: _TITLE * 4]).strip()[:_TITLE]


def _notices(tree: Tree, broken: str) -> list[str]:
    """Return the parts of the file that were left out, in words."""
    notices = []
    if tree.torn:
        notices.append("the last line of the session is incomplete and is ignored")
    if tree.damages:
        lines = "; ".join(f"line {each.line}: {each.why}" for each in tree.damages[:3])
        more = f", and {tree.damaged + tree.orphans - 1} more" if tree.damaged + tree.orphans > 1 else ""
        notices.append(f"a damaged line of the session is ignored{more}, with the entries that follow it ({lines})")
    if broken:
        notices.append(f"the session is read up to a line that is not valid ({broken})")
    return notices


def no_session(name: str, why: str) -> SessionError:
    """Return the error for a file that contains no readable session."""
    fix = f"remove it with `agent sessions rm {name[:8]}`, or correct the file"
    return SessionError(Problem(f"the session {name[:8]} cannot be read", why, fix))


def _stopped(name: str, why: str) -> SessionError:
    copy = option("--fork", name[:8], command="agent")
    fix = f"correct that line, or continue from before it in a new session: `{copy}`"
    return SessionError(Problem(f"the session {name[:8]} cannot be continued", why, fix))


_SNAPSHOT = re.compile(rb'"snapshot":"([0-9]{1,15})"')


def steps_of(tree: Tree) -> list[tuple[int, int]]:
    """Return the lines of all branches that name a step of /undo, each with that step, in the order of time."""
    lines = tree.lines(range(len(tree)), ("snapshot",))
    return [(at, int(named[1])) for at, _, raw in lines if (named := _SNAPSHOT.search(raw))]


def earlier_of(tree: Tree, steps: Sequence[tuple[int, int]], name: str) -> SessionLineage:
    """Return the runs of all branches, because the user may have rewound to a point before a run began.

    The first own run has the `name` of the session. Runs before it are copied from another session.
    """
    runs, copied, first = set[str](), set[str](), len(tree)
    for at, _, raw in tree.lines(range(len(tree)), ("run",)):
        try:
            run = str(parse(raw).body["audit"])
        except Unsound:
            continue  # an invalid line; on the current branch, `history_of` reported it
        if run == name or runs:
            runs.add(run)
            first = min(first, at)
        else:
            copied.add(run)
    until = max((step for at, step in steps if at < first), default=0)
    return SessionLineage(frozenset(runs), max((step for _, step in steps), default=0), frozenset(copied), until)
