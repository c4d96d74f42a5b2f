"""The tool calls of a Chat Completions stream while they arrive, and when each of them is whole."""

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field

from runner.messages import CallOpened, CallReady, Stop, ToolCall
from runner.providers.failures import Failures
from runner.text.model_text import Closing, parse_call, whole_text


@dataclass(slots=True)
class _Call:
    """A tool call while it arrives."""

    given: str  # its id, which two calls may have
    id: str
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    closing: Closing = field(default_factory=Closing)
    broken: bool = False  # what closed is no JSON, and never will be
    ready: bool = False  # it was given away as whole, and may not grow any more
    full: bool = False  # its object closed, with something in it: what comes behind that is no part of it


class Calls:
    """Accumulates the calls of one answer, in the order in which they began."""

    def __init__(self, failures: Failures) -> None:
        self._failures = failures
        self._calls: list[_Call] = []
        self._latest: dict[int | None, _Call] = {}  # of each number
        self._ids: set[str] = set()
        self._given = 0  # so many of the first were given away

    def __bool__(self) -> bool:
        return bool(self._calls)

    def finished(self, stop: Stop) -> Iterator[ToolCall]:
        """Return all calls of an answer that ended for the reason `stop`."""
        return (self._finished(call, stop) for call in self._calls)

    def ready(self, stop: Stop) -> Iterator[CallReady]:
        """Return the calls that are complete at the end of the answer and were not returned before."""
        for call in self._calls:
            if not call.ready and (whole := self._finished(call, stop)).arguments is not None:
                call.ready = True
                yield CallReady(whole)

    def grow(self, piece: object) -> Iterator[CallOpened | CallReady]:
        """Yield what a piece of a call completes. Raises ProviderError for a malformed piece."""
        function = (piece.get("function") or {}) if isinstance(piece, dict) else None
        if not (isinstance(piece, dict) and isinstance(function, dict)):
            raise self._failures.malformed("a tool call in it lacks what tool calls have")
        name = self._failures.string(function, "name")
        call, new = self._call_for(piece.get("index"), self._failures.string(piece, "id"), name)
        if new:
            yield from self._early()
            yield CallOpened(call.name)
        match function.get("arguments"):
            case None:
                text = ""
            case str(text):
                pass
            case dict(whole):
                text = json.dumps(whole)  # some servers send the object itself
            case _:
                raise self._failures.malformed("a tool call in it has arguments that are neither text nor an object")
        if call.ready:
            if (text.strip() and not call.full) or (name and not new and name != call.name):
                raise self._failures.malformed("a tool call in it continues after its end")
            return  # small models write a brace too many, or a second object
        call.arguments.append(text)
        if call.closing.feed(text):
            yield from self._early()

    def _early(self) -> Iterator[CallReady]:
        """Return the complete calls in order, up to the first incomplete one.

        The protocol marks no end of a call: a call is complete when its JSON object is closed. An empty object may be a
        placeholder until the next call begins.
        """
        while self._given < len(self._calls):
            call = self._calls[self._given]
            if call.broken or not call.closing.closed:
                return
            whole = self._finished(call, Stop.TOOLS)
            call.broken = whole.arguments is None
            if call.broken or not (whole.arguments or call is not self._calls[-1]):
                return
            call.ready, call.full = True, bool(whole.arguments)
            self._given += 1
            yield CallReady(whole)

    def _call_for(self, index: object, id_: str, name: str) -> tuple[_Call, bool]:
        """Return the call that a piece continues or begins, and True if the call is new.

        Servers differ: some number every call 0, some send no numbers.
        """
        number = index if isinstance(index, int) else None
        call = self._latest.get(number)
        new = call is None or bool(id_ and call.given != id_)
        if call is None or new:
            given = id_ or f"call_{secrets.token_hex(8)}"
            call = _Call(given, given if given not in self._ids else f"{given}-{len(self._calls)}")
            self._ids.add(call.id)
            self._calls.append(call)
            self._latest[number] = call
        if name != call.name and not call.ready:  # a name may come in parts, and some servers repeat it with every part
            call.name += name
        return call, new

    def _finished(self, call: _Call, stop: Stop) -> ToolCall:
        text = whole_text(call.arguments)
        if not text and stop is not Stop.TOOLS and call is self._calls[-1]:
            return ToolCall(call.id, call.name, None)  # cut before its first argument: that is not "no arguments"
        return parse_call(call.id, call.name, text)
