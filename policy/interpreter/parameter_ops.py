"""Parameter operations: `${x#..}`, `${x%..}`, `${x/..}`, `${x^}` and `${x:1:2}` on a known value."""

from policy.bash.ast import Expansion, Glob, Word
from policy.model.abstract_word import AbstractWord


def apply_operation(part: Expansion, value: AbstractWord) -> AbstractWord | None:
    """Return `value` after the operation of `part`, or None if the result is not certain."""
    if not value.texts or not all(text.isascii() for text in value.texts):
        return None
    if part.operator == ":" and any(word.literal is None for word in part.words):
        return None
    results = [_apply(part.operator, part.words, text) for text in value.texts]
    texts = tuple(dict.fromkeys(text for text in results if text is not None))
    return AbstractWord(texts=texts) if None not in results else None


def _apply(operator: str, words: tuple[Word, ...], text: str) -> str | None:
    match operator:
        case "#" | "##" | "%" | "%%":
            return _without(operator, words[0], text)
        case "/" | "//" | "/#" | "/%":
            return _replaced(operator, words, text)
        case "^^" | "^":
            return text.upper() if operator == "^^" else text[:1].upper() + text[1:]
        case ",," | ",":
            return text.lower() if operator == ",," else text[:1].lower() + text[1:]
        case ":":
            return _slice([int(word.literal or "") for word in words], text)
    return None


def _without(operator: str, pattern: Word, text: str) -> str | None:
    """Return `text` without the match of a common pattern (plain text, `*` and text, text and `*`), or None for any
    other pattern.
    """
    at_start, known = operator[0] == "#", pattern.literal
    if known is not None:
        return text.removeprefix(known) if at_start else text.removesuffix(known)
    star, rest = (pattern.parts[0], pattern.parts[1:]) if at_start else (pattern.parts[-1], pattern.parts[:-1])
    known = Word(rest, pattern.span).literal or None if isinstance(star, Glob) and star.text == "*" else None
    if known is None or known not in text:
        return None if known is None else text
    before, _, after = text.partition(known) if operator in ("#", "%%") else text.rpartition(known)
    return after if at_start else before


def _replaced(operator: str, words: tuple[Word, ...], text: str) -> str | None:
    old = words[0].literal
    new = words[1].literal if len(words) > 1 else ""
    if not old or new is None or "&" in new or "\\" in new:  # some versions of bash replace `&` by the match
        return None
    match operator:
        case "//":
            return text.replace(old, new)
        case "/":
            return text.replace(old, new, 1)
        case "/#":
            return new + text[len(old) :] if text.startswith(old) else text
    return text[: -len(old)] + new if text.endswith(old) else text


def _slice(bounds: list[int], text: str) -> str:
    offset = bounds[0] if bounds[0] >= 0 else len(text) + bounds[0]
    if not 0 <= offset <= len(text):
        return ""
    return text[offset : offset + bounds[1] if len(bounds) > 1 else None]
