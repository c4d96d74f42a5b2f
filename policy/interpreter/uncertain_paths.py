"""Secret paths that a word with an uncertain text may name: by known data, its beginning or end, or its matches."""

import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from functools import lru_cache

from policy.describe.phrases import secret_kind
from policy.interpreter.path_classifier import LONGEST, LOOK, PathClassifier, ResolvedPath, WorkBudget
from policy.model.abstract_word import AbstractWord
from policy.model.assessment import Scope
from policy.model.secret_paths import inside, normal

MOST = 200  # folders listed, and texts returned, for one pattern
_SET = re.compile(r"\[(\]?[^\]!^\[:.=-]*)\]")
# The character classes of bash(1), "Pattern Matching", as far as names are ASCII.
_CLASSES = {
    "alpha": "A-Za-z", "lower": "a-z", "upper": "A-Z", "digit": "0-9", "xdigit": "0-9A-Fa-f", "alnum": "A-Za-z0-9",
    "word": "A-Za-z0-9_", "punct": r"!-/:-@\[-`{-~", "graph": "!-~", "print": " -~", "blank": r" \t", "space": r"\s",
}  # fmt: skip
_CLASS = re.compile(rf"\[:({'|'.join(_CLASSES)}):\]")
_BRACKET = re.compile(r"([!^]?)(\](?:\[:[a-z]*:\]|[^\]])*|(?:\[:[a-z]*:\]|[^\]])+)\]")
_PLAIN = re.compile(rf"(?:{_CLASS.pattern}|[^\[\]\\])+")
_SIGNS = frozenset("*?[")
_SIGN = re.compile(r"[*?]|\[.*?\]")
_EVERYTHING = frozenset(["*", "**", ".*", "*.*", "?*", ".??*", ".[!.]*"])


def secrets_of(
    classifier: PathClassifier, word: AbstractWord, cwds: tuple[str, ...] | None, *, content: bool
) -> Iterator[str | ResolvedPath]:
    """Yield the secrets that `word` may name: a path, or a text for the user where no path is certain.

    `content` is false if the command shows only names.
    """
    for text in filter(None, word.texts or word.hints):
        if cwds is None and text[:1] != "/":
            if content and classifier.secret_parts(text):
                yield f"{text}, {secret_kind(text)}"
        elif not word.texts:
            places = (classifier.place(text, cwd) for cwd in cwds or ("/",))
            yield from (place for place in places if place.scope is Scope.SECRET)
    if word.texts:
        return
    for head in filter(None, word.heads or (word.head,)):
        for cwd in (cwds or ()) if head[:1] != "/" else ("/",):
            # Only names: `ls -d ~/.ssh*` shows only that the folder exists.
            if store := _store(classifier, head if content else head.rpartition("/")[0] + "/", cwd):
                yield f"files below {store}, {secret_kind(store)}"
    if not content:
        return
    if store := _shaped_store(classifier, word.shape):
        yield f"files such as {store}, {secret_kind(store)}"
    _, slash, end = word.tail.partition("/")
    if slash and not word.globbed and _secret_end(classifier, word.head, end):
        yield f"{end} in some folder, {secret_kind(end)}"
    for cwd in (cwds or ()) if word.pattern else ():
        if names := only_secrets(classifier, word.pattern, cwd):
            yield f"{', '.join(names[:3])} by a pattern that matches only secrets"


def likely_texts(classifier: PathClassifier, word: AbstractWord, cwds: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the texts that a word may be, by known data or by the files that its pattern finds."""
    if word.texts or word.hints or not word.pattern:
        return word.texts or word.hints
    return tuple(text for cwd in cwds or () for text in only_secrets(classifier, word.pattern, cwd))


def _store(classifier: PathClassifier, head: str, cwd: str) -> str:
    """Return the credential store, as shown to people, that contains every path that starts with `head`, or an
    empty text.
    """
    if len(head) > LONGEST or "\0" in head:
        return ""  # no kernel opens it
    for start in dict.fromkeys((head.rpartition("/")[0] or "/", head) if "/" in head else (head,)):
        path = classifier.absolute(start, cwd)
        for each in (path, classifier.facts.look(path).real):
            if classifier.secrets.holds_folder(each):
                return classifier.shown(each)
    return ""


def _shaped_store(classifier: PathClassifier, shape: str) -> str:
    """Return the credential store that contains paths of this shape, as shown to people, or an empty text.

    `shape` is absolute, with `*` for each unknown part: `/home/*/.ssh/*`, `/proc/*/environ`. The unknown part may
    be the user, a process or a file; a name of which two characters are known may be a store that matches it.
    """
    if shape[:1] != "/" or "*" not in shape or len(shape) > LONGEST:
        return ""
    homes, _, user = classifier.facts.home.rpartition("/")
    parts = shape.split("/")
    for at, part in enumerate(parts):
        above = "/".join(parts[:at])
        if part and not part.strip("*"):
            parts[at] = user if above == homes else "1"
        elif _SIGN.search(part):
            stores = classifier.profile.secret_home if above == classifier.facts.home and at + 1 < len(parts) else ()
            known = len(_SIGN.sub("", part)) > 1
            found = next((each for each in stores if known and "/" not in each and fnmatchcase(each, part)), None)
            if found is None:
                return ""
            parts[at] = found
    path = "/".join(parts)
    classifier.budget.spend(LOOK)
    return classifier.shown(path) if classifier.secrets.holds_folder(path) else ""


def _secret_end(classifier: PathClassifier, head: str, end: str) -> bool:
    """Return True if the names `end` make a path that starts with `head` a secret."""
    folder = classifier.absolute(head.rpartition("/")[0] or "/", "/") if head.startswith("/") else ""
    return not (folder and classifier.scope(folder) is Scope.SYSTEM) and classifier.secret_parts(end)


def only_secrets(classifier: PathClassifier, pattern: str, cwd: str) -> tuple[str, ...]:
    """Return the matches of bash's `pattern` in the workspace if every one of them is secret by its name.

    Empty if the pattern also matches another file, or nothing. Patterns for everything (`*`, `.*`, `*.*`) never
    count: they are meant for the other files, and the secrets that they match are masked.
    """
    if pattern.rpartition("/")[2] in _EVERYTHING:
        return ()
    classifier.budget.spend(LOOK)
    found = spell_pattern(pattern)
    if not found or not all(map(classifier.secret_parts, found)):
        workspace = classifier.facts.workspace
        start = workspace if pattern[:1] == "/" else classifier.absolute(cwd, "/")
        if pattern[:1] == "/" and not pattern.startswith(f"{workspace}/"):
            return ()
        found = find_files(pattern.removeprefix(workspace), start, classifier.facts.names, workspace, classifier.budget)
    return found if found and all(map(classifier.secret_parts, found)) else ()


def spell_pattern(pattern: str) -> tuple[str, ...]:
    """Return all texts that `pattern` matches if it has no signs except sets of single characters, else nothing."""
    texts = [""]
    at = 0
    for match in _SET.finditer(pattern):
        between = pattern[at : match.start()]
        texts = [text + between + char for text in texts for char in match[1]]
        at = match.end()
        if len(texts) > MOST:
            return ()
    rest = pattern[at:]
    if any(char in text for text in (*texts[:1], rest) for char in "*?["):
        return ()
    return tuple(text + rest for text in texts)


def find_files(
    pattern: str, start: str, names: Callable[[str], tuple[str, ...] | None], workspace: str, budget: WorkBudget
) -> tuple[str, ...]:
    """Return the paths in `workspace` that bash matches with `pattern` in the folder `start`, relative to `start`.

    Empty if a folder cannot be listed completely or is outside `workspace`. As bash does by default, `*` matches no
    name that begins with a dot, and `**` is `*`.
    """
    paths = [""]
    for part in filter(None, pattern.split("/")):
        if part in (".", ".."):
            paths = [f"{path}{part}/" for path in paths]
            continue
        if len(paths) > MOST:
            return ()
        if not _SIGNS.intersection(part) and not any(inside(normal(f"{start}/{path}"), workspace) for path in paths):
            paths = [f"{path}{part}/" for path in paths]  # on the way into the workspace
            continue
        found = []
        for path in paths:
            folder = normal(f"{start}/{path}")
            listed = (names(folder) if inside(folder, workspace) else None) or ()
            budget.spend(20 + len(listed))
            visible = (name for name in listed if name[:1] != "." or part[:1] == ".")
            found += [f"{path}{name}/" for name in visible if _compiled(part).fullmatch(name)]
        paths = found
    return tuple(path.rstrip("/") for path in paths)


@lru_cache(maxsize=256)
def _compiled(part: str) -> re.Pattern[str]:
    """Translate one name of a pattern. A set that is not plain matches any character: it finds more, never less."""
    out, at, last = "", 0, part.rfind("]")
    while at < len(part):
        char = part[at]
        at += 1
        if char == "[" and at <= last and (match := _BRACKET.match(part, at)):
            at = match.end()
            plain = _PLAIN.fullmatch(match[2])
            out += "." if plain is None else f"[{'^' if match[1] else ''}{_set(match[2])}]"
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
