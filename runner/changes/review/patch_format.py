"""The format of a patch, as in git-diff(1) ("generating patch text with -p") and git-apply(1)."""

import base64
import hashlib
import zlib
from collections.abc import Iterator, Sequence

from policy.model.frozen import dataclass
from sandbox.inside.files.diff import Effort, around, changes, grouped
from sandbox.workspace.inventory import TreeNode

NOTHING = "0" * 40
FILE, PROGRAM, LINK = "100644", "100755", "120000"
_LONGEST = 8 << 20  # bytes of a text that is compared line by line
_USUAL = 4_000_000  # steps of comparing one pair of texts, which take some seconds


@dataclass(frozen=True, slots=True)
class Side:
    """A file or link in a patch. `mode` is FILE, PROGRAM or LINK; the `data` of a link is its target."""

    mode: str
    data: bytes

    @property
    def blob(self) -> str:
        """Return the name that Git gives to the content."""
        head = b"blob %d\0" % len(self.data)
        return hashlib.sha1(head + self.data, usedforsecurity=False).hexdigest()


@dataclass(frozen=True, slots=True)
class Hunk:
    """One hunk of a patch.

    Attributes:
        old: first line in the old text, from 0, and the number of lines.
        new: first line in the new text, from 0, and the number of lines.
        lines: each line after ` `, `-` or `+`. A line has no line break at its end if the file has none there.
    """

    old: tuple[int, int]
    new: tuple[int, int]
    lines: tuple[bytes, ...]


def split(data: bytes) -> list[bytes]:
    """Return the lines with their line breaks, which are `\\n` alone. The last line may have no line break."""
    lines = data.split(b"\n")
    last = lines.pop()
    return [line + b"\n" for line in lines] + ([last] if last else [])


def hunks(old: Sequence[bytes], new: Sequence[bytes], effort: Effort | None = None) -> Iterator[Hunk]:
    """Yield the hunks that turn `old` into `new`, in order. `effort` is charged for the comparison."""
    own = Effort(_USUAL) if effort is None else Effort(min(_USUAL, effort.left), effort.over)
    before = own.left
    stretches = changes(old, new, own)
    if effort is not None:
        effort.left -= before - own.left
    for group in grouped(stretches):
        start, end, first, last = around(group, len(old))
        lines: list[bytes] = []
        at = start
        for old_start, old_end, new_start, new_end in group:
            lines += [b" " + line for line in old[at:old_start]]
            lines += [b"-" + line for line in old[old_start:old_end]]
            lines += [b"+" + line for line in new[new_start:new_end]]
            at = old_end
        lines += [b" " + line for line in old[at:end]]
        yield Hunk((start, end - start), (first, last - first), tuple(lines))


def node_of(side: Side | None) -> TreeNode | None:
    """Return the state of a path for the inventory of auto-run files."""
    return TreeNode("link" if side.mode == LINK else "file", side.data) if side is not None else None


def quoted(name: bytes) -> bytes:
    """Return a name as git-diff(1) writes it: in C's quotes if it contains a quote, a backslash, or anything but
    printable ASCII.
    """
    if all(0x20 <= byte < 0x7F and byte not in b'"\\' for byte in name):
        return name
    signs = (_ESCAPES.get(byte) or (bytes([byte]) if 0x20 <= byte < 0x7F else b"\\%03o" % byte) for byte in name)
    return b'"' + b"".join(signs) + b'"'


_ESCAPES = {7: b"\\a", 8: b"\\b", 9: b"\\t", 10: b"\\n", 11: b"\\v", 12: b"\\f", 13: b"\\r", 34: b'\\"', 92: b"\\\\"}


def changed(path: bytes, old: Side | None, new: Side | None, effort: Effort | None = None) -> bytes:
    """Return the section of a patch about one path. A side of None means that the path does not exist there."""
    if old is not None and new is not None and (old.mode == LINK) != (new.mode == LINK):
        return changed(path, old, None, effort) + changed(path, None, new, effort)  # as in git-diff(1)
    lines = [b"diff --git %s %s" % (quoted(b"a/" + path), quoted(b"b/" + path))]
    lines += _modes(old, new)
    before, after = old.blob if old else NOTHING, new.blob if new else NOTHING
    if before == after:
        return b"\n".join(lines) + b"\n"
    mode = f" {new.mode}" if old is not None and new is not None and old.mode == new.mode else ""
    lines.append(f"index {before}..{after}{mode}".encode())
    old_data, new_data = old.data if old else b"", new.data if new else b""
    head = b"\n".join(lines) + b"\n"
    if binary(old_data) or binary(new_data):
        return head + b"GIT binary patch\n" + _literal(new_data) + _literal(old_data)
    body = b"".join(_hunks(old_data, new_data, effort))
    if not body:
        return head  # an empty file was added or deleted
    names = (quoted(b"a/" + path) if old else b"/dev/null", quoted(b"b/" + path) if new else b"/dev/null")
    # A tab ends a name with spaces: some readers would read the text after a space as a time.
    marks = [name + b"\t" if b" " in name and not name.startswith(b'"') else name for name in names]
    return head + b"--- %s\n+++ %s\n" % (marks[0], marks[1]) + body


def renamed(old_path: bytes, new_path: bytes, old: Side, new: Side) -> bytes:
    """Return the section of a patch about a file that was renamed with the same content."""
    lines = [b"diff --git %s %s" % (quoted(b"a/" + old_path), quoted(b"b/" + new_path))]
    lines += _modes(old, new)
    lines += [b"similarity index 100%", b"rename from " + quoted(old_path), b"rename to " + quoted(new_path)]
    return b"\n".join(lines) + b"\n"


def binary(data: bytes) -> bool:
    """Return True if a patch must not contain the content as lines of text."""
    return b"\0" in data or len(data) > _LONGEST


def _modes(old: Side | None, new: Side | None) -> list[bytes]:
    if old is None:
        return [f"new file mode {new.mode}".encode()] if new is not None else []
    if new is None:
        return [f"deleted file mode {old.mode}".encode()]
    return [f"old mode {old.mode}".encode(), f"new mode {new.mode}".encode()] if old.mode != new.mode else []


def _hunks(old: bytes, new: bytes, effort: Effort | None) -> list[bytes]:
    parts = []
    for hunk in hunks(split(old), split(new), effort):
        parts.append(b"@@ -%s +%s @@\n" % (_range(hunk.old), _range(hunk.new)))
        for line in hunk.lines:
            parts.append(line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n")
    return parts


def _range(part: tuple[int, int]) -> bytes:
    start, count = part
    shown = start + 1 if count else start  # an empty range is shown by the line before it
    return b"%d" % shown if count == 1 else b"%d,%d" % (shown, count)


def _literal(data: bytes) -> bytes:
    packed = zlib.compress(data)
    lines = [b"literal %d\n" % len(data)]
    for start in range(0, len(packed), 52):
        piece = packed[start : start + 52]
        length = len(piece) + (64 if len(piece) <= 26 else 70)  # A to Z, then a to z
        lines.append(bytes([length]) + base64.b85encode(piece, pad=True) + b"\n")
    return b"".join(lines) + b"\n"
