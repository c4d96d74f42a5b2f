"""What is shown, kept or told to the model passes here first: a live API key in it becomes `[secret]`.

Exact matches only: a key that a program prints in another coding (base64, a character a line) is not recognised.
"""

from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import TypeVar, cast

from runner.events import Chunk, Emit, Event, Finished, RunEnded, Said, Thought
from runner.secrets import MASK, Secret, redact

T = TypeVar("T")

# Servers that need no key are given words such as `ollama` or `EMPTY`; masking those would ruin ordinary text.
SHORTEST = 12
# The beginning of a key at the end of a text, where something was cut, is masked from this length on.
_BEGINNING = 8


class Redactor:
    """Masks the values of some secrets. Without any, everything comes back as it was."""

    def __init__(self, secrets: Iterable[Secret] = ()) -> None:
        self._secrets = tuple(secret for secret in secrets if len(secret.reveal()) >= SHORTEST)

    def text(self, text: str) -> str:
        """`text` without a secret, also where its end cuts one in half."""
        if not self._secrets:
            return text
        shown, begun = self.split(text)
        return shown + (MASK if len(begun) >= _BEGINNING else begun)

    def mask(self, value: T) -> T:
        """The same kind of value, whose texts hold no secret at any depth. Not for Permits: nobody may copy those."""
        return cast(T, self._masked(value)) if self._secrets else value

    def _masked(self, value: object) -> object:
        if isinstance(value, Enum):
            return value
        match value:
            case str():
                return self.text(value)
            case bytes():
                # latin-1 gives every byte a character and back, and a key is plain ASCII
                return self.text(value.decode("latin-1")).encode("latin-1")
            case list():
                return [self._masked(item) for item in value]
            case tuple():
                return tuple(self._masked(item) for item in value)
            case dict():
                return {self._masked(key): self._masked(item) for key, item in value.items()}
            case _ if is_dataclass(value) and not isinstance(value, type):
                return replace(value, **{item.name: self._masked(getattr(value, item.name)) for item in fields(value)})
            case _:
                return value

    def watch(self, emit: Emit) -> Emit:
        """`emit`, but no event that reaches it holds a secret, not even one that comes in pieces."""
        return _Watch(self, emit) if self._secrets else emit

    def stream(self) -> "Stream":
        """For one text that comes in pieces."""
        return Stream(self)

    def split(self, text: str) -> tuple[str, str]:
        """`text` masked, in two: what may be shown, and an end that may be the beginning of a secret."""
        shown = redact(text, self._secrets)
        size = self._begun(shown)
        return shown[: len(shown) - size], shown[len(shown) - size :]

    def _begun(self, text: str) -> int:
        """How many characters at the end of `text` may be the beginning of a secret."""
        longest = 0
        for secret in self._secrets:
            value = secret.reveal()
            for size in range(min(len(value) - 1, len(text)), longest, -1):
                if text.endswith(value[:size]):
                    longest = size
                    break
        return longest


class Stream:
    """Text in pieces. What may be the beginning of a secret is held back until more of it is known."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = ""

    def feed(self, piece: str) -> str:
        """What may be shown now, maybe nothing."""
        shown, self._held = self._redactor.split(self._held + piece)
        return shown

    def end(self) -> str:
        """The rest."""
        held, self._held = self._held, ""
        return self._redactor.text(held)


class _Watch:
    """Keeps the pieces of the model's text, of its thinking, and of every call's output apart until they are whole."""

    def __init__(self, redactor: Redactor, emit: Emit) -> None:
        self._redactor = redactor
        self._emit = emit
        self._open: dict[tuple[str, int], tuple[Stream, Callable[[str], Event]]] = {}

    def __call__(self, event: Event) -> None:
        match event:
            case Said(text) | Thought(text):
                kind = type(event)
                self._end("", keep=0 if kind is Said else 1)
                self._piece(("", 0 if kind is Said else 1), text, kind)
            case Chunk(call, stream, text):
                self._piece((call, stream), text, lambda shown: Chunk(call, stream, shown))
            case _:
                self._end("")
                if isinstance(event, Finished):
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
        """Show what was held back of everything that belongs to `name`."""
        for key in [key for key in self._open if key[0] == name and key[1] != keep]:
            stream, make = self._open.pop(key)
            if shown := stream.end():
                self._emit(make(shown))
