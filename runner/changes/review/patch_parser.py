"""The parser of patches: the format of git-diff(1) and plain unified diffs (diff(1) -u). The author is not trusted.

Input that is not understood is an error that names the line; nothing is guessed.
"""

import base64
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import replace

from policy.model.frozen import dataclass
from policy.model.verdict import Problem, ProblemError
from runner.changes.review.patch_format import FILE, LINK, NOTHING, PROGRAM, Hunk
from runner.facts.git.delta import size_in

LARGEST = 512 << 20  # bytes of all contents of binary files in one patch, decompressed: the limit of `patch` as well
_HUNK = re.compile(rb"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_INDEX = re.compile(rb"index ([0-9a-f]{4,64})\.\.([0-9a-f]{4,64})(?: (\d{6}))?\s*\Z")
_MODES = {b"100644": FILE, b"100664": FILE, b"100600": FILE, b"100755": PROGRAM, b"100775": PROGRAM, b"120000": LINK}


class PatchError(ProblemError):
    """An error for a patch that cannot be read or does not fit. `problem` has the details."""


@dataclass(frozen=True, slots=True)
class Binary:
    """The content of a binary file, or a delta from the other side's content, as in Git's packs."""

    delta: bool
    data: bytes


@dataclass(frozen=True, slots=True)
class Section:
    """The part of a patch about one file.

    Attributes:
        line: The first line of the section, from 1.
        old: The old path, or None for a new file.
        new: The new path, or None for a deleted file.
        old_mode: The old mode, or None if the patch does not state it.
        new_mode: The new mode, or None if the patch does not state it.
        hunks: The hunks of a text file.
        forth: The new content of a binary file.
        back: The old content of a binary file.
        blobs: Git's names of both contents, as far as they are written.
        same: True if the old file stays (a copy).
    """

    line: int
    old: str | None
    new: str | None
    old_mode: str | None = None
    new_mode: str | None = None
    hunks: tuple[Hunk, ...] = ()
    forth: Binary | None = None
    back: Binary | None = None
    blobs: tuple[str, str] = ("", "")
    same: bool = False

    @property
    def path(self) -> str:
        """Return the new path, or the old path of a deleted file."""
        return self.new if self.new is not None else str(self.old)

    def reversed(self) -> "Section":
        """Return the section that reverts this one. Raise PatchError for a binary part without the old content."""
        if self.forth is not None and self.back is None:
            raise _wrong(self.line, "it does not contain the old content of this file", "apply it without --reverse")
        if self.same:
            return replace(self, old=self.new, new=None, old_mode=self.new_mode, new_mode=None, same=False)
        turned = tuple(Hunk(hunk.new, hunk.old, tuple(_turned(hunk.lines))) for hunk in self.hunks)
        return replace(
            self, old=self.new, new=self.old, old_mode=self.new_mode, new_mode=self.old_mode, hunks=turned,
            forth=self.back, back=self.forth, blobs=self.blobs[::-1],
        )  # fmt: skip


def _turned(lines: tuple[bytes, ...]) -> Iterator[bytes]:
    """Yield the lines with swapped signs, removed lines before added ones."""
    coming: list[bytes] = []
    for line in lines:
        sign, rest = line[:1], line[1:]
        if sign == b"-":
            coming.append(b"+" + rest)
        elif sign == b"+":
            yield b"-" + rest
        else:
            yield from coming
            coming = []
            yield line
    yield from coming


def read(data: bytes) -> tuple[Section, ...]:
    """Return every section, in order. Text around them, such as the head of a mail, is skipped. Raise PatchError.

    A patch without any text, such as that of `git diff` without changes, has no section.
    """
    sections = tuple(_PatchReader(data).sections())
    if not sections and data.strip():
        why = "it contains no line `diff --git`, and no `---` with `+++`"
        fix = "use a file of `git diff` or `agent ci --patch`"
        raise PatchError(Problem("this is not a patch", why, fix))
    return sections


class _PatchReader:
    def __init__(self, data: bytes) -> None:
        self._lines = data.split(b"\n")
        if self._lines[-1] == b"":
            self._lines.pop()
        self._at = 0
        self._left = LARGEST  # THREAT T119: a few bytes of a patch can decompress to a gigabyte, many times

    def sections(self) -> Iterator[Section]:
        while (line := self._line()) is not None:
            if line.startswith(b"diff --git "):
                yield self._git(line)
            elif line.startswith((b"diff --cc ", b"diff --combined ")):
                raise self._wrong("it is the diff of a merge, which has two old sides", "make one with `git diff A B`")
            elif line.startswith(b"--- ") and (self._line(1) or b"").startswith(b"+++ "):
                yield self._plain(Section(self._at + 1, None, None))
            elif _HUNK.match(line):
                raise self._wrong("the file of this hunk is not named", "get the whole patch")
            else:
                self._at += 1

    def _line(self, ahead: int = 0) -> bytes | None:
        at = self._at + ahead
        return self._lines[at] if at < len(self._lines) else None

    def _git(self, head: bytes) -> Section:
        section = Section(self._at + 1, None, None)
        both = self._both(head[len(b"diff --git ") :])
        old: str | None = both
        new: str | None = both
        self._at += 1
        while (line := self._line()) is not None:
            word = line.partition(b" ")[0]
            if line.startswith((b"old mode ", b"deleted file mode ")):
                section = replace(section, old_mode=self._mode(line.partition(b"mode ")[2]))
                new = None if word == b"deleted" else new
            elif line.startswith((b"new mode ", b"new file mode ")):
                section = replace(section, new_mode=self._mode(line.partition(b"mode ")[2]))
                old = None if line.startswith(b"new file") else old
            elif line.startswith((b"rename from ", b"copy from ")):
                old = self._name(line.split(b" from ", 1)[1])
                section = replace(section, same=word == b"copy")
            elif line.startswith((b"rename to ", b"copy to ")):
                new = self._name(line.split(b" to ", 1)[1])
            elif match := _INDEX.match(line):
                blobs = match[1].decode(), match[2].decode()
                section = replace(section, blobs=blobs)
                if match[3]:
                    mode = self._mode(match[3])
                    section = replace(section, old_mode=mode, new_mode=mode)
            elif not line.startswith((b"similarity index ", b"dissimilarity index ")):
                break
            self._at += 1
        section = replace(section, old=old, new=new)
        line = self._line() or b""
        if line.startswith(b"GIT binary patch"):
            self._at += 1
            forth = self._binary()
            more = (self._line() or b"").startswith((b"literal ", b"delta "))
            section = replace(section, forth=forth, back=self._binary() if more else None)
        elif line.startswith(b"Binary files "):
            raise self._wrong("it says that a file differs, but not the difference", "make it with `git diff --binary`")
        elif line.startswith(b"--- ") and (self._line(1) or b"").startswith(b"+++ "):
            section = self._plain(section)
        if section.old is None and section.new is None:
            raise self._wrong("it does not name its file", "make it with `git diff`")
        return section

    def _plain(self, section: Section) -> Section:
        """Parse the lines `---` and `+++` and the hunks."""
        old, new = self._side(self._lines[self._at][4:]), self._side(self._lines[self._at + 1][4:])
        if section.old is not None or section.new is not None:  # earlier lines named the files: the names must be equal
            if (old is not None and old != section.old) or (new is not None and new != section.new):
                raise self._wrong("the lines above name another file", "get the patch again")
        else:
            section = replace(section, old=old, new=new)
            if old is not None and new is not None and old != new:
                section = replace(section, old=new)  # diff(1) compared two folders, or `x.orig` with `x`
        self._at += 2
        hunks = []
        while (line := self._line()) is not None and (match := _HUNK.match(line)):
            self._at += 1
            hunks.append(self._hunk(match))
        if not hunks:
            raise self._wrong("no hunk follows", "get the whole patch")
        return replace(section, hunks=tuple(hunks))

    def _hunk(self, match: "re.Match[bytes]") -> Hunk:
        old_at, old_left = int(match[1]), int(match[2] or 1)
        new_at, new_left = int(match[3]), int(match[4] or 1)
        counts = old_left, new_left
        lines: list[bytes] = []
        while old_left or new_left or (self._line() or b"").startswith(b"\\"):
            line = self._line()
            if line is None:
                raise self._wrong("it ends in the middle of a hunk", "get the whole patch")
            sign = line[:1] or b" "  # an editor may have removed the blank of an empty context line
            if sign == b"\\":
                if not lines or not lines[-1].endswith(b"\n"):
                    raise self._wrong("`\\` stands for no line", "get the patch again")
                lines[-1] = lines[-1][:-1]
                self._at += 1
                continue
            if sign not in b" +-" or (sign != b"+" and not old_left) or (sign != b"-" and not new_left):
                raise self._wrong("the hunk does not have the length in its header", "get the patch again")
            old_left -= sign != b"+"
            new_left -= sign != b"-"
            lines.append(sign + line[1:] + b"\n")
            self._at += 1
        return Hunk(
            (max(old_at - (counts[0] > 0), 0), counts[0]), (max(new_at - (counts[1] > 0), 0), counts[1]), tuple(lines)
        )

    def _binary(self) -> Binary:
        head = (self._line() or b"").split(b" ")
        if len(head) != 2 or head[0] not in (b"literal", b"delta") or not head[1].isdigit():
            raise self._wrong("the content of a binary file is missing", "make it with `git diff --binary`")
        size = int(head[1][:20])
        self._take(size)
        self._at += 1
        packed = []
        while line := self._line():
            length = line[0] - 64 if 65 <= line[0] <= 90 else line[0] - 70 if 97 <= line[0] <= 122 else 0
            try:
                piece = base64.b85decode(line[1:])
            except ValueError:
                piece = b""
            if not 0 < length <= len(piece) < length + 4:
                raise self._wrong("a line of a binary file is damaged", "get the patch again")
            packed.append(piece[:length])
            self._at += 1
        self._at += 1
        inflate = zlib.decompressobj()
        try:
            data = inflate.decompress(b"".join(packed), size + 1)
        except zlib.error:
            data = b""
        if len(data) != size or not inflate.eof:
            raise self._wrong("the content of a binary file is damaged", "get the patch again")
        delta = head[0] == b"delta"
        if delta:
            try:
                self._take(size_in(data, size_in(data, 0)[1])[0])
            except IndexError:
                raise self._wrong("the content of a binary file is damaged", "get the patch again") from None
        return Binary(delta, data)

    def _take(self, size: int) -> None:
        """Count a content of `size` bytes. Raise PatchError if all contents together are larger than LARGEST."""
        self._left -= size
        if self._left < 0:
            raise self._wrong(f"a content of {size:,} bytes is too large", "copy that file by hand")

    def _mode(self, text: bytes) -> str:
        mode = _MODES.get(text.strip())
        if mode is None:
            module = text.strip() == b"160000"
            why = "it changes another repository inside this one" if module else "it is not a file or link"
            raise self._wrong(f"{why} (mode {text.strip()[:20].decode('latin-1')})", "remove that part")
        return mode

    def _both(self, text: bytes) -> str | None:
        """Return the name in `a/name b/name` if both names are equal, else None: then other lines name the files."""
        if text.startswith(b'"') or text.endswith(b'"'):
            names = []
            while text:
                if text.startswith(b'"'):
                    name, text = _unquoted(text) or (b"", b"")
                else:
                    name, _, text = text.partition(b" ")
                names.append(name)
                text = text.removeprefix(b" ")
            if len(names) != 2:
                return None
            first, second = names
        else:
            half = len(text) // 2
            first, second = text[:half], text[half + 1 :]
        one, other = first.partition(b"/")[2], second.partition(b"/")[2]
        return os.fsdecode(one) if one and one == other else None

    def _side(self, text: bytes) -> str | None:
        if text.startswith(b'"'):
            name = (_unquoted(text) or (b"", b""))[0]
        else:
            name = text.partition(b"\t")[0].removesuffix(b"\r")
        if name == b"/dev/null":
            return None
        inner = name.partition(b"/")[2]
        if not inner:
            fix = "make it with `git diff`, or diff two folders"
            raise self._wrong("a name has no folder in front, such as `a/`", fix)
        return os.fsdecode(inner)

    def _name(self, text: bytes) -> str:
        if text.startswith(b'"'):
            text = (_unquoted(text) or (b"", b""))[0]
        if not text:
            raise self._wrong("a name is missing or wrongly quoted", "get the patch again")
        return os.fsdecode(text)

    def _wrong(self, why: str, fix: str) -> PatchError:
        return _wrong(self._at + 1, why, fix)


def _wrong(line: int, why: str, fix: str) -> PatchError:
    return PatchError(Problem(f"the patch cannot be used: line {line}", why, fix))


_PLAIN = {ord("a"): 7, ord("b"): 8, ord("t"): 9, ord("n"): 10, ord("v"): 11, ord("f"): 12, ord("r"): 13, 34: 34, 92: 92}


def _unquoted(text: bytes) -> tuple[bytes, bytes] | None:
    """Return a name in C's quotes, and the rest of the text, or None if the quotes are invalid."""
    out, at = bytearray(), 1
    while at < len(text):
        byte = text[at]
        if byte == 34:
            return bytes(out), text[at + 1 :]
        if byte != 92:
            out.append(byte)
            at += 1
            continue
        code = text[at + 1 : at + 4]
        if code[:1] and code[0] in _PLAIN:
            out.append(_PLAIN[code[0]])
            at += 2
        elif len(code) == 3 and all(48 <= digit <= 55 for digit in code) and code[0] < 52:
            out.append(int(code, 8))
            at += 4
        else:
            return None
    return None


def plain_blob(name: str) -> str:
    """Return the name of a content if it is complete, else an empty string."""
    return name if len(name) == len(NOTHING) and name != NOTHING else ""
