"""Matches of a bash pattern: the texts that the pattern spells, and the names in the folders of the workspace."""

import re
from collections.abc import Callable
from functools import lru_cache

from policy.interpreter.work_budget import Budget
from policy.model.secret_paths import inside

MOST = 200  # folders looked into, and texts spelled, for one pattern
_SET = re.compile(r"\[(\]?[^\]!^\[:.=-]*)\]")
# The character classes of bash(1), "Pattern Matching", as far as names are ASCII.
_CLASSES = {
    "alpha": "A-Za-z", "lower": "a-z", "upper": "A-Z", "digit": "0-9", "xdigit": "0-9A-Fa-f", "alnum": "A-Za-z0-9",
    "word": "A-Za-z0-9_", "punct": r"!-/:-@\[-`{-~", "graph": "!-~", "print": " -~", "blank": r" \t", "space": r"\s",
}  # fmt: skip
_CLASS = re.compile(rf"\[:({'|'.join(_CLASSES)}):\]")
_BRACKET = re.compile(r"([!^]?)(\](?:\[:[a-z]*:\]|[^\]])*|(?:\[:[a-z]*:\]|[^\]])+)\]")
_PLAIN = re.compile(rf"(?:{_CLASS.pattern}|[^\[\]\\])+")
_BRACED = re.compile(r"[^\s;|&<>()`'\"{]{0,255}\{[^\s;|&<>()`'\"]{0,255}")
_CHOICE = re.compile(r"(?<!\$)\{([^{}]*,[^{}]*)\}")
_SIGNS = frozenset("*?[")
_EVERYTHING = frozenset(["*", "**", ".*", "*.*", "?*", ".??*", ".[!.]*"])


def everything(pattern: str) -> bool:
    """Return True if the last name of `pattern` stands for every file, or every one with a dot."""
    return pattern.rpartition("/")[2] in _EVERYTHING


def spelled(pattern: str) -> tuple[str, ...]:
    """Return all texts that `pattern` matches, where sets of single characters are its only signs; else nothing."""
    texts = [""]
    at = 0
    for found in _SET.finditer(pattern):
        between = pattern[at : found.start()]
        texts = [text + between + char for text in texts for char in found[1]]
        at = found.end()
        if len(texts) > MOST:
            return ()
    rest = pattern[at:]
    if any(char in text for text in (*texts[:1], rest) for char in "*?["):
        return ()
    return tuple(text + rest for text in texts)


def braced(script: str) -> tuple[str, ...]:
    """Return what the words of a script with braces (`~/.{ssh,aws}/$x`) become, quotes and expansions as they stand."""
    found: dict[str, None] = {}
    for word in _BRACED.findall(script)[:MOST] if "{" in script else ():
        texts = [word]
        while len(texts) <= MOST and (group := next(filter(None, map(_CHOICE.search, texts)), None)):
            at, choices = texts.index(group.string), group[1].split(",")
            texts[at : at + 1] = [
                group.string[: group.start()] + each + group.string[group.end() :] for each in choices
            ]
        found |= dict.fromkeys(texts[:MOST])
        if len(found) > MOST:
            break
    return tuple(found)[:MOST]


def matched(
    pattern: str, start: str, names: Callable[[str], tuple[str, ...] | None], workspace: str, budget: Budget
) -> tuple[str, ...]:
    """Return the paths in `workspace` that bash matches with `pattern` in the folder `start`, relative to `start`.

    Nothing when a folder cannot be listed whole, or lies elsewhere. As bash does by default, `*` matches no name that
    begins with a dot, and `**` is `*`.
    """
    paths = [""]
    for part in filter(None, pattern.split("/")):
        if part in (".", ".."):
            paths = [f"{path}{part}/" for path in paths]
            continue
        if len(paths) > MOST:
            return ()
        if not _SIGNS.intersection(part) and not any(inside(_joined(start, path), workspace) for path in paths):
            paths = [f"{path}{part}/" for path in paths]  # on the way into the workspace
            continue
        found = []
        for path in paths:
            folder = _joined(start, path)
            listed = names(folder) if inside(folder, workspace) else None
            if listed is None:
                listed = ()
            budget.spend(20 + len(listed))
            found += [f"{path}{name}/" for name in listed if _fits(name, part)]
        paths = found
    return tuple(path.rstrip("/") for path in paths)


def _joined(start: str, path: str) -> str:
    parts = start.rstrip("/").split("/")
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts) or "/"


def _fits(name: str, part: str) -> bool:
    return (name[:1] != "." or part[:1] == ".") and _compiled(part).fullmatch(name) is not None


@lru_cache(maxsize=256)
def _compiled(part: str) -> re.Pattern[str]:
    """Translate one name of a pattern. A set that is not plain matches any character: it finds more, never less."""
    out, at, last = "", 0, part.rfind("]")
    while at < len(part):
        char = part[at]
        at += 1
        if char == "[" and at <= last and (found := _BRACKET.match(part, at)):
            at = found.end()
            plain = _PLAIN.fullmatch(found[2])
            out += "." if plain is None else f"[{'^' if found[1] else ''}{_set(found[2])}]"
        else:
            out += {"*": ".*", "?": "."}.get(char, re.escape(char))
    try:
        return re.compile(out, re.DOTALL)
    except re.error:  # `[z-a]`
        return re.compile(".*", re.DOTALL)


def _set(chars: str) -> str:
    pieces = _CLASS.split(chars)  # text, the name of a class, text, ..
    return "".join(
        _CLASSES[piece] if place % 2 else "".join(char if char == "-" else re.escape(char) for char in piece)
        for place, piece in enumerate(pieces)
    )
