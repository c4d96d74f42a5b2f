"""Command patterns with wildcards of other agents, converted to patterns of words."""

import re
import shlex

from policy.model.tier import Ruling
from runner.gate.policy_tools.importers.result import REST, WILD, WordChoice

# Syntax that makes several commands, or a word that is known only at run time.
_SYNTAX = re.compile(r"[;&|<>()$`\n\r#{}]|^\s*!|(^|\s)[A-Za-z_][A-Za-z0-9_]*=")
_MOST = 16  # rules that one original rule becomes
_STAR = "\ue000"  # marks a wildcard while the words are split: a private character, refused in the text itself


class NotWords(ValueError):
    """Error for text that is not a pattern of words; the message has the reason."""


def plain(text: str, verdict: Ruling) -> tuple[WordChoice, ...]:
    """Return the words of a text without special characters. Raises NotWords."""
    return tuple((word,) for word in literal(_cut(text), verdict))


def literal(words: list[str], verdict: Ruling) -> list[str]:
    """Return literal words. `*` and `?` have a wider meaning in our rules, which a rule that allows must not have."""
    if verdict is Ruling.ALLOW and any(char in word for word in words for char in WILD):
        raise NotWords("a `*` or `?` in it is a literal character, and a rule would match more")
    return words


def starred(text: str, verdict: Ruling, *, goes_on: bool = False) -> tuple[list[tuple[WordChoice, ...]], str]:
    """Return the patterns of a text in which `*` is any text including blanks, and how they differ. Raises NotWords.

    With `goes_on`, further words may follow. A pattern that allows never matches more than the text does, and one that
    denies never less.
    """
    if _STAR in text:
        raise NotWords("it contains unprintable characters")
    if "\\*" in text:
        raise NotWords("it contains a literal `*`")
    if "?" in text and verdict is Ruling.ALLOW:
        raise NotWords("a `?` in it is a literal character, and a rule would match more")
    words = [word.replace(_STAR, "*") for word in _cut(re.sub(r"\*+", _STAR, text))]
    more: tuple[WordChoice, ...] = (REST,) if words[-1].endswith("*") else ()
    # `git log *` is also a bare `git log`, but with another `*` before it there must be something.
    bare = verdict is not Ruling.ALLOW or (text.count("*") == 1 and not goes_on)
    if words[-1] == "*" and len(words) > 1 and bare:
        words.pop()
    if verdict is Ruling.ALLOW:
        inner = any("*" in word for word in words[:-1]) or "*" in words[-1].rstrip("*")
        note = "each `*` matches a part of one word here, but any number of words in the original" if inner else ""
        return [(*((word,) for word in words), *more)], note
    spread = _spread(words)
    return [(*(_with_flags(word) for word in each), *more) for each in spread], ""


def _spread(words: list[str]) -> list[list[str]]:
    """Return all forms in which a `*` inside a word, or before the first, may match blanks: `a*b` is also `a* *b`.

    Words between are skipped when a command is compared with a rule that denies.
    """
    forms: list[list[str]] = [[]]
    for index, word in enumerate(words):
        forms = [[*start, *way] for start in forms for way in _ways(word, first=index == 0)]
        if len(forms) > _MOST:
            raise NotWords("it has too many `*`")
    return forms


def _ways(word: str, *, first: bool) -> list[list[str]]:
    """Return the forms of one word, split or not at each `*` that may match more than the rest of the word."""
    start, *others = word.split("*")
    ways = [[start]]
    for index, part in enumerate(others):
        cuts = (part or index < len(others) - 1) and (ways[0][-1] or first)
        joined = [[*way[:-1], f"{way[-1]}*{part}"] for way in ways]
        ways = joined + ([[*way[:-1], f"{way[-1]}*", f"*{part}"] for way in ways] if cuts else [])
        if len(ways) > _MOST:
            break
    return ways


def _with_flags(word: str) -> WordChoice:
    """Return patterns that also match flags, for a rule that denies: flags and other words are matched separately."""
    if not word.startswith("*"):
        return (word,)
    bare = word.lstrip("*")
    return (word, *((bare,) if bare[:1] in ("-", "+") else ()), f"-{word}", f"+{word}")


def _cut(text: str) -> list[str]:
    if _SYNTAX.search(text):
        raise NotWords("it contains more than the words of one command")
    if "~" in text:
        raise NotWords("its `~` would need a fixed home folder")
    try:
        words = shlex.split(text)
    except ValueError:
        raise NotWords("its quotes are not closed") from None
    if not words or not words[0].strip():
        raise NotWords("it names no command")
    return words
