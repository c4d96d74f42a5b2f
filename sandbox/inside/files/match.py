"""Glob patterns, matched folder by folder and without backtracking. Runs confined: standard library only."""

from sandbox.inside.files.access import Refused

TYPE_CHECKING = False  # the name is what type checkers know; typing itself would double the import
if TYPE_CHECKING:
    import re

SKIPPED = ".git"  # Git's own files are numerous and of no use in a search
_ALTERNATIVES = 256  # patterns to which the braces of one pattern may expand

# One place in one alternative of a pattern: (alternative, part).
Places = frozenset[tuple[int, int]]


class GlobPattern:
    """A glob pattern: `*`, `?`, `[a-z]`, `[!a]` within a name, `**` across folders, `{a,b}` anywhere, `\\` quotes.

    A walk begins at `start` and calls `step` for each name, so a folder in which nothing can match need not be opened.
    A dot at the start of a name has no special meaning.
    """

    def __init__(self, pattern: str) -> None:
        self._alternatives = [_parts(text) for text in expand(pattern)]
        self.start = self._closed({(index, 0) for index in range(len(self._alternatives))})

    def step(self, places: Places, name: str) -> Places:
        """Return the positions in the pattern after `name`; empty if nothing below can match."""
        after: set[tuple[int, int]] = set()
        for alternative, part in places:
            parts = self._alternatives[alternative]
            if part == len(parts):
                continue
            matcher = parts[part]
            if matcher is None:
                after.add((alternative, part))
            elif matcher.fullmatch(name):
                after.add((alternative, part + 1))
        return self._closed(after)

    def complete(self, places: Places) -> bool:
        """Return True if the path walked so far matches as a whole."""
        return any(part == len(self._alternatives[alternative]) for alternative, part in places)

    def matches(self, path: str) -> bool:
        """Return True if a whole relative path matches."""
        places = self.start
        for name in path.split("/"):
            places = self.step(places, name)
        return self.complete(places)

    def _closed(self, places: set[tuple[int, int]]) -> Places:
        """Return the positions with those behind each `**` added, because `**` also matches no folder at all."""
        closed = set(places)
        for alternative, part in places:
            parts = self._alternatives[alternative]
            while part < len(parts) and parts[part] is None:
                part += 1
                closed.add((alternative, part))
        return frozenset(closed)


def expand(pattern: str) -> list[str]:
    """Return the patterns to which `{a,b}` expands, nested ones too. A brace without an end is an ordinary character.
    Raises Refused for too many patterns."""
    done: list[str] = []
    todo = [pattern]
    while todo:
        text = todo.pop(0)
        braces = _first_braces(text)
        if braces is None:
            done.append(text)
        else:
            start, end, choices = braces
            todo[:0] = [text[:start] + choice + text[end:] for choice in choices]
        if len(done) + len(todo) > _ALTERNATIVES:
            raise Refused("cannot use this pattern", "its braces expand to too many patterns", "use fewer braces")
    return done


def _first_braces(text: str) -> tuple[int, int, list[str]] | None:
    """Return the first brace group that closes: its start, its end, and its choices."""
    at = 0
    while at < len(text):
        if text[at] == "\\":
            at += 2
            continue
        if text[at] == "{" and (group := _close(text, at)) is not None:
            return group
        at += 1
    return None


def _close(text: str, start: int) -> tuple[int, int, list[str]] | None:
    depth, at, choices, begin = 0, start, [], start + 1
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 1
        elif char == "{":
            depth += 1
        elif char == "," and depth == 1:
            choices.append(text[begin:at])
            begin = at + 1
        elif char == "}":
            depth -= 1
            if depth == 0:
                return start, at + 1, [*choices, text[begin:at]]
        at += 1
    return None


def _parts(pattern: str) -> list["re.Pattern[str] | None"]:
    """Return one matcher for each name; None is `**`. A pattern that ends in `**` matches the files below."""
    parts: list[re.Pattern[str] | None] = []
    for part in pattern.split("/"):
        if part in ("", "."):
            continue
        if part == "**":
            if not parts or parts[-1] is not None:
                parts.append(None)
        else:
            parts.append(_name(part))
    if parts and parts[-1] is None:
        parts.append(_name("*"))
    return parts


def _name(pattern: str) -> "re.Pattern[str]":
    """Compile a pattern for one name. Each star is atomic once the text after it is found, so matching takes little
    time.
    """
    import re

    fixed: list[str] = [""]
    at = 0
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "*":
            if fixed[-1] or len(fixed) == 1:
                fixed.append("")
        elif char == "?":
            fixed[-1] += "."
        elif char == "[" and (end := pattern.find("]", at + 1 + (pattern[at : at + 1] in ("!", "^"))) + 1):
            # `]` closes the set, unless it is the first character in it.
            fixed[-1] += _set(pattern[at : end - 1])
            at = end
        elif char == "\\" and at < len(pattern):
            fixed[-1] += re.escape(pattern[at])
            at += 1
        else:
            fixed[-1] += re.escape(char)
    text = fixed[0]
    if len(fixed) > 1:
        text += "".join(f"(?>.*?{piece})" for piece in fixed[1:-1]) + f".*{fixed[-1]}"
    try:
        return re.compile(text, re.DOTALL)
    except re.error as error:
        what = f"cannot use the pattern `{pattern[:100]}`"
        raise Refused(what, f"{error.msg}", "correct the `[...]` in it") from None


def _set(inner: str) -> str:
    negated = inner[0] in "!^"
    members = inner[1:] if negated else inner
    for char in ("\\", "[", "]", "^", "&", "~", "|"):
        members = members.replace(char, "\\" + char)
    members = members.replace("--", "-\\-")  # the same to `re`, without its warning
    return f"[{'^' if negated else ''}{members}]"
