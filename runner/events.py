"""The events of a session as values. A transcript draws them, `--json` prints them, and tests read them."""

import dataclasses
import json
from collections.abc import Callable
from enum import Enum, IntEnum
from typing import ClassVar

from policy.model.action import Action
from policy.model.assessment import RuleRef
from policy.model.frozen import dataclass
from policy.model.tier import Mode, Ruling, Tier
from policy.model.verdict import Cell, Problem
from runner.messages import Failure, Usage
from sandbox.backend import Connection, Enforcement, Violation


@dataclass(frozen=True, slots=True)
class Mark:
    """Words of a shown command that a reason points at: `command[start:end]`, which is `text`."""

    start: int
    end: int
    tier: Tier
    text: str


@dataclass(frozen=True, slots=True)
class FileChange:
    """The change of one file.

    Attributes:
        path: The path of the file.
        new: True if the file does not exist yet.
        added: The number of added lines.
        removed: The number of removed lines.
        lines: The lines of the diff; each begins with `+`, `-`, a blank or `@@`.
        note: A fact that the user must know and that the lines do not show.
    """

    path: str
    new: bool
    added: int
    removed: int
    lines: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Pick:
    """One answer to a question that can be remembered.

    Attributes:
        keys: The keys that select the answer.
        words: The exact description of what is granted or forbidden.
        where: The scope of the grant.
        not_covered: Two similar actions that the grant does not cover.
        yes: True if the answer also allows this action.
    """

    keys: tuple[str, ...]
    words: str
    where: str
    not_covered: tuple[str, ...]
    yes: bool


@dataclass(frozen=True, slots=True)
class Card:
    """The content of one question.

    Attributes:
        question: The question itself.
        line: One line about the consequence of a yes for the user.
        tier: The tier of the badge.
        tiers: Every tier of the action, the highest first.
        command: The whole action as it would be typed.
        marks: The risky words of the command.
        letters: The letters of the command that look like other letters.
        why: The reason of the question.
        rule: The rule of that reason.
        cell: The cell of the matrix.
        more: The other reasons.
        terms: The exact rights that a yes gives, as label and text.
        caveats: The rights that the action needs and does not get.
        paths: The paths that the command itself names as changed.
        change: The change of a file, or None.
        choices: The answers that can be remembered.
        careful: True if only the letter itself is a yes, and no other key.
        editable: True if the user may change the command.
    """

    question: str
    line: str
    tier: Tier
    tiers: tuple[Tier, ...]
    command: str
    marks: tuple[Mark, ...]
    letters: tuple[str, ...]
    why: str
    rule: str
    cell: str
    more: tuple[str, ...]
    terms: tuple[tuple[str, str], ...]
    caveats: tuple[str, ...]
    paths: tuple[str, ...]
    change: FileChange | None
    choices: tuple[Pick, ...]
    careful: bool
    editable: bool

    def as_json(self) -> dict[str, object]:
        """Return a JSON-able object. Marks whose words were masked since are left out: they would point at other
        words.
        """
        told = self.change
        return {
            "line": self.line,
            "tier": self.tier.label,
            "tiers": [tier.label for tier in self.tiers],
            "command": self.command,
            "marks": [
                {"start": mark.start, "end": mark.end, "tier": mark.tier.label, "text": mark.text}
                for mark in self.marks
                if self.command[mark.start : mark.end] == mark.text
            ],
            "letters": list(self.letters),
            "why": self.why,
            "rule": self.rule,
            "cell": self.cell,
            "more": list(self.more),
            "terms": dict(self.terms),
            "caveats": list(self.caveats),
            "paths": list(self.paths),
            "change": told and {"path": told.path, "new": told.new, "added": told.added, "removed": told.removed,
                                "diff": list(told.lines), "note": told.note},
            "choices": [
                {"keys": list(pick.keys), "answer": "yes" if pick.yes else "no", "grant": pick.words,
                 "where": pick.where, "not_covered": list(pick.not_covered)}
                for pick in self.choices
            ],
            "careful": self.careful,
            "editable": self.editable,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Event:
    """One event. `type` is its name in the JSON form."""

    type: ClassVar[str]

    def as_json(self) -> dict[str, object]:
        """Return a JSON-able object: `type` first, then the fields under their names."""
        named = {item.name: _plain(getattr(self, item.name)) for item in dataclasses.fields(self)}
        return {"type": self.type, **named}

    def line(self) -> str:
        """Return the JSON form on one line of pure ASCII, for any text (lone surrogates, control characters)."""
        return json.dumps(self.as_json(), ensure_ascii=True, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class SessionStarted(_Event):
    """The boundary stands: `enforcement` is what the canary saw."""

    type: ClassVar[str] = "session_started"
    session: str
    workspace: str
    cwd: str
    mode: Mode
    model: str
    unattended: bool
    enforcement: Enforcement


@dataclass(frozen=True, slots=True)
class Resumed(_Event):
    """An earlier session is continued. The event follows `session_started` and precedes every prompt.

    Attributes:
        session: The name of the session.
        forked: True if the continuation is a new session.
        began: The start of the session, in UTC.
        until: The end of the session, in UTC.
        prompts: The number of prompts.
        turns: The number of turns.
        first: The first prompt, shortened.
        last: The last prompt, shortened.
        said: The last answer, shortened.
        changes: The differences between the session and its continuation. Restored grants are reported as notices.
    """

    type: ClassVar[str] = "session_resumed"
    session: str
    forked: bool
    began: str
    until: str
    prompts: int
    turns: int
    first: str
    last: str
    said: str
    changes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Prompted(_Event):
    """A user or a pipeline sent a prompt. `text` goes to the model; `typed` is the typed line if it differs, or
    empty.
    """

    type: ClassVar[str] = "prompted"
    text: str
    typed: str = ""


@dataclass(frozen=True, slots=True)
class ModelText(_Event):
    """A piece of the model's text; pieces join without separator."""

    type: ClassVar[str] = "text"
    text: str


@dataclass(frozen=True, slots=True)
class ModelThinking(_Event):
    """A piece of the model's reasoning."""

    type: ClassVar[str] = "thinking"
    text: str


@dataclass(frozen=True, slots=True)
class CallBegun(_Event):
    """The model began to write a call of `tool`; what it is follows as `tool_proposed`."""

    type: ClassVar[str] = "call_begun"
    tool: str


@dataclass(frozen=True, slots=True)
class ContextUsed(_Event):
    """The fill level of the model's context window, after a reply or a compaction.

    Attributes:
        tokens: The number of tokens in the window.
        window: The size of the window in tokens, or None if it is unknown.
        exact: True if the provider counted the tokens; False for an estimate.
        cost: The cost of the run so far, or None if the price is unknown.
    """

    type: ClassVar[str] = "context"
    tokens: int
    window: int | None
    exact: bool
    cost: float | None


@dataclass(frozen=True, slots=True)
class Compacted(_Event):
    """The model sees less of the conversation from here on; the session file keeps all. `level` is what was done
    (trim, one-line, summary, recent, truncate, asked), `before` and `after` are tokens."""

    type: ClassVar[str] = "compacted"
    level: str
    before: int
    after: int
    summary: str | None


@dataclass(frozen=True, slots=True)
class Retrying(_Event):
    """The provider failed and is asked again after `wait` seconds; `attempt` of `attempts` comes next."""

    type: ClassVar[str] = "retrying"
    failure: Failure
    problem: Problem
    wait: float
    attempt: int
    attempts: int


@dataclass(frozen=True, slots=True)
class Queued(_Event):
    """A text was queued while the model worked. `kind`: `steer` for after the current batch of calls, `follow_up`
    for after the turn.
    """

    type: ClassVar[str] = "queued"
    text: str
    kind: str


@dataclass(frozen=True, slots=True)
class Unqueued(_Event):
    """The queued texts were returned to the user and are not sent."""

    type: ClassVar[str] = "queue_returned"
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Steered(_Event):
    """A text that the user wrote during the turn goes to the model now, within the turn."""

    type: ClassVar[str] = "steered"
    text: str


@dataclass(frozen=True, slots=True)
class Changed(_Event):
    """A setting of the session changed. `what` is mode, model or thinking. `why` is empty if the user changed it."""

    type: ClassVar[str] = "changed"
    what: str
    was: str
    now: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class PlanProposed(_Event):
    """The model ends plan mode's work with this plan (Markdown), and asks to leave the mode."""

    type: ClassVar[str] = "plan_proposed"
    call: str
    plan: str


@dataclass(frozen=True, slots=True)
class ToolProposed(_Event):
    """The model called a tool. `action` is what was planned from it, None when the call made no sense."""

    type: ClassVar[str] = "tool_proposed"
    call: str
    tool: str
    action: Action | None


@dataclass(frozen=True, slots=True)
class VerdictReached(_Event):
    """The gate's answer: the tiers found (worst first), the ruling, and the reason, rule and cell it rests on."""

    type: ClassVar[str] = "verdict"
    call: str
    tiers: tuple[Tier, ...]
    ruling: Ruling
    why: str
    rule: RuleRef
    cell: Cell


@dataclass(frozen=True, slots=True)
class QuestionAsked(_Event):
    """A question was put to the user.

    Attributes:
        call: The call that the question is about.
        question: The question.
        card: The content that a front end shows, with the possible answers.
        again: The reason why the same call is asked about again, or empty.
        id: The name of the question, unique in this process. The names of calls are not unique across runs.
    """

    type: ClassVar[str] = "question_asked"
    call: str
    question: str
    card: Card | None = None
    again: str = ""
    id: str = ""


@dataclass(frozen=True, slots=True)
class PickWanted(_Event):
    """A /command has a list to pick from: a program answers with `id` and the `value` of a row, or says no."""

    type: ClassVar[str] = "pick_wanted"
    id: str
    title: str
    rows: tuple[dict[str, str], ...]


@dataclass(frozen=True, slots=True)
class QuestionAnswered(_Event):
    """The user answered a question.

    `feedback` is the user's text with a no. `edited` is the command that the user put in place of the proposed command;
    it is judged like any other command.
    """

    type: ClassVar[str] = "question_answered"
    call: str
    yes: bool
    feedback: str | None
    edited: str | None = None


@dataclass(frozen=True, slots=True)
class CommandOutput(_Event):
    """Output as it comes. `stream` is 1 (stdout) or 2 (stderr)."""

    type: ClassVar[str] = "output"
    call: str
    stream: int
    text: str


@dataclass(frozen=True, slots=True)
class ActionFinished(_Event):
    """An allowed action ended. `text` is what the model is told; `kept` is where the whole lies when that was cut.
    `record` is the number of its decision in the audit log."""

    type: ClassVar[str] = "finished"
    call: str
    status: int
    seconds: float
    ended_by: str | None
    violations: tuple[Violation, ...]
    problem: Problem | None
    text: str
    kept: str | None
    connections: tuple[Connection, ...] = ()
    record: int = 0


@dataclass(frozen=True, slots=True)
class Denied(_Event):
    """Policy or the user refused an action, and nothing was run. `action` is one line about the action; `record` is
    the number of the decision in the audit log.
    """

    type: ClassVar[str] = "denied"
    call: str
    action: str
    tier: Tier
    rule: RuleRef
    problem: Problem
    record: int = 0


@dataclass(frozen=True, slots=True)
class MalformedCall(_Event):
    """The call could not be planned: unknown tool, or arguments that do not fit. Nothing ran."""

    type: ClassVar[str] = "malformed_call"
    call: str
    tool: str
    problem: Problem


@dataclass(frozen=True, slots=True)
class Notice(_Event):
    """Something the user should know and need not act on."""

    type: ClassVar[str] = "notice"
    text: str


@dataclass(frozen=True, slots=True)
class Display(_Event):
    """The answer to a `/command`, for the user only: neither for the model nor for the session file. `kind` is text,
    diff, markdown, or draft (a text for the user to change and send).
    """

    type: ClassVar[str] = "shown"
    text: str
    kind: str


@dataclass(frozen=True, slots=True)
class ErrorRaised(_Event):
    """The session could not go on. With `input_line`, only that line of JSON mode's input could not be followed,
    and all goes on."""

    type: ClassVar[str] = "error"
    problem: Problem
    input_line: int | None = None


@dataclass(frozen=True, slots=True)
class RunEnded(_Event):
    """The last event of one prompt.

    Attributes:
        exit: The exit code.
        reason: The reason for the end, in words.
        turns: The number of turns.
        usage: The tokens as the provider counts them.
        denied: Every denied action.
        limit: The limit that ended the run (runner.engine.budget.Limit), or None.
        cost: The cost, or None if the price is unknown.
    """

    type: ClassVar[str] = "run_ended"
    exit: int
    reason: str
    turns: int
    usage: Usage
    denied: tuple[Denied, ...]
    limit: str | None = None
    cost: float | None = None


Event = (
    SessionStarted
    | Resumed
    | Prompted
    | ModelText
    | ModelThinking
    | CallBegun
    | ContextUsed
    | Compacted
    | Retrying
    | Queued
    | Unqueued
    | Steered
    | Changed
    | PlanProposed
    | ToolProposed
    | VerdictReached
    | QuestionAsked
    | PickWanted
    | QuestionAnswered
    | CommandOutput
    | ActionFinished
    | Denied
    | MalformedCall
    | Notice
    | Display
    | ErrorRaised
    | RunEnded
)

# Takes every event in the order things happened. Must return soon: the loop waits for it.
Emit = Callable[[Event], None]


def _plain(value: object) -> object:
    """Return a JSON-able form: dataclasses as objects (actions and events with their `type`), tiers and rulings as
    labels.
    """
    if isinstance(value, _Event):
        return value.as_json()
    if isinstance(value, RuleRef):
        return str(value)
    if callable(told := getattr(value, "as_json", None)):  # a card, which events need not know
        return told()
    if isinstance(value, Tier):
        return value.label
    if isinstance(value, IntEnum):
        return value.name.lower()
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {item.name: _plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
        return {"type": value.kind, **fields} if isinstance(value, Action) else fields
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return value
