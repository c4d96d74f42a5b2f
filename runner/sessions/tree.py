"""Which lines of a session file are sound, and which of them lie on the way to its end.

A line is sound when it parses, its id is new, and its parent is a sound line above it: so a tree it is, whatever
somebody wrote into the file, and no cycle can be. What is not sound is left out with all that hangs on it. The way
ends at the last sound line.

A session may have a hundred thousand lines: the index reads each once, by the beginning that our own writer gives it,
and keeps numbers. Contents are parsed where they are asked for, on the way alone.
"""

import re
from array import array
from collections.abc import Collection, Iterator
from typing import BinaryIO

from policy.record import dataclass
from runner.sessions.entries import LONGEST, Entry, Unsound, parse

# A line as `entries.line` begins it. Anything else (edited by hand) is parsed whole.
_OURS = re.compile(rb'\{"id":"([0-9]{1,15})","parentId":"([0-9]{1,15})","time":"[0-9TZ:.+-]{0,40}","type":"([a-z]+)",')
_TOLD = 20  # damages that are kept; the rest is counted
_TYPES = ("session", "run", "message", "call", "grant", "usage", "mode", "snapshot", "notice", "end")
_CODE = {name.encode(): number for number, name in enumerate(_TYPES)}


@dataclass(frozen=True, slots=True)
class Damage:
    """Line `line` (from 1) was left out. `why` is in a user's words."""

    line: int
    why: str


class Tree:
    """The index of one file: its sound lines in the order of the file."""

    def __init__(self, file: BinaryIO) -> None:
        """Reads the file from its beginning; keeps it for `entry`. Raises Unsound when it is no session at all."""
        self._file = file
        self._offsets = array("q")
        self._lines = array("l")
        self._parents = array("l")
        self._kinds = bytearray()
        self.damages: list[Damage] = []
        self.damaged = 0  # lines that are not sound themselves, `damages` tells the first of them
        self.orphans = 0  # lines that hang on such a line
        self.torn = 0  # bytes at the end that were a line being written
        self.unended = False  # the last line lacks nothing but its newline
        self.whole_end = True  # the last line of the file is sound: what was said last is what the way leads to
        self.last_id = 0
        self.end = 0  # where the next line belongs
        self._read()

    def __len__(self) -> int:
        return len(self._offsets)

    def _read(self) -> None:
        self._file.seek(0)
        known: dict[bytes, int] = {}
        lost: set[bytes] = set()
        offset = number = 0
        code, match = _CODE, _OURS.match
        read = self._file.readline
        while raw := read(LONGEST + 2):
            number += 1
            size = len(raw)
            if raw[-1] != 10 and size > LONGEST:
                size += self._skip()
            found = match(raw)
            kind = code.get(found[3]) if found is not None else None
            if found is not None and kind and raw.endswith(b"}\n") and len(known):
                id, parent = found[1], found[2]
            else:
                try:
                    entry = parse(raw)
                except Unsound as error:
                    if raw[-1] != 10:
                        self.torn = size
                        break
                    self._damage(number, str(error), known)
                    offset += size
                    continue
                if raw[-1] != 10:
                    self.unended = True
                id, parent, kind = entry.id.encode(), (entry.parent or "").encode(), _TYPES.index(entry.type)
                if (entry.type == "session") != (not known):
                    self._damage(number, "a session begins once, in the first line", known)
                    lost.add(id)
                    offset += size
                    continue
            at = known.get(parent, -1)
            if at < 0 and known:
                self._orphan(number, parent in lost)
                lost.add(id)
            elif id in known or id in lost:
                self._damage(number, f"its id {id.decode()} is taken", known)
            else:
                known[id] = len(self._offsets)
                self._offsets.append(offset)
                self._lines.append(number)
                self._parents.append(at)
                self._kinds.append(kind)
                self.last_id = max(self.last_id, int(id))
                self.whole_end = True
            offset += size
        self.end = offset
        if not known:
            raise Unsound("it is empty" if not number else "its first line does not begin a session")

    def _skip(self) -> int:
        """Over the rest of a line that is too long."""
        size = 0
        while more := self._file.readline(1 << 20):
            size += len(more)
            if more[-1] == 10:
                break
        return size

    def _damage(self, line: int, why: str, known: Collection[bytes]) -> None:
        if not known:
            raise Unsound(f"its first line does not begin a session: {why}")
        self.damaged += 1
        self.whole_end = False
        if len(self.damages) < _TOLD:
            self.damages.append(Damage(line, why))

    def _orphan(self, line: int, below: bool) -> None:
        """`below`: its parent is one of the lines that were left out, which is said there."""
        self.orphans += 1
        self.whole_end = False
        if not below and len(self.damages) < _TOLD:
            self.damages.append(Damage(line, "no sound line above it is its parent"))

    def path(self) -> list[int]:
        """The sound lines from the first to the last, each the parent of the next."""
        found, at = [], len(self._offsets) - 1
        while at >= 0:
            found.append(at)
            at = self._parents[at]
        found.reverse()
        return found

    def type(self, at: int) -> str:
        return _TYPES[self._kinds[at]]

    def id(self, at: int) -> str:
        return next(entry.id for _, entry in self.entries((at,)))

    def line(self, at: int) -> int:
        """The number of that line in the file, from 1."""
        return self._lines[at]

    def entries(self, path: Collection[int], types: Collection[str] = _TYPES) -> Iterator[tuple[int, Entry]]:
        """The entries of `path` whose type is one of `types`, read one at a time. Raises Unsound at the first that
        does not hold what its type must."""
        wanted = {_TYPES.index(name) for name in types}
        place = -1
        for at in path:
            if self._kinds[at] not in wanted:
                continue
            if self._offsets[at] != place:
                self._file.seek(self._offsets[at])
            raw = self._file.readline(LONGEST + 2)
            place = self._offsets[at] + len(raw)
            try:
                yield at, parse(raw)
            except Unsound as error:
                raise Unsound(f"line {self._lines[at]}: {error}") from None
