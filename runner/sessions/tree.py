"""The index of a session file: the valid lines, and the branch that leads to the last one.

A line is valid if it parses, its id is new, and its parent is a valid line above it. The valid lines therefore form a
tree without cycles, whatever was written into the file. An invalid line is left out with all its descendants. The
branch ends at the last valid line.

A session may have a hundred thousand lines. The index reads each line once, by the beginning that the journal writes,
and stores numbers. Contents are parsed on request, for lines of the branch only.
"""

import re
from array import array
from collections.abc import Collection, Iterator
from typing import BinaryIO

from policy.model.frozen import dataclass
from runner.sessions.entries import KINDS, LONGEST, JournalEntry, Unsound, parse

# A line as `entries.line` begins it. Anything else (edited by hand) is parsed whole.
_OURS = re.compile(rb'\{"id":"([0-9]{1,15})","parentId":"([0-9]{1,15})","time":"[0-9TZ:.+-]{0,40}","type":"([a-z]+)",')
_TOLD = 20  # damaged lines that are described; the others are only counted
_TYPES = tuple(KINDS)  # `session` is the first: its number 0 leads to the check of the first line
_CODE = {name.encode(): number for number, name in enumerate(_TYPES)}


@dataclass(frozen=True, slots=True)
class Damage:
    """A line that was left out, with its number from 1. `why` is the cause in words for the user."""

    line: int
    why: str


class Tree:
    """The index of one file: its valid lines in the order of the file."""

    def __init__(self, file: BinaryIO) -> None:
        """Read the file from its beginning and keep it open for `entries`. Raise Unsound if it is not a session."""
        self._file = file
        self._offsets = array("q")
        self._lines = array("l")
        self._parents = array("l")
        self._kinds = bytearray()
        self.damages: list[Damage] = []
        self.damaged = 0  # lines that are invalid themselves; `damages` describes the first of them
        self.orphans = 0  # valid lines that descend from an invalid line
        self.torn = 0  # bytes of an incomplete last line
        self.unended = False  # the last line is complete except for its newline
        self.whole_end = True  # the last line of the file is valid, so the branch ends with the latest message
        self.last_id = 0
        self.end = 0  # the offset of the next line
        self._read()

    def __len__(self) -> int:
        return len(self._offsets)

    def _read(self) -> None:
        self._file.seek(0)
        known: dict[bytes, int] = {}
        lost: set[bytes] = set()
        offset = number = 0
        code, match, at_of = _CODE, _OURS.match, known.get
        add_offset, add_line = self._offsets.append, self._lines.append
        add_parent, add_kind = self._parents.append, self._kinds.append
        read = self._file.readline
        while raw := read(LONGEST + 2):
            number += 1
            size = len(raw)
            kind = None
            if raw[-2:] == b"}\n" and known and (fields := match(raw)) is not None:
                id, parent, name = fields.groups()
                kind = code.get(name)
            if not kind:
                ended = raw[-1] == 10
                if not ended and size > LONGEST:
                    more, ended = self._skip()
                    size += more
                try:
                    entry = parse(raw)
                except Unsound as error:
                    if not ended:
                        self.torn = size
                        break
                    self._damage(number, str(error), known)
                    offset += size
                    continue
                if raw[-1] != 10:
                    self.unended = True
                id, parent, kind = entry.id.encode(), (entry.parent or "").encode(), _TYPES.index(entry.type)
                if (entry.type == "session") != (not known):
                    self._damage(number, "only the first line may begin a session", known)
                    lost.add(id)
                    offset += size
                    continue
            at = at_of(parent, -1)
            if at < 0 and known:
                self.orphans += 1
                self.whole_end = False
                if parent not in lost and len(self.damages) < _TOLD:  # a parent that was left out is reported there
                    self.damages.append(Damage(number, "no valid line above it is its parent"))
                lost.add(id)
            elif id in known or (lost and id in lost):
                self._damage(number, f"its id {id.decode()} is used by an earlier line", known)
            else:
                known[id] = len(known)
                add_offset(offset)
                add_line(number)
                add_parent(at)
                add_kind(kind)
                self.whole_end = True
            offset += size
        self.end = offset
        self.last_id = max(map(int, known), default=0)
        if not known:
            raise Unsound("it is empty" if not number else "its first line does not begin a session")

    def _skip(self) -> tuple[int, bool]:
        """Skip the rest of a line that is too long. Return its size, and True if the line has an end."""
        size = 0
        while more := self._file.readline(1 << 20):
            size += len(more)
            if more[-1] == 10:
                return size, True
        return size, False

    def _damage(self, line: int, why: str, known: Collection[bytes]) -> None:
        if not known:
            raise Unsound(f"its first line does not begin a session: {why}")
        self.damaged += 1
        self.whole_end = False
        if len(self.damages) < _TOLD:
            self.damages.append(Damage(line, why))

    def path(self) -> list[int]:
        """Return the lines of the branch from the first line to the last valid one, each the parent of the next."""
        path, at = [], len(self._offsets) - 1
        while at >= 0:
            path.append(at)
            at = self._parents[at]
        path.reverse()
        return path

    def type(self, at: int) -> str:
        return _TYPES[self._kinds[at]]

    def id(self, at: int) -> str:
        """Return the id of a line, even if its content turns out to be invalid."""
        _, _, raw = next(self.lines((at,), _TYPES))
        fields = _OURS.match(raw)
        return fields[1].decode() if fields is not None else parse(raw).id

    def line(self, at: int) -> int:
        """Return the number of a line in the file, from 1."""
        return self._lines[at]

    def lines(self, path: Collection[int], types: Collection[str]) -> Iterator[tuple[int, str, bytes]]:
        """Yield the lines of `path` with one of `types`, each with its type and its bytes."""
        wanted = {number: name for number, name in enumerate(_TYPES) if name in types}
        kinds, offsets, seek, read = self._kinds, self._offsets, self._file.seek, self._file.readline
        place = -1
        for at in path:
            type = wanted.get(kinds[at])
            if type is None:
                continue
            offset = offsets[at]
            if offset != place:
                seek(offset)
            raw = read(LONGEST + 2)
            place = offset + len(raw)
            yield at, type, raw

    def entries(self, path: Collection[int], types: Collection[str] = _TYPES) -> Iterator[tuple[int, JournalEntry]]:
        """Yield the entries of `path` with one of `types`, read one at a time. Raise Unsound at the first line with
        invalid content.
        """
        for at, _, raw in self.lines(path, types):
            try:
                entry = parse(raw)
                fields = _OURS.match(raw)
                parsed = (entry.id.encode(), (entry.parent or "").encode(), entry.type.encode())
                if fields and fields.groups() != parsed:
                    raise Unsound("it has a field twice")
            except Unsound as error:
                raise Unsound(f"line {self._lines[at]}: {error}") from None
            yield at, entry
