"""Command text with wildcards, as other agents write it, turned into patterns of words."""

import re
import shlex

from policy.matrix import Ruling
from runner.imports.carried import REST, WILD, Word

# What would make more than one command of it, or a word that only the run decides.
_SYNTAX = re.compile(r"[;&|<>()$`\n\r#{}]|^\s*!|(^|\s)[A-Za-z_][A-Za-z0-9_]*=")
_STAR = "\ue000"  # stands for a wildcard while the words are cut: a private character, refused in the text itself


class NotWords(ValueError):
    """The text is no pattern of words; the message says why."""


def plain(text: str, verdict: Ruling) -> tuple[Word, ...]:
    """The words of a text in which every character means itself. Raises NotWords."""
    return tuple((word,) for word in literal(_cut(text), verdict))


def literal(words: list[str], verdict: Ruling) -> list[str]:
    """Words that mean themselves. `*` and `?` mean more to us, which a rule that allows must not."""
    if verdict is Ruling.ALLOW and any(char in word for word in words for char in WILD):
        raise NotWords("a `*` or `?` in it means itself, and as a rule it would cover more")
    return words


def starred(text: str, verdict: Ruling) -> tuple[tuple[Word, ...], str]:
    """The pattern of a text in which `*` is any text, blanks too, and how it differs. Raises NotWords.

    What allows never covers more than the text does, what forbids never less.
    """
    if _STAR in text:
        raise NotWords("it holds characters that do not print")
    if "\\*" in text:
        raise NotWords("it holds a `*` that means itself")
    if "?" in text and verdict is Ruling.ALLOW:
        raise NotWords("a `?` in it means itself, and as a rule it would cover more")
    words = [word.replace(_STAR, "*") for word in _cut(re.sub(r"\*+", _STAR, text))]
    if not words:
        raise NotWords("it names no command")
    note = ""
    more = "*" in words[-1]
    if words[-1] == "*" and len(words) > 1:
        # `git log *` is also a bare `git log`, but with another `*` before it there must be something.
        if verdict is not Ruling.ALLOW or not any("*" in word for word in words[:-1]):
            words.pop()
    elif more and not words[-1].endswith("*"):
        more = False
    inner = [word for word in words[:-1] if "*" in word] + ([words[-1]] if "*" in words[-1].rstrip("*") else [])
    if inner and verdict is Ruling.ALLOW:
        note = "each `*` stands for a part of one word, where it stood for any number of words"
    pattern = tuple(_with_flag(word, verdict) for word in words)
    return (*pattern, *([REST] if more else [])), note


def _with_flag(word: str, verdict: Ruling) -> Word:
    """What forbids looks for flags and other words apart: `*--force` must be found as a flag, too."""
    flag = word.lstrip("*")
    return (word, flag) if verdict is not Ruling.ALLOW and flag != word and flag.startswith("-") else (word,)


def _cut(text: str) -> list[str]:
    if _SYNTAX.search(text):
        raise NotWords("it is more than the words of one command")
    if "~" in text:
        raise NotWords("its `~` would have to be a certain home")
    try:
        words = shlex.split(text)
    except ValueError:
        raise NotWords("its quotes are not closed") from None
    if not words or not words[0].strip():
        raise NotWords("it names no command")
    return words
