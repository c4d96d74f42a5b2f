"""Events without secrets."""

from collections.abc import Callable
from dataclasses import replace

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
        self._open: dict[tuple[str, str, int], tuple[RedactingStream, Callable[[str], Event]]] = {}

    def __call__(self, event: Event) -> None:
        match event:
            case ModelText(text) | ModelThinking(text):
                number = 0 if isinstance(event, ModelText) else 1
                self._end(event.agent, "", keep=number)
                self._piece((event.agent, "", number), text, lambda shown: replace(event, text=shown))
            case CommandOutput(call, stream, text):
                self._piece((event.agent, call, stream), text, lambda shown: replace(event, text=shown))
            case _:
                self._end(event.agent, "")
                if isinstance(event, ActionFinished):
                    self._end(event.agent, event.call)
                if isinstance(event, RunEnded):
                    for agent, name, _ in tuple(self._open):
                        if agent == event.agent:
                            self._end(agent, name)
                self._emit(self._redactor.mask(event))

    def _piece(self, key: tuple[str, str, int], text: str, make: Callable[[str], Event]) -> None:
        stream, _ = self._open.setdefault(key, (self._redactor.stream(), make))
        if shown := stream.feed(text):
            self._emit(make(shown))

    def _end(self, agent: str, name: str, keep: int | None = None) -> None:
        """End the streams of `name` of one agent, except the one numbered `keep`, and emit the text that they held
        back.
        """
        for key in [key for key in self._open if key[:2] == (agent, name) and key[2] != keep]:
            stream, make = self._open.pop(key)
            if shown := stream.end():
                self._emit(make(shown))
