"""What is shown, kept or told to the model passes here first: a live secret in it becomes `[secret]`.

Found are the forms of `runner/secrets/encodings.py` and the shapes of `runner/secrets/token_patterns.py`, each from
left to right. What
was enciphered, compressed, reversed or spread over a text in another way is not recognised: no command is ever given a
secret to do that with, so this is the second wall and not the first.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import TypeVar, cast

from runner.secrets import registry
from runner.secrets.encodings import begun, decoded_views, encoded_forms
from runner.secrets.registry import MASK, SHORTEST, Revealable

T = TypeVar("T")

# The beginning of a key at the end of a text, where something was cut, is masked from this length on.
_BEGINNING = 8
_WIDEST = 12  # characters of text that one character of a secret may take: an escape, broken over lines


class Redactor:
    """Masks secrets. Without any, everything comes back as it was.

    `secrets` are masked in any case. `live`: all that this process learns of as well, also later. `shapes`: also what
    is a key by its shape.
    """

    def __init__(self, secrets: Iterable[Revealable] = (), *, live: bool = False, shapes: bool = False) -> None:
        self._given = tuple(secret for secret in secrets if len(secret.reveal()) >= SHORTEST)
        self._live, self._shapes = live, shapes
        self._seen = -1
        self._known: tuple[str, ...] = ()
        self._blind = Redactor(self._given, live=live) if shapes else self

    def text(self, text: str, before: str = "") -> str:
        """`text` without a secret, also where its end cuts one in half. `before`: as for `split`."""
        if len(text) < _BEGINNING or not self._works:
            return text
        return self._whole(text, before)

    def mask(self, value: T) -> T:
        """The same kind of value, whose texts hold no secret at any depth. Not for Permits: nobody may copy those."""
        return cast(T, self._masked(value)) if self._works else value

    def stream(self) -> "Stream":
        """For one text that comes in pieces."""
        return Stream(self)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to mask now."""
        return not self._works

    def split(self, text: str, before: str = "") -> tuple[str, str]:
        """In two: what may be shown, masked, and an end, as it is, that more text could make a secret of.

        `before`: the character that was shown last. A word that goes on has no key's shape."""
        return self._split(text, before, whole=False) if self._works else (text, "")

    def _whole(self, text: str, before: str = "", *, rows: bool = False) -> str:
        shown, held = self._split(text, before, whole=True, rows=rows)
        return shown + (_mask(held, rows) if len(held) >= _BEGINNING else held)

    @property
    def _works(self) -> bool:
        return self._shapes or bool(self._forms)

    @property
    def _forms(self) -> tuple[str, ...]:
        now = registry.count() if self._live else 0
        if now != self._seen:
            secrets = (*self._given, *(registry.everything() if self._live else ()))
            self._known = tuple(dict.fromkeys(form for secret in secrets for form in encoded_forms(secret.reveal())))
            self._seen = now
        return self._known

    def _split(self, text: str, before: str, *, whole: bool, rows: bool = False) -> tuple[str, str]:
        """INVARIANT: what is found first hides what begins inside of it, so that pieces give what the whole gives.

        `whole`: no more will come; then only the beginning of a secret itself is held, not of a shape or an escape.
        `rows`: as many lines come back as there were.
        """
        shown: list[str] = []
        text, at = before + text, len(before)
        end = self._held(text, at, whole)
        for first, last in _in_order(self._spans(text, at)):
            if first < at:
                continue
            if first >= end and not whole:
                break
            shown += [text[at:first], _mask(text[first:last], rows)]
            at = last
            if at > end:
                end = self._held(text, at, whole)
        end = max(end, at)
        return "".join([*shown, text[at:end]]), text[end:]

    def _spans(self, text: str, least: int) -> Iterator[tuple[int, int]]:
        for view in decoded_views(text, self._longest) if self._forms else ():
            read, ways = view.text, None
            for form in self._forms:
                at = read.find(form)
                while at >= 0:
                    starts, ends = ways = ways or view.origins()
                    yield starts[at], ends[at + len(form) - 1]
                    at = read.find(form, at + 1)
        if self._shapes:
            from runner.secrets.token_patterns import shaped

            yield from shaped(text, least)

    def _held(self, text: str, least: int, whole: bool) -> int:
        """Where at or after `least` the end of `text` may begin a secret; the length of `text` when it does not."""
        first = len(text)
        if self._forms:
            start = max(least, len(text) - self._longest * _WIDEST)
            for view in decoded_views(text[start:], self._longest):
                if not view.to_end:
                    continue
                cut = len(view.text) if whole else begun(view.text)
                begins = cut - self._begun(view.text[:cut])
                if begins < len(view.text):
                    first = min(first, start + view.origins()[0][begins])
        if self._shapes and not whole:
            from runner.secrets.token_patterns import unfinished

            first = min(first, unfinished(text, least))
        return first

    @property
    def _longest(self) -> int:
        return max(map(len, self._forms))

    def _begun(self, text: str) -> int:
        """How many characters at the end of `text` may be the beginning of a secret."""
        longest = 0
        for form in self._forms:
            at = text.find(form[0], max(len(text) - len(form) + 1, 0))
            while 0 <= at < len(text) - longest:
                if form.startswith(text[at:]):
                    longest = len(text) - at
                    break
                at = text.find(form[0], at + 1)
        return longest

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
                return [self._masked(item) for item in self._as_rows(value)]
            case tuple():
                return tuple(self._masked(item) for item in self._as_rows(value))
            case dict():
                return {self._masked(key): self._masked(item) for key, item in value.items()}
            case _ if is_dataclass(value) and not isinstance(value, type):
                opaque = getattr(value, "OPAQUE", ())
                # Nobody of ours can read those: a known secret is one there too, but a key's shape is chance.
                ways = {item.name: self._blind if item.name in opaque else self for item in fields(value)}
                return replace(value, **{name: way._masked(getattr(value, name)) for name, way in ways.items()})
            case _:
                return value

    def _as_rows(self, items: Sequence[object]) -> Sequence[object]:
        """Texts, or groups that end in one, where they may be the lines of a file: a secret goes on from one to the
        next, and its beginning alone would be masked in each by itself."""
        texts = [each[-1] if type(each) in (list, tuple) and each else each for each in items]  # type: ignore[index]  # both
        if len(texts) < 2 or not all(type(each) is str and "\n" not in each for each in texts):
            return items
        before = "\n".join(cast(list[str], texts))
        after = self._whole(before, rows=True)
        if after == before:
            return items
        return [_with_text(each, row) for each, row in zip(items, after.split("\n"), strict=True)]


def _with_text(item: object, text: str) -> object:
    """A text, or a group that ends in one, with another in its place."""
    match item:
        case list():
            return [*item[:-1], text]
        case tuple():
            return (*item[:-1], text)
        case _:
            return text


def _mask(hidden: str, rows: bool) -> str:
    return MASK + "\n" * hidden.count("\n") if rows else MASK


def _in_order(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The earliest first; of those that begin together, the longest."""
    return sorted(spans, key=lambda span: (span[0], -span[1]))


class Stream:
    """Text in pieces. What may be the beginning of a secret is held back until more of it is known."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = self._last = ""

    def feed(self, piece: str) -> str:
        """What may be shown now, maybe nothing."""
        shown, self._held = self._redactor.split(self._held + piece, self._last)
        self._last = shown[-1:] or self._last
        return shown

    def end(self) -> str:
        """The rest."""
        held, self._held = self._held, ""
        return self._redactor.text(held, self._last)


def masked(text: str) -> str:
    """Return `text` with every registered secret replaced by `[secret]`."""
    return Redactor(live=True).text(text)
