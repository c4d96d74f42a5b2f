"""The forms in which a secret appears in text: plain, in base64 or hex, escaped, and broken over lines.

Two steps find all of them. `encoded_forms` returns the texts to search for. `decoded_views` yields the text itself and
with its escapes decoded (percent, backslash, character references), each without line breaks. Every view maps its
characters back to the original text.
"""

import re
from collections.abc import Iterator
from functools import cache, lru_cache, partial

_ROUNDS = 3  # levels of escapes that are decoded: an address in a JSON string in a JSON string
_LONGEST_ESCAPE = 10  # characters, as in `&#x00073;`
_MARKS = "%\\&"  # the characters that begin an escape
_BREAKS = ("\n", "\r", "\0")  # NUL is in UTF-16 text that is read as bytes

_PLAIN = {"n": "\n", "r": "\r", "t": "\t"}
_NAMED = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}


@lru_cache(maxsize=256)
def encoded_forms(value: str) -> tuple[str, ...]:
    """Return the texts that reveal `value`, in the alphabet of a `DecodedView`.

    These are the value, the part of its base64 that does not depend on the surrounding data (RFC 4648, at each of three
    offsets), and its hex in both cases.
    """
    import base64  # imported late: without secrets it is not needed

    data = value.encode("utf-8", "surrogatepass")
    forms = [value, data.hex(), data.hex().upper()]
    for before in range(3):
        coded = base64.b64encode(b"\0" * before + data).decode()
        # The first characters contain bits of the preceding data, the last characters bits of the following data.
        forms.append(coded[(0, 2, 3)[before] : (len(data) + before) * 8 // 6])
    return tuple(dict.fromkeys(_one_alphabet(_unbroken(each)) for each in forms))


class DecodedView:
    """One decoding of a text, or of a part of it. `text` is the decoded text, with `+/` for `-_`. `to_end` is True if
    the part reaches the end of the text.
    """

    __slots__ = ("_kinds", "_part", "_steps", "_whole", "text", "to_end")

    def __init__(self, whole: "_Unbroken", part: slice, text: str, kinds: str = "", steps: int = 0) -> None:
        self._whole, self._part, self._kinds, self._steps = whole, part, kinds, steps
        self.text, self.to_end = _one_alphabet(text), part.stop == len(whole.text)

    def origins(self) -> tuple[list[int], list[int]]:
        """Return the start and the end in the original text for each character of the view."""
        starts, ends = (each[self._part] for each in self._whole.origins())
        text = self._whole.text[self._part]
        for _ in range(self._steps):
            text, starts, ends = _mapped(text, self._kinds, starts, ends)
            kept = [place for place, char in enumerate(text) if char not in _BREAKS]
            text = "".join([text[place] for place in kept])
            starts, ends = [starts[place] for place in kept], [ends[place] for place in kept]
        return starts, ends


class _Unbroken:
    """A text without its line breaks, with the positions of its characters in the original."""

    __slots__ = ("_ways", "source", "text")

    def __init__(self, source: str) -> None:
        self.source, self.text = source, _unbroken(source)
        self._ways: tuple[list[int], list[int]] | None = None

    def origins(self) -> tuple[list[int], list[int]]:
        if self._ways is None:
            starts = [place for place, char in enumerate(self.source) if char not in _BREAKS]
            self._ways = starts, [place + 1 for place in starts]
        return self._ways


def decoded_views(text: str, reach: int) -> Iterator[DecodedView]:
    """Yield the decodings of `text` that can show a secret of up to `reach` characters, the plain text first.

    Escapes are decoded only within that distance: most text has few escapes, and decoding all of it would take long.
    """
    whole = _Unbroken(text)
    plain = whole.text
    yield DecodedView(whole, slice(0, len(plain)), plain)
    for first, last in _around_escapes(plain, reach):
        there = "".join(mark for mark in _MARKS if mark in plain[first:last])
        # Each kind is also decoded alone: an apparent escape of another kind may be part of the secret itself.
        for kinds in (there, *(there if len(there) > 1 else ())):
            part = plain[first:last]
            for steps in range(1, _ROUNDS + 1):
                read = _unbroken(_escape().sub(partial(_read, kinds=kinds), part))
                if read == part:
                    break
                part = read
                yield DecodedView(whole, slice(first, last), part, kinds, steps)


def begun(text: str) -> int:
    """Return the start of an escape that the end of `text` cuts off, or the length of `text` if there is none."""
    match = _cut().search(text, max(len(text) - _LONGEST_ESCAPE, 0))
    return match.start() if match else len(text)


def _around_escapes(text: str, reach: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of `text` that contain escapes, with `reach` characters on either side. The parts do not
    overlap.
    """
    first = last = -1
    for at in _marks(text):
        if last >= 0 and at - reach > last:
            yield first, last
            first = -1
        first = max(at - reach, 0) if first < 0 else first
        last = min(at + reach + _LONGEST_ESCAPE, len(text))
    if last >= 0:
        yield first, last


def _marks(text: str) -> list[int]:
    """Return the positions of the characters that begin an escape, in order."""
    positions: list[int] = []
    for mark in _MARKS:
        at = text.find(mark)
        while at >= 0:
            positions.append(at)
            at = text.find(mark, at + 1)
    return sorted(positions)


@cache  # compiled on first use: most runs decode no escape
def _escape() -> re.Pattern[str]:
    # RFC 3986 2.1; RFC 8259 7 and shells' $'..'; HTML 13.5
    return re.compile(
        r"%([0-9A-Fa-f]{2})|\\u([0-9A-Fa-f]{4})|\\x([0-9A-Fa-f]{2})|\\([0-3][0-7]{2})|\\([\"'\\/nrt$`])"
        r"|&#[xX]0{0,4}([0-9A-Fa-f]{1,4});|&#0{0,4}([0-9]{1,5});|&(amp|lt|gt|quot|apos);"
    )


@cache
def _cut() -> re.Pattern[str]:
    return re.compile(
        r"(?:%[0-9A-Fa-f]?|\\(?:u[0-9A-Fa-f]{0,3}|x[0-9A-Fa-f]?|[0-3][0-7]?)?|&(?:#[xX]?[0-9A-Fa-f]{0,8}|[a-z]{0,4}))\Z"
    )


def _unbroken(text: str) -> str:
    for mark in _BREAKS:
        if mark in text:
            text = text.replace(mark, "")
    return text


def _one_alphabet(text: str) -> str:
    """Return `text` with one base64 alphabet, which halves the number of forms. Every character keeps its position."""
    return text.replace("-", "+").replace("_", "/")


def _read(match: re.Match[str], kinds: str) -> str:
    """Return the decoded character of an escape, or the escape itself if it does not begin with one of `kinds`."""
    if match[0][0] not in kinds:
        return match[0]
    match match.lastindex:
        case 1 | 2 | 3 | 6:
            return chr(int(match[match.lastindex], 16))
        case 4:
            return chr(int(match[4], 8))
        case 5:
            return _PLAIN.get(match[5], match[5])
        case 7:
            return chr(int(match[7])) if int(match[7]) < 0x110000 else match[0]
        case _:
            return _NAMED[match[8]]


def _mapped(text: str, kinds: str, starts: list[int], ends: list[int]) -> tuple[str, list[int], list[int]]:
    """Decode one level of escapes and return the text with the original positions of its characters."""
    parts: list[str] = []
    new_starts: list[int] = []
    new_ends: list[int] = []
    at = 0
    for match in _escape().finditer(text):
        if match[0][0] not in kinds:
            continue
        first, last = match.span()
        parts += [text[at:first], _read(match, kinds)]
        new_starts += [*starts[at:first], starts[first]]
        new_ends += [*ends[at:first], ends[last - 1]]
        at = last
    return "".join([*parts, text[at:]]), [*new_starts, *starts[at:]], [*new_ends, *ends[at:]]
