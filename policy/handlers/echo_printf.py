"""The texts that `echo` and `printf` print. They are searched for paths of secrets and never make a verdict milder."""

import re
from collections.abc import Sequence
from itertools import product

from policy.model.abstract_word import MOST_HINTS, MOST_TEXT, AbstractWord

_FLAGS = re.compile(r"-[neE]+")
_ESCAPE = re.compile(r"\\(?:0?([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|([abfnrtv\\]))")
_PLAIN = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\"}
_FIELD = re.compile(r"%[-+ #0-9.*]*([a-zA-Z%])")
MOST_ROUNDS = 50  # of the format of printf


def echoed(words: Sequence[AbstractWord]) -> tuple[str, ...]:
    """Return the texts that `echo` may print for `words`; nothing when a word is not known at all."""
    words, escapes = list(words), False
    while words and words[0].text is not None and _FLAGS.fullmatch(words[0].text):
        escapes = escapes or "e" in words.pop(0).text  # type: ignore[operator]  # the condition has looked at it
    texts = (" ".join(each) for each in _every(words))
    return tuple(decoded(text) if escapes else text for text in texts)


def printed(format: Sequence[AbstractWord], words: Sequence[AbstractWord]) -> tuple[str, ...]:
    """Return the texts that `printf` may print for a format and `words`; nothing when one is not known at all."""
    return tuple(_formatted(each[0], each[1:]) for each in _every([*format, *words]) if each)


def decoded(text: str) -> str:
    """Return `text` with the escapes of `echo -e` and printf(1) replaced by what they stand for."""
    return _ESCAPE.sub(_character, text)


def _character(found: re.Match[str]) -> str:
    octal, byte, point, letter = found.groups()
    if letter:
        return _PLAIN[letter]
    return chr(int(octal, 8) & 0xFF) if octal else chr(int(byte or point, 16))


def _every(words: Sequence[AbstractWord]) -> list[tuple[str, ...]]:
    choices = [word.texts or word.likely_texts or word.hints for word in words]
    if not all(choices) or sum(len(max(each, key=len)) for each in choices) > MOST_TEXT:
        return []
    found = []
    for each in product(*choices):
        found.append(each)
        if len(found) >= MOST_HINTS:
            break
    return found


def _formatted(format: str, words: Sequence[str]) -> str:
    left, out = list(words), ""
    for _ in range(MOST_ROUNDS):
        before = len(left)

        def field(found: re.Match[str]) -> str:
            if found[1] == "%":
                return "%"
            word = left.pop(0) if left else ""
            return decoded(word) if found[1] == "b" else word

        out += _FIELD.sub(field, decoded(format))
        if not left or len(left) == before:
            break
    return out
