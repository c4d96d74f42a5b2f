"""Replacement of one exact piece of a text file, or a precise reason why it failed. Runs confined: standard library
only.
"""

import os

from sandbox.inside.files.access import CAP, Refused, digest, is_binary, read_capped, regular, show
from sandbox.inside.files.diff import unified
from sandbox.inside.files.write import lines_of, put

_BOM = "\ufeff"
_SHOWN = 20  # line numbers that a Problem lists
_CLOSE = 2000  # lines among which the closest one is looked for


def edit_file(path: str, old: str, new: str, replace_all: bool, seen: str | None) -> dict[str, object]:
    """Replace `old` by `new` in `path`: its only occurrence, or with `replace_all` all occurrences. Raises Refused.

    `seen` is the digest of the file when it was last read, or None. Line ends and a byte order mark are kept: in a file
    whose lines all end in CR LF, newlines in `old` and `new` mean CR LF. Bytes that are not UTF-8 are kept too.
    """
    what = f"cannot edit `{show(path)}`"
    real = os.path.realpath(path)
    state = regular(path, what)
    before, more = read_capped(real, what)
    edited = replacement(before, more, old, new, replace_all, seen, what)
    diff, dropped = unified(visible(edited.text), visible(edited.changed), show(path))
    notes = put(real, edited.after, state, before, what)
    written = {"real": show(real), "sha256": digest(edited.after), "size": len(edited.after)}
    counts = {"lines": lines_of(edited.after), "count": edited.count}
    return {**written, **counts, "diff": diff, "dropped": dropped, "notes": notes}


class Replacement:
    """The result of a replacement, before it is written.

    Attributes:
        text: the text before, with LF for CR LF.
        changed: the text after, with LF for CR LF.
        after: the content to write.
        count: the number of replaced occurrences.
    """

    def __init__(self, text: str, changed: str, after: bytes, count: int) -> None:
        self.text, self.changed, self.after, self.count = text, changed, after, count


def replacement(
    before: bytes,
    more: bool,
    old: str,
    new: str,
    replace_all: bool,
    seen: str | None,
    what: str,
    *,
    hint: bool = True,
) -> Replacement:
    """Return the result of replacing `old` by `new` in the content `before`. Raises Refused if that is not possible.

    `more` is True if `before` is only the first part of the file. `what` names the attempt. With `hint` the error names
    the closest line, which takes up to a second. No file is opened.
    """
    if not old:
        raise Refused(what, "the text to replace is empty", "give the exact text to replace, or use `write`")
    if old == new:
        raise Refused(what, "the old and the new text are the same", "give a new text that differs")
    if more:
        raise Refused(what, f"it is larger than {CAP >> 20} MiB", "change it with a command such as `sed -i`")
    if is_binary(before):
        raise Refused(what, "it is a binary file", "change it with a program that knows its format")
    if seen is not None and digest(before) != seen:
        raise Refused(what, "it changed since you last read it", "read it again, then edit its current content")
    text = before.decode("utf-8", "surrogateescape")
    mark = _BOM if text.startswith(_BOM) else ""
    text = text.removeprefix(mark)
    crlf = "\r\n" in text and text.count("\r\n") == text.count("\n")
    if crlf:
        text, old, new = (piece.replace("\r\n", "\n") for piece in (text, old, new))
    count = text.count(old)
    if count == 0:
        fix = "copy the text exactly as `read` shows it, without line numbers"
        raise Refused(what, f"the old text is not in the file{', ' + near_miss(text, old) if hint else ''}", fix)
    if count > 1 and not replace_all:
        fix = "add surrounding lines until the text is unique, or set `replace_all` to true"
        raise Refused(what, f"the old text is in the file {count:,} times, {places(text, old)}", fix)
    changed = text.replace(old, new)
    after = (mark + (changed.replace("\n", "\r\n") if crlf else changed)).encode("utf-8", "surrogateescape")
    if len(after) > CAP:
        raise Refused(what, f"the result would be larger than {CAP >> 20} MiB", "replace less at a time")
    return Replacement(text, changed, after, count)


def visible(text: str) -> str:
    """Return the text for display: bytes that are not UTF-8 become the replacement character."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def places(text: str, old: str) -> str:
    """Return the lines on which `old` begins, in words. Overlaps do not count, because a replacement would not
    change them.
    """
    numbers: list[int] = []
    at, line, done = text.find(old), 1, 0
    total = 0
    while at >= 0:
        line += text.count("\n", done, at)
        done = at
        if len(numbers) < _SHOWN:
            numbers.append(line)
        total += 1
        at = text.find(old, at + len(old))
    listed = ", ".join(str(number) for number in numbers)
    return f"on lines {listed}" + (f" and {total - _SHOWN:,} more" if total > _SHOWN else "")


def near_miss(text: str, old: str) -> str:
    """Return the part of `text` that is closest to `old`, in words. The time is bounded for any pair."""
    import difflib
    import re

    numbered = re.compile(r"^ *\d+\t", re.MULTILINE)
    if numbered.match(old) and (bare := numbered.sub("", old)) in text:
        return (
            f"but it is on line {text.count(chr(10), 0, text.find(bare)) + 1} without the line numbers that `read` adds"
        )
    wanted = [line.strip() for line in old.strip("\n").split("\n")]
    lines = text.split("\n")
    stripped = [line.strip() for line in lines]
    if any(wanted):
        for index in range(len(stripped) - len(wanted) + 1):
            if stripped[index] == wanted[0] and stripped[index : index + len(wanted)] == wanted:
                return f"but line {index + 1} differs from it in spaces or tabs only"
    first = next((line for line in wanted if line), "")
    if not first:
        return "and it has only empty lines"
    known: dict[str, int] = {}
    for index, line in enumerate(stripped):
        if line and len(known) < _CLOSE:
            known.setdefault(line[:200], index)
    close = difflib.get_close_matches(first[:200], known, n=1, cutoff=0.5)
    if not close:
        return "and no line is similar to its first line"
    index = known[close[0]]
    return f"the closest line is {index + 1}: `{visible(lines[index].strip())[:200]}`"
