"""The events of a session as values. Front ends render them, and `--json` prints them."""

import dataclasses
import json
from collections.abc import Callable
from typing import ClassVar

from policy.model.action import Action
from policy.model.assessment import RuleRef
from policy.model.frozen import dataclass
from policy.model.profile import MAIN
from policy.model.tier import Mode, Ruling, Tier
from policy.model.verdict import Cell, Problem, Rights
from runner.event_values import Card, PastRow, json_value
from runner.messages import Failure, Usage
from sandbox.backend import Connection, Enforcement, Violation


@dataclass(frozen=True, slots=True)
class _Event:
    """One event.

    Attributes:
        type: the name of the event in the JSON form.
        agent: the agent that the event is about; `main` for the one that the user instructs.
        parent: the agent that started it, or None for `main`.
    """

    type: ClassVar[str]
    agent: str = dataclasses.field(default=MAIN, kw_only=True)
    parent: str | None = dataclasses.field(default=None, kw_only=True)

    def __init_subclass__(cls, type: str = "") -> None:
        if type:  # empty when `dataclass(slots=True)` creates the class a second time
            cls.type = type

    def as_json(self) -> dict[str, object]:
        """Return a JSON-able object: `type` first, then the fields by name."""
        named = {item.name: json_value(getattr(self, item.name)) for item in dataclasses.fields(self)}
        return {"type": self.type, **named}

    def line(self, time: str = "") -> str:
        """Return the JSON form on one line of pure ASCII, for any text (lone surrogates, control characters).

        `time` is the time of the event, in the form of all times in JSON. If it is given, it follows `type`.
        """
        fields = self.as_json()
        if time:
            fields = {"type": fields.pop("type"), "time": time, **fields}
        return json.dumps(fields, ensure_ascii=True, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class SessionStarted(_Event, type="session_started"):
    """A session has started and its sandbox is ready. `enforcement` is the result of the canary. `model_why` says why
    the model is used, if the user did not name it. `tools` are the names of the tools that the model may call now.
    `label` is the label of the texts in the conversation: `workspace`, or `untrusted` for a continued session that has
    read untrusted text. `private` is True if it has read private data.
    """

    session: str
    workspace: str
    cwd: str
    mode: Mode
    model: str
    unattended: bool
    enforcement: Enforcement
    model_why: str = ""
    tools: tuple[str, ...] = ()
    label: str = "workspace"
    private: bool = False


@dataclass(frozen=True, slots=True)
class Resumed(_Event, type="session_resumed"):
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
        recent: The last prompts with their answers and calls, shortened.
    """

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
    recent: tuple[PastRow, ...] = ()


@dataclass(frozen=True, slots=True)
class Prompted(_Event, type="prompted"):
    """A prompt was sent. `text` is sent to the model; `typed` is the typed line if it differs, or empty."""

    text: str
    typed: str = ""


@dataclass(frozen=True, slots=True)
class ModelText(_Event, type="text"):
    """A piece of the model's text; pieces join without separator."""

    text: str


@dataclass(frozen=True, slots=True)
class ModelThinking(_Event, type="thinking"):
    """A piece of the model's reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegun(_Event, type="call_begun"):
    """The model began to write a call of `tool`. The complete call follows as `tool_proposed`."""

    tool: str


@dataclass(frozen=True, slots=True)
class ContextUsed(_Event, type="context"):
    """The fill level of the model's context window, after a reply or a compaction.

    Attributes:
        tokens: The number of tokens in the window.
        window: The size of the window in tokens, or None if it is unknown.
        exact: True if the provider counted the tokens; False for an estimate.
        cost: The cost of the run so far in the currency of the prices, or None if the price is unknown.
    """

    tokens: int
    window: int | None
    exact: bool
    cost: float | None


@dataclass(frozen=True, slots=True)
class Compacted(_Event, type="compacted"):
    """The conversation was compacted for the model; the session file keeps everything.

    Attributes:
        level: The level: trim, one-line, summary, recent, truncate or asked.
        before: The number of tokens before.
        after: The number of tokens after.
        summary: The summary that replaces old turns, or None.
    """

    level: str
    before: int
    after: int
    summary: str | None


@dataclass(frozen=True, slots=True)
class Retrying(_Event, type="retrying"):
    """The provider failed. Attempt number `attempt` of `attempts` follows after `wait` seconds."""

    failure: Failure
    problem: Problem
    wait: float
    attempt: int
    attempts: int


@dataclass(frozen=True, slots=True)
class Queued(_Event, type="queued"):
    """A text of the user was queued until the end of the batch of calls (`kind` is `steer`) or the turn
    (`follow_up`).
    """

    text: str
    kind: str


@dataclass(frozen=True, slots=True)
class Unqueued(_Event, type="queue_returned"):
    """The queued texts were returned to the user and are not sent."""

    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Steered(_Event, type="steered"):
    """A queued text of the user is sent to the model within the turn."""

    text: str


@dataclass(frozen=True, slots=True)
class Changed(_Event, type="changed"):
    """A setting of the session changed, or what is known about its texts. `what` is mode, model, thinking, label
    (`workspace` or `untrusted`) or private (`no` or `yes`). `why` is empty if the user changed it.
    """

    what: str
    was: str
    now: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class PlanProposed(_Event, type="plan_proposed"):
    """The model proposes a plan (Markdown) and requests to leave plan mode."""

    call: str
    plan: str


@dataclass(frozen=True, slots=True)
class ToolProposed(_Event, type="tool_proposed"):
    """The model called a tool. `action` is the planned action, or None if the call is malformed."""

    call: str
    tool: str
    action: Action | None


@dataclass(frozen=True, slots=True)
class VerdictReached(_Event, type="verdict"):
    """The gate reached a verdict: the tiers (highest first), the verdict, and its reason, rule and matrix cell."""

    call: str
    tiers: tuple[Tier, ...]
    verdict: Ruling
    why: str
    rule: RuleRef
    cell: Cell


@dataclass(frozen=True, slots=True)
class QuestionAsked(_Event, type="question_asked"):
    """A question was put to the user.

    Attributes:
        call: The call that the question is about.
        question: The question.
        card: The content that a front end shows, with the possible answers.
        again: The reason why the same call is asked about again, or empty.
        id: The name of the question, unique in this process. The names of calls are not unique across runs.
    """

    call: str
    question: str
    card: Card | None = None
    again: str = ""
    id: str = ""


@dataclass(frozen=True, slots=True)
class PickWanted(_Event, type="pick_wanted"):
    """A `/command` requests a choice from a list. A program answers with `id` and the `value` of a row, or refuses."""

    id: str
    title: str
    rows: tuple[dict[str, str], ...]


@dataclass(frozen=True, slots=True)
class InputWanted(_Event, type="input_wanted"):
    """A tool server or the model requests input, in JSON mode. A program answers with `id` and `yes`, `no` or `cancel`;
    `yes` to a form has `values`.

    `author` is `server` or `model`. `server` is the name of the server, and `message` its text. `fields` are the fields
    of a form, and `url` is the whole address of a page for the user to open; the other one is empty. `host` is the host
    of that address. `warning` names a risk of it. The fields of the model are its questions, with the descriptions of
    their choices as `details`; each can be answered with a choice or with other words, and no answer is a permission.
    """

    id: str
    server: str
    message: str
    fields: tuple[dict[str, object], ...] = ()
    url: str = ""
    host: str = ""
    warning: str = ""
    author: str = "server"


@dataclass(frozen=True, slots=True)
class QuestionAnswered(_Event, type="question_answered"):
    """The user answered a question.

    `feedback` is the user's text with a refusal. `edited` is the command with which the user replaced the proposed one,
    or None; it is judged like any other command. `by` is the client of a hosted session that answered, or empty.
    """

    call: str
    yes: bool
    feedback: str | None
    edited: str | None = None
    by: str = ""


@dataclass(frozen=True, slots=True)
class CommandOutput(_Event, type="output"):
    """A running command wrote output. `stream` is 1 (stdout) or 2 (stderr)."""

    call: str
    stream: int
    text: str


@dataclass(frozen=True, slots=True)
class ActionFinished(_Event, type="finished"):
    """An allowed action ended. `text` is the result for the model; `kept` is the path of the whole output if `text` is
    shortened, or None. `record` is the number of the decision in the audit log."""

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
class ProcessStarted(_Event, type="process_started"):
    """A process of the session has started and stays beside later calls.

    Attributes:
        process: The name of the process in this session: `p1`, `p2` and so on.
        command: The command as the user would type it.
        record: The number of the decision in the audit log.
        terminal: True if the process runs in a terminal.
        rights: The rights of the process.
    """

    process: str
    command: str
    record: int
    terminal: bool
    rights: Rights


@dataclass(frozen=True, slots=True)
class ProcessEnded(_Event, type="process_ended"):
    """A process of the session has ended. `record` is the number of the decision in the audit log.

    Attributes:
        ended_by: None if the process ended by itself, `session` at the end of the session, `cancelled`, or the limit.
    """

    process: str
    status: int
    seconds: float
    ended_by: str | None
    violations: tuple[Violation, ...]
    record: int


@dataclass(frozen=True, slots=True)
class TaskChanged(_Event, type="task_changed"):
    """A task of the session's task list has changed, or is new. Its texts are untrusted.

    Attributes:
        task: The ID of the task, such as `t3`.
        state: `pending`, `in_progress`, `completed` or `deleted`.
        subject: What is to be done, on one line.
        owner: The agent that works on it, or None.
        by: The agent that changed it, or `user`.
        done: The number of completed tasks of the list.
        total: The number of tasks of the list that are not deleted.
        note: Why the program changed the state, or empty.
    """

    task: str
    state: str
    subject: str
    owner: str | None
    by: str
    done: int
    total: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Denied(_Event, type="denied"):
    """Policy or the user refused an action, and nothing was run. `action` is one line about the action, and `record`
    the number of the decision in the audit log. `allowed_in` is the first mode that allows the action without a
    question, and `asked_in` the first mode in which the user is asked; null if no change of the mode would do that."""

    call: str
    action: str
    tier: Tier
    rule: RuleRef
    problem: Problem
    record: int = 0
    allowed_in: Mode | None = None
    asked_in: Mode | None = None


@dataclass(frozen=True, slots=True)
class MalformedCall(_Event, type="malformed_call"):
    """The call could not be planned or cannot work: unknown tool, unfit arguments, missing program. Nothing was run."""

    call: str
    tool: str
    problem: Problem


@dataclass(frozen=True, slots=True)
class Notice(_Event, type="notice"):
    """A message for the user that requires no action."""

    text: str


@dataclass(frozen=True, slots=True)
class Display(_Event, type="shown"):
    """The answer to a `/command`, for the user only: neither for the model nor for the session file. `kind` is text,
    diff, markdown, or draft (a text for the user to change and send)."""

    text: str
    kind: str


@dataclass(frozen=True, slots=True)
class ErrorRaised(_Event, type="error"):
    """The session cannot continue. With `input_line`, only that line of the input of JSON mode was refused, and the
    session continues."""

    problem: Problem
    input_line: int | None = None


@dataclass(frozen=True, slots=True)
class RunEnded(_Event, type="run_ended"):
    """The last event of one prompt.

    Attributes:
        exit: The exit code.
        reason: The reason for the end, in words.
        turns: The number of turns.
        usage: The tokens as the provider counts them.
        denied: Every denied action.
        limit: The limit that ended the run (`ringfence.Limit`), or None.
        cost: The cost, or None if the price is unknown.
        text: The answer of the model: the text of its last message. Empty if the run ended after a call, before the
            model had answered.
        output: The value of the answer, if the session has an output schema and the answer is valid; else None.
    """

    exit: int
    reason: str
    turns: int
    usage: Usage
    denied: tuple[Denied, ...]
    limit: str | None = None
    cost: float | None = None
    text: str = ""
    output: object = None


Event = (
    SessionStarted | Resumed | Prompted | ModelText | ModelThinking | CallBegun | ContextUsed | Compacted | Retrying
    | Queued | Unqueued | Steered | Changed | PlanProposed | ToolProposed | VerdictReached | QuestionAsked
    | PickWanted | InputWanted | QuestionAnswered | CommandOutput | ActionFinished | ProcessStarted | ProcessEnded
    | TaskChanged | Denied | MalformedCall | Notice | Display | ErrorRaised | RunEnded
)  # fmt: skip


def acting(emit: "Emit", agent: str, parent: str | None) -> "Emit":
    """Return an Emit that passes events on to `emit` as events of the sub-agent `agent`, which `parent` started."""

    def named(event: Event) -> None:
        emit(dataclasses.replace(event, agent=agent, parent=parent) if event.agent == MAIN else event)

    return named


# Receives every event in order. It must return quickly, because the loop waits for it.
Emit = Callable[[Event], None]
