"""The journal of a session, written while the session is in progress. Every part of the runner may add entries.

Nothing is written before the first message, so a session without a message leaves no file. From then on each entry is
one `write` of one line. Messages, results, grants and snapshots wait for `fdatasync` before anything else is done. The
other entries (verdicts, which the audit log holds durably, usage, notices, ends) are written at once and reach the disk
with the next durable entry.
"""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from policy.model.profile import MAIN
from policy.model.tier import Mode
from policy.model.verdict import Problem
from runner.audit.chain import now
from runner.events import Emit, ErrorRaised, Event, Notice, ProcessStarted, RunEnded
from runner.messages import AssistantMessage, ToolResult, Usage, UserMessage
from runner.providers.catalog import Price, cost
from runner.secrets.redactor import Redactor
from runner.sessions.entries import CompactionRecord, EntryBody, JournalEntry, line, of_message, of_result
from runner.sessions.store import JournalError, SessionError, SessionFile, SessionStore, written_problem

_DURABLE = ("session", "message", "grant", "snapshot")


T = TypeVar("T")


class SessionLines:
    """The lines of a session's file, which is created with the first line. `file` is None until then."""

    def __init__(
        self, store: SessionStore, id: str, file: SessionFile | None, prepare: Callable[[SessionFile], None] | None
    ) -> None:
        self.id = id
        self.path = store.path(id)
        self.store = store
        self.file = file
        self._prepare = prepare

    def append(self, line: bytes, *, durable: bool) -> None:
        """Append one line. Raise OSError or SessionError."""
        file = self.file or self.store.create(self.id)
        if self._prepare is not None:
            try:
                self._prepare(file)
            except BaseException:
                if self.file is None:  # an incomplete copy is not a session
                    file.close()
                    self.store.unlink(self.id)
                raise
        self.file, self._prepare = file, None
        file.append(line, durable=durable)

    def close(self) -> None:
        if self.file is not None:
            if not self.file.size:  # no line could be written
                with contextlib.suppress(OSError):
                    self.store.unlink(self.id)
            self.file.close()


class Journal:
    """The entries of one session, in order, each the child of the one before. Without `lines` nothing is written.

    Attributes:
        leaf: The id of the parent of the next entry, or None.
    """

    def __init__(
        self,
        lines: SessionLines | None = None,
        redactor: Redactor | None = None,
        *,
        leaf: str | None = None,
        number: int = 0,
        model: str = "",
        prices: Mapping[str, Price] | None = None,
    ) -> None:
        """`leaf` is the parent of the first entry, `number` the highest id in use."""
        self._lines = lines
        self._redactor = redactor
        self.leaf = leaf
        self._number = number
        self._model = model
        self._run: EntryBody = {}
        self._prices = prices or {}
        self._owed: list[tuple[bytes, bool]] = []
        self._begun = False
        self._early: list[EntryBody] | None = None  # decisions about calls whose message is not written yet

    @property
    def kept(self) -> str | None:
        """Return the id of the session if it has a file, else None."""
        return self._lines.id if self._lines is not None and (self._begun or self._lines.file is not None) else None

    def back_to(self, leaf: str | None) -> None:
        """Continue after the entry `leaf`. Later entries stay in the file as an abandoned branch.

        The entry about the current process is written again at once, because the earlier one may be on the abandoned
        branch.
        """
        self.leaf = leaf
        self._begun = self._lines is not None
        self.run(self._run)

    def message(self, message: UserMessage | AssistantMessage, *, typed: str = "") -> None:
        """Add a message. It is durable when this returns. Raise JournalError; the caller must then stop.

        `typed` is the text as the user typed it, if that differs from the message.
        """
        if isinstance(message, UserMessage):
            self._begun = self._lines is not None
        if self._lines is not None:
            # Masked as a message, because opaque parts must return to the provider unchanged.
            self._put("message", of_message(self._masked(message)))
        if typed:
            self._add("typed", {"text": typed})
        early, self._early = self._early or [], None
        for verdict in early:
            self._add("call", verdict)
        self._write_pending()
        if isinstance(message, UserMessage) and self._lines is not None:
            try:
                self._lines.store.note_latest(self._lines.id)
            except (OSError, SessionError) as error:
                raise self._failed(error) from None

    def result(self, place: int, result: ToolResult) -> None:
        """Add the result of one call of the last message. It is durable when this returns. Raise JournalError."""
        self._add("message", of_result(place, result))
        self._write_pending()

    def call(self, verdict: EntryBody) -> None:
        """Add the decision about a call, with the fields of `KINDS`, before the call runs. Raise JournalError."""
        if self._early is not None:
            self._early.append(verdict)
            return
        self._add("call", verdict)
        self._write_pending()

    def awaiting(self) -> None:
        """Hold back the decisions about calls of the next message until that message is written."""
        self._early = self._early if self._early is not None else []

    def grant(self, grant: Mapping[str, object]) -> None:
        """Add an answer that holds for the rest of this session, also after it is resumed. Raise JournalError."""
        self._add("grant", {"grant": dict(grant)})
        self._write_pending()

    def snapshot(self, snapshot: str, call: str) -> None:
        """Add the name of the snapshot taken before `call`. Raise JournalError."""
        self._add("snapshot", {"snapshot": snapshot, "call": call})
        self._write_pending()

    def usage(self, usage: Usage, *, model: str = "", price: Price | None = None) -> None:
        """Add the tokens of one reply as the provider counts them, and their cost if a price is known.

        `model` and `price` describe another model that answered a side request.
        """
        if usage == Usage():
            return  # the provider reports no usage
        spent = cost(usage, price if model else self._prices.get(self._model))
        counts = {name: getattr(usage, name) for name in Usage.__slots__}
        self._put_lenient("usage", {"model": model or self._model, **counts, "cost": spent})

    def compaction(self, level: str, before: int, after: int, fold: CompactionRecord) -> None:
        """Add a compaction. `fold` counts back from the last message. The messages stay in the file."""
        counts = {name: getattr(fold, name) for name in CompactionRecord.__slots__}
        self._put_lenient("compaction", {"level": level, "before": before, "after": after, **counts})

    def mode(self, mode: Mode) -> None:
        """Record that the user changed the mode. A file never sets the mode."""
        self._run = {**self._run, "mode": mode.value}
        self._put_lenient("mode", {"mode": mode.value})

    def model(self, model: str, price: Price | None) -> None:
        """Record that the user changed the model. `price` is the price of the new model, or None if unknown."""
        self._model = model
        self._run = {**self._run, "model": model}
        self._prices = {**self._prices, **({model: price} if price is not None else {})}
        self._put_lenient("model", {"model": model})

    def flow(self, kind: str, text: str, at: str, sha256: str) -> None:
        """Record a change of the information flow: the fields of `FlowEntry`."""
        self._put_lenient("flow", {"kind": kind, "text": text, "at": at, "sha256": sha256})

    def head(self, body: EntryBody) -> None:
        """Add the first entry of a session."""
        self._put_lenient("session", body)

    def run(self, body: EntryBody) -> None:
        """Add the start of a process that works on this session."""
        self._run = body
        self._put_lenient("run", body)

    def watch(self, emit: Emit) -> Emit:
        """Return an emitter that also records notices, failures, started processes and ends, and then calls `emit`."""
        if self._lines is None:
            return emit

        def both(event: Event) -> None:
            if event.agent != MAIN:  # a sub-agent has a file of its own
                emit(event)
                return
            match event:
                case Notice(text):
                    self._put_lenient("notice", {"text": text})
                case ErrorRaised(problem):
                    self._put_lenient("notice", {"text": str(problem)})
                case ProcessStarted():
                    body: EntryBody = {"process": event.process, "command": event.command, "agent": event.agent}
                    self._put_lenient("process", body)
                case RunEnded():
                    self._put_lenient("end", {"exit": event.exit, "reason": event.reason, "turns": event.turns})
            emit(event)

        return both

    def close(self) -> Problem | None:
        """Write the pending lines and release the file. Return a Problem if the last lines could not be written."""
        if self._lines is None:
            return None
        try:
            if self._begun and self._owed:
                self._write_pending()
        except JournalError as error:
            return replace(error.problem, what="the last lines of the session could not be written")
        finally:
            self._lines.close()
        return None

    def _add(self, type: str, body: EntryBody) -> None:
        if self._lines is not None:
            self._put(type, self._masked(body))

    def _masked(self, value: T) -> T:
        return self._redactor.mask(value) if self._redactor is not None else value

    def _put(self, type: str, masked: EntryBody) -> None:
        self._number += 1
        entry = JournalEntry(str(self._number), self.leaf, now(), type, masked)
        self.leaf = entry.id
        self._owed.append((line(entry), type in _DURABLE))

    def _put_lenient(self, type: str, body: EntryBody) -> None:
        """Add an entry whose failure must not stop the caller: if it cannot be written now, the next message reports
        that.
        """
        self._add(type, body)
        try:
            self._write_pending()
        except JournalError:
            return  # the entry stays pending: the next added message or `close` reports the failure

    def _write_pending(self) -> None:
        """Write the pending lines, in order. Raise JournalError; the rest stays pending."""
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
