"""The journal of a session, written while the session is in progress. Every part of the runner may add entries.

Nothing is written until somebody says something, so a session in which nothing was said leaves no file. From then on
each entry is one `write` of one line. What a person or a model made is on the disk before anything else is done: their
messages, results, grants and snapshots wait for `fdatasync`. The rest (verdicts, which the audit log holds durably,
usage, notices, ends) is written at once and reaches the disk with the next of those.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar

from policy.model.frozen import dataclass
from policy.model.tier import Mode
from policy.model.verdict import Problem
from runner.events import Emit, Event, Failed, Notice, RunEnded
from runner.messages import AssistantMessage, ToolResult, Usage, UserMessage
from runner.providers.pricing import Price, cost
from runner.sessions.compaction_record import CompactionRecord
from runner.sessions.entries import Body, Entry, line, now, of_message, of_result
from runner.sessions.store import JournalError, SessionError, written_problem

_DURABLE = ("session", "message", "grant", "snapshot")


T = TypeVar("T")


class Mask(Protocol):
    """What takes secrets out of a value; `runner.secrets.redactor.Redactor` is one."""

    def mask(self, value: T) -> T: ...


class Lines(Protocol):
    """Where lines go; `runner.sessions.open` has those that are files."""

    @property
    def id(self) -> str:
        """The session's name."""
        ...

    @property
    def path(self) -> Path:
        """For a complaint."""
        ...

    @property
    def there(self) -> bool:
        """Whether the session has a file."""
        ...

    def append(self, line: bytes, *, durable: bool) -> None:
        """Raises OSError, SessionError."""
        ...

    def spoken(self) -> None:
        """A person spoke: this session is the latest of its workspace. Raises OSError, SessionError."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was decided about one call, in words. `record` is its number in the audit log."""

    call: str
    tool: str
    action: str
    tiers: tuple[str, ...]
    verdict: str
    why: str
    rule: str
    cell: str
    record: int
    answer: bool | None = None
    by: str | None = None
    feedback: str | None = None


class Journal:
    """The entries of one session, in order, each the child of the one before. Without `lines` it writes nothing."""

    def __init__(
        self,
        lines: Lines | None = None,
        redactor: Mask | None = None,
        *,
        leaf: str | None = None,
        number: int = 0,
        model: str = "",
        prices: Mapping[str, Price] | None = None,
    ) -> None:
        """`leaf` is the entry that the first one follows, `number` the highest id that is taken."""
        self._lines = lines
        self._redactor = redactor
        self._leaf = leaf
        self._number = number
        self._model = model
        self._run: Body = {}
        self._prices = prices or {}
        self._owed: list[tuple[bytes, bool]] = []
        self._begun = False
        self._early: list[Verdict] | None = None  # of calls whose message is still coming

    @property
    def kept(self) -> str | None:
        """The name of the session, once it has a file."""
        return self._lines.id if self._lines is not None and (self._begun or self._lines.there) else None

    @property
    def leaf(self) -> str | None:
        """The entry that the next one follows."""
        return self._leaf

    def back_to(self, leaf: str | None) -> None:
        """The next entry follows that one: what came after it stays in the file, as a branch that is over. This is
        written down at once, with who works here: what says so may be on that branch."""
        self._leaf = leaf
        self._begun = self._lines is not None
        self.run(self._run)

    def message(self, message: UserMessage | AssistantMessage, *, typed: str = "") -> None:
        """Somebody said something. `typed`: what a person wrote for it, where that is something else. Durable when this
        returns. Raises JournalError: then go no further."""
        if isinstance(message, UserMessage):
            self._begun = self._lines is not None
        if self._lines is not None:
            # As a message, whose opaque parts go back to a provider as they came.
            self._put("message", of_message(self._masked(message)))
        if typed:
            self._add("typed", {"text": typed})
        early, self._early = self._early or [], None
        for verdict in early:
            self._add("call", _body(verdict))
        self._written()
        if isinstance(message, UserMessage) and self._lines is not None:
            try:
                self._lines.spoken()
            except (OSError, SessionError) as error:
                raise self._failed(error) from None

    def result(self, place: int, result: ToolResult) -> None:
        """What came of one call of the last message. Durable when this returns. Raises JournalError."""
        self._add("message", of_result(place, result))
        self._written()

    def call(self, verdict: Verdict) -> None:
        """What was decided about a call, before it runs. Raises JournalError."""
        if self._early is not None:
            self._early.append(verdict)
            return
        self._add("call", _body(verdict))
        self._written()

    def awaiting(self) -> None:
        """Calls of the model's next message are decided already: what comes of that is written behind the message."""
        self._early = self._early if self._early is not None else []

    def grant(self, grant: Mapping[str, object]) -> None:
        """A yes that holds for the rest of this session, also when it is gone on with. Raises JournalError."""
        self._add("grant", {"grant": dict(grant)})
        self._written()

    def snapshot(self, snapshot: str, call: str) -> None:
        """The files as they were before `call` are kept under that name. Raises JournalError."""
        self._add("snapshot", {"snapshot": snapshot, "call": call})
        self._written()

    def usage(self, usage: Usage, *, model: str = "", price: Price | None = None) -> None:
        """What one reply used, as the provider counts it, and its cost where a price is known. `model` and `price`:
        of another model, which was asked aside."""
        if usage == Usage():
            return  # the provider does not say
        spent = cost(usage, price if model else self._prices.get(self._model))
        counts = {name: getattr(usage, name) for name in ("input", "output", "cache_read", "cache_write")}
        self._later("usage", {"model": model or self._model, **counts, "cost": spent})

    def compaction(self, level: str, before: int, after: int, fold: CompactionRecord) -> None:
        """From here on the model is shown less; `fold` counts back from what was said last. All of it stays."""
        counts = {name: getattr(fold, name) for name in CompactionRecord.__slots__}
        self._later("compaction", {"level": level, "before": before, "after": after, **counts})

    def mode(self, mode: Mode) -> None:
        """The mode was changed by the person. A record: no file sets a mode."""
        self._run = {**self._run, "mode": mode.value}
        self._later("mode", {"mode": mode.value})

    def model(self, model: str, price: Price | None) -> None:
        """The person turned to another model, which costs that."""
        self._model = model
        self._run = {**self._run, "model": model}
        self._prices = {**self._prices, **({model: price} if price is not None else {})}
        self._later("model", {"model": model})

    def head(self, body: Body) -> None:
        """The session begins."""
        self._later("session", body)

    def run(self, body: Body) -> None:
        """A process begins to work on this session."""
        self._run = body
        self._later("run", body)

    def watch(self, emit: Emit) -> Emit:
        """`emit`, with notices, failures and ends written down as well."""
        if self._lines is None:
            return emit

        def both(event: Event) -> None:
            match event:
                case Notice(text):
                    self._later("notice", {"text": text})
                case Failed(problem):
                    self._later("notice", {"text": str(problem)})
                case RunEnded():
                    self._later("end", {"exit": event.exit, "reason": event.reason, "turns": event.turns})
                case _:
                    pass
            emit(event)

        return both

    def close(self) -> Problem | None:
        """Write what is still owed, and let the file go. A Problem when the end of the session could not be kept."""
        if self._lines is None:
            return None
        try:
            if self._begun and self._owed:
                self._written()
        except JournalError as error:
            return replace(error.problem, what="the last lines of the session could not be kept")
        finally:
            self._lines.close()
        return None

    def _add(self, type: str, body: Body) -> None:
        if self._lines is not None:
            self._put(type, self._masked(body))

    def _masked(self, value: T) -> T:
        return self._redactor.mask(value) if self._redactor is not None else value

    def _put(self, type: str, masked: Body) -> None:
        self._number += 1
        entry = Entry(str(self._number), self._leaf, now(), type, masked)
        self._leaf = entry.id
        self._owed.append((line(entry), type in _DURABLE))

    def _later(self, type: str, body: Body) -> None:
        """What must not stop anybody: when it cannot be written now, the next message says so."""
        self._add(type, body)
        try:
            self._written()
        except JournalError:
            return  # it stays owed: whoever adds a message next is told, and `close` tells the rest

    def _written(self) -> None:
        """Write what is owed, in order. Raises JournalError; the rest stays owed."""
        if self._lines is None or not self._begun:
            return
        while self._owed:
            owed, durable = self._owed[0]
            try:
                self._lines.append(owed, durable=durable)
            except (OSError, SessionError) as error:
                raise self._failed(error) from None
            del self._owed[0]

    def _failed(self, error: OSError | SessionError) -> JournalError:
        if isinstance(error, SessionError):
            return JournalError(error.problem)
        assert self._lines is not None
        return JournalError(written_problem(error, self._lines.path))


def _body(verdict: Verdict) -> Body:
    body: Body = {name: getattr(verdict, name) for name in Verdict.__slots__}
    return {**body, "tiers": list(verdict.tiers)}
