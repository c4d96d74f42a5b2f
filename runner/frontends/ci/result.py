"""The result of a run: the last line of `agent ci`, for programs."""

import dataclasses
import json

from policy.model.frozen import dataclass
from runner.audit.chain import Record
from runner.audit.decisions import DECISIONS, DecisionTrail
from runner.audit.fields import beginning, items, mapping
from runner.audit.log import AuditLog, Place
from runner.engine.run_limits import PIPELINE, RunLimits
from runner.events import SessionStarted
from runner.frontends.ci.changes import ChangedFile
from runner.messages import Usage

_LONGEST = 2000  # characters of an action; the log has all of it


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """The record of one session: its decisions, oldest first, and the value for `agent audit verify --expect`."""

    deeds: tuple[DecisionTrail, ...] = ()
    head: str | None = None


@dataclass(frozen=True, slots=True)
class DenialRecord:
    """One denial. `mattered` is True if the run did not reach the goal of the denied action in another way."""

    record: int
    tool: str
    tier: str
    rule: str
    action: str
    why: str
    mattered: bool


def read_session_record(log_place: Place, session: str) -> SessionRecord:
    """Return the record of a session near the end of the log. Raise AuditError if the log cannot be read."""
    with AuditLog.open_to_read(log_place) as log:
        head: str | None = None
        found: list[Record] = []
        outcomes: dict[int, Record] = {}
        begun: Record | None = None
        for record in log.rows():
            head = head or f"{record.id}:{record.hash}"
            body = record.body
            if record.kind == "finished":
                outcomes[int(str(body.get("decided", 0)))] = record
            if body.get("session") != session:
                continue
            if record.kind in DECISIONS:
                found.append(record)
            if record.kind == "session":
                begun = record
                break
        deeds = tuple(DecisionTrail(record, begun, outcomes.get(record.id)) for record in reversed(found))
        return SessionRecord(deeds, head)


def refusals(story: SessionRecord, *, done: bool) -> tuple[DenialRecord, ...]:
    """Return every denial by the policy or a user. `done` is True if the model ended the run, and not a limit or error.

    A denial did not matter if the same action was allowed later and succeeded. In a run that is done, it also did not
    matter if a later action with the same tool succeeded at everything that the denied action was for: the same effects
    on the same paths and hosts.
    """
    found = []
    for place, deed in enumerate(story.deeds):
        if deed.record.kind != "decided" or not deed.denied:
            continue
        later = [each for each in story.deeds[place + 1 :] if _succeeded(each)]
        same = any(each.record.body.get("action") == deed.record.body.get("action") for each in later)
        other = done and any(_instead(deed, each) for each in later)
        body = deed.record.body
        found.append(
            DenialRecord(
                deed.record.id,
                str(body.get("tool", "")),
                deed.tier,
                deed.rule,
                deed.action[:_LONGEST],
                deed.why[:_LONGEST],
                not (same or other),
            )
        )
    return tuple(found)


def _succeeded(deed: DecisionTrail) -> bool:
    if deed.record.kind != "decided" or deed.record.body.get("verdict") != "allow" or deed.finished is None:
        return False
    outcome = deed.finished.body
    return outcome.get("status") == 0 and not outcome.get("problem") and not outcome.get("ended_by")


def _instead(refused: DecisionTrail, other: DecisionTrail) -> bool:
    wanted = _aims(refused)
    return refused.record.body.get("tool") == other.record.body.get("tool") and set() < wanted <= _aims(other)


def _aims(deed: DecisionTrail) -> set[tuple[str, str, bool]]:
    """Return the effects of an action with their targets; empty if some of them are unknown."""
    found = set()
    for effect in items(deed.record.body.get("effects")):
        each = mapping(effect)
        if each.get("kind") not in ("reads", "writes", "deletes", "connects"):
            return set()
        found.add((str(each.get("kind")), beginning(each.get("target")), bool(each.get("exact"))))
    return found


@dataclass(frozen=True, slots=True)
class CiResult:
    """The result of a run.

    Attributes:
        exit: The exit code of the program.
        reason: The reason in words.
        limit: The limit that ended the run, or None.
        cost: The cost of the run, or None if the price is unknown.
        patch: The file with the changes, with --review.
        text: The answer of the model: the text of its last message.
        output: The value of the answer, with --output-schema; else None.
    """

    exit: int
    reason: str
    limit: str | None = None
    turns: int = 0
    usage: Usage = Usage()
    cost: float | None = None
    seconds: float = 0.0
    denied: tuple[DenialRecord, ...] = ()
    changed: tuple[ChangedFile, ...] = ()
    session: str | None = None
    head: str | None = None
    patch: str | None = None
    text: str = ""
    output: object = None

    def as_json(self) -> dict[str, object]:
        values = dataclasses.asdict(self)
        values["cost"] = None if self.cost is None else round(self.cost, 6)
        values["seconds"] = round(self.seconds, 3)
        values["head"] = {"head": self.head}
        return {"type": "result"} | {"log" if name == "head" else name: value for name, value in values.items()}

    def line(self) -> str:
        """Return the result as one line of ASCII that contains no command for a job runner."""
        return inert(json.dumps(self.as_json(), ensure_ascii=True, separators=(",", ":")))


def inert(line: str) -> str:
    """Return an equivalent line of JSON without the marks of job commands (`##[`, `##vso[`, `##teamcity[`).

    A line that begins with `{` cannot be a command that must start a line (`::`).
    """
    return line.replace("##", "#\\u0023")


@dataclasses.dataclass(slots=True)
class OutputContent:
    """The content of the output files besides the result, collected during the run.

    Attributes:
        workspace: The path of the workspace.
        mode: The mode.
        model: The model, as `provider:model`.
        bounds: The limits of the run.
        story: The record of the session.
        place: The place of the log, or None if nothing was opened.
        started: The start of the session, or None if there was none.
        notes: Remarks about the patch or the files.
        why: The reason of a run that could not begin.
        patch: The patch, or None if there is none.
    """

    workspace: str
    mode: str
    model: str
    bounds: RunLimits = PIPELINE
    story: SessionRecord = dataclasses.field(default_factory=SessionRecord)
    place: Place | None = None
    started: SessionStarted | None = None
    notes: list[str] = dataclasses.field(default_factory=list)
    why: str = ""
    patch: bytes | None = None
