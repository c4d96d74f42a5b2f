"""A short unified diff, bounded in time and size for any two texts. Stdlib only: this runs confined."""

CONTEXT = 3
DIFF_LINES = 120  # lines of one diff
LINE_CAP = 300  # characters of one line of a diff
_CLOSE = 1000  # changed lines up to which the smallest difference is looked for; its cost is quadratic

_NO_END = "\\ no newline at the end of the file"

Span = tuple[str, int, int, int, int]


def unified(before: str, after: str, name: str) -> tuple[list[str], int]:
    """Unified diff lines of the two texts, and how many more lines were left out. Nothing when they are equal."""
    if before == after:
        return [], 0
    old, new = _lines(before), _lines(after)
    shown: list[str] = [f"--- {name}", f"+++ {name}"]
    dropped = 0
    for group in _hunks(_spans(old, new)):
        first, last = group[0], group[-1]
        header = f"@@ -{_range(first[1], last[2])} +{_range(first[3], last[4])} @@"
        body = [header, *_hunk(group, old, new)]
        room = max(DIFF_LINES - len(shown), 0)
        shown += [line if len(line) <= LINE_CAP else line[:LINE_CAP] + " [...]" for line in body[:room]]
        dropped += max(len(body) - room, 0)
    return shown, dropped


def _lines(text: str) -> list[str]:
    """Lines with their ends, split at newlines only."""
    lines = text.split("\n")
    last = lines.pop()
    return [line + "\n" for line in lines] + ([last] if last else [])


def _spans(old: list[str], new: list[str]) -> list[Span]:
    """difflib's opcodes for the middle that differs; the equal start and end, most of a file, are cut off first."""
    import difflib

    start = _same_start(old, new)
    end = _same_start(old[start:][::-1], new[start:][::-1])
    middle_old, middle_new = old[start : len(old) - end], new[start : len(new) - end]
    spans: list[Span] = [("equal", 0, start, 0, start)] if start else []
    if len(middle_old) + len(middle_new) > _CLOSE:
        spans.append(("replace", start, start + len(middle_old), start, start + len(middle_new)))
    else:
        for tag, a, b, c, d in difflib.SequenceMatcher(None, middle_old, middle_new).get_opcodes():
            spans.append((tag, start + a, start + b, start + c, start + d))
    if end:
        spans.append(("equal", len(old) - end, len(old), len(new) - end, len(new)))
    return spans


def _same_start(old: list[str], new: list[str]) -> int:
    count = 0
    for one, other in zip(old, new, strict=False):
        if one != other:
            break
        count += 1
    return count


def _hunks(spans: list[Span]) -> list[list[Span]]:
    """Spans in groups, each with at most CONTEXT equal lines around its changes."""
    groups: list[list[Span]] = []
    group: list[Span] = []
    for index, (tag, a, b, c, d) in enumerate(spans):
        if tag != "equal":
            group.append((tag, a, b, c, d))
            continue
        head, tail = index > 0, index < len(spans) - 1
        if head and tail and b - a <= 2 * CONTEXT:
            group.append((tag, a, b, c, d))
            continue
        if head:
            group.append((tag, a, min(b, a + CONTEXT), c, min(d, c + CONTEXT)))
            groups.append(group)
            group = []
        if tail:
            group = [(tag, max(a, b - CONTEXT), b, max(c, d - CONTEXT), d)]
    return [*groups, group] if any(span[0] != "equal" for span in group) else groups


def _hunk(group: list[Span], old: list[str], new: list[str]) -> list[str]:
    body: list[str] = []
    for tag, a, b, c, d in group:
        if tag == "equal":
            body += _marked(" ", old[a:b])
        else:
            body += _marked("-", old[a:b]) + _marked("+", new[c:d])
    return body


def _marked(mark: str, lines: list[str]) -> list[str]:
    marked: list[str] = []
    for line in lines:
        marked.append(mark + line.removesuffix("\n"))
        if not line.endswith("\n"):
            marked.append(_NO_END)
    return marked


def _range(start: int, stop: int) -> str:
    """A hunk's range as diff writes it: from 1, the count left out when it is one, and the line before an empty one."""
    count = stop - start
    if count == 1:
        return str(start + 1)
    return f"{start + 1 if count else start},{count}"
