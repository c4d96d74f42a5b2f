"""Events without secrets."""

from collections.abc import Callable

from runner.events import ActionFinished, CommandOutput, Emit, Event, ModelText, ModelThinking, RunEnded
from runner.secrets.redactor import RedactingStream, Redactor


class RedactingEmitter:
    """An emitter that masks secrets in events, including a secret that is split over several events.

    Text of the model, its thinking and the output of each call are separate streams, each held back until it is certain
    that no secret is cut in two.
    """

    def __init__(self, redactor: Redactor, emit: Emit) -> None:
        self._redactor = redactor
        self._emit = emit
        self._open: dict[tuple[str, int], tuple[RedactingStream, Callable[[str], Event]]] = {}

    def __call__(self, event: Event) -> None:
        match event:
            case ModelText(text) | ModelThinking(text):
                kind = type(event)
                self._end("", keep=0 if kind is ModelText else 1)
                self._piece(("", 0 if kind is ModelText else 1), text, kind)
            case CommandOutput(call, stream, text):
                self._piece((call, stream), text, lambda shown: CommandOutput(call, stream, shown))
            case _:
                self._end("")
                if isinstance(event, ActionFinished):
                    self._end(event.call)
                if isinstance(event, RunEnded):
                    for name, _ in tuple(self._open):
                        self._end(name)
                self._emit(self._redactor.mask(event))

    def _piece(self, key: tuple[str, int], text: str, make: Callable[[str], Event]) -> None:
        stream, _ = self._open.setdefault(key, (self._redactor.stream(), make))
        if shown := stream.feed(text):
            self._emit(make(shown))

    def _end(self, name: str, keep: int | None = None) -> None:
        """End the streams of `name`, except the one numbered `keep`, and emit the text that they held back."""
        for key in [key for key in self._open if key[0] == name and key[1] != keep]:
            stream, make = self._open.pop(key)
            if shown := stream.end():
                self._emit(make(shown))
