"""Git objects (commits and trees), read without Git from loose objects, packs and alternates.

THREAT T117: the repository is not trusted, and Git obeys its settings. This reader starts nothing, follows no symbolic
link to a file, and bounds every size. Formats: gitformat-pack(5), gitrepository-layout(5).
"""

import os
import re
import zlib
from bisect import bisect_left
from collections import OrderedDict

from policy.model.frozen import dataclass
from runner.facts.git.delta import DeltaError, applied, distance_in
from sandbox.inside.regular_file import open_regular, read_whole

ID = 20  # bytes of an object id; repositories with SHA-256 are not read
_EMPTY = bytes.fromhex("e69de29bb2d1d6434b8b29ae775ad8c2e48c5391")  # the id of the empty file
_LARGEST = 8 << 20  # bytes of one commit or tree
_LARGEST_INDEX = 128 << 20  # bytes of the index of a pack
_MOST_PACKS = 1000
_DEEPEST = 4096  # chained deltas; git(1) makes 50, or 250 on request
_CACHED = 512  # bases of deltas that are kept
_COMMIT, _TREE, _TAG, _BY_OFFSET, _BY_ID = 1, 2, 4, 6, 7
_BLOB = 3
_KINDS = {b"blob": _BLOB, b"commit": _COMMIT, b"tree": _TREE, b"tag": _TAG}
_ENTRY = re.compile(rb"(\d{5,6}) ([^\0]+)\0(.{20})", re.DOTALL)
_LINK = re.compile(rb"^(?:tree|parent|object) ([0-9a-f]{40})$", re.MULTILINE)


class Unreadable(Exception):
    """Error for content that this reader does not understand, so that nothing may be concluded from the rest."""


TreeEntry = tuple[bytes, bytes, bytes]  # mode in octal digits, name and id, as a tree has them


@dataclass(frozen=True, slots=True)
class Commit:
    """Objects that a commit or an annotated tag refers to: its tree (None for a tag) and others."""

    tree: bytes | None
    others: tuple[bytes, ...]


class _Pack:
    """Pack with its index of version 2."""

    def __init__(self, path: str) -> None:
        self.cached: OrderedDict[int, tuple[int, bytes]] = OrderedDict()
        index = whole(f"{path}.idx", _LARGEST_INDEX)
        if index is None or index[:8] != b"\xfftOc\0\0\0\2" or len(index) < 8 + 1024 + 40:
            raise Unreadable(path)
        self._fan = [int.from_bytes(index[8 + 4 * place : 12 + 4 * place], "big") for place in range(256)]
        count = self._fan[-1]
        names = 8 + 1024
        offsets = names + count * (ID + 4)
        if len(index) < offsets + 4 * count + 40 or self._fan != sorted(self._fan):
            raise Unreadable(path)
        self._names = index[names : names + count * ID]
        self._offsets = index[offsets : offsets + 4 * count]
        self._far = index[offsets + 4 * count : -40]
        self.data, _ = open_regular(f"{path}.pack", follow=False)  # last: after a failure nothing is open

    def place(self, id: bytes) -> int | None:
        """Return where the object begins; None if it is not in this pack."""
        low, high = self._fan[id[0] - 1] if id[0] else 0, self._fan[id[0]]
        place = bisect_left(range(high), id, lo=low, key=self._name)
        if place == high or self._name(place) != id:
            return None
        at = int.from_bytes(self._offsets[4 * place : 4 * place + 4], "big")
        if at < 1 << 31:
            return at
        far = 8 * (at - (1 << 31))
        return int.from_bytes(self._far[far : far + 8], "big")

    def beginning(self, first: bytes, last: bytes) -> frozenset[bytes]:
        """Return the ids from `first` to `last`, but at most two of them."""
        place = bisect_left(range(self._fan[-1]), first, key=self._name)
        found = map(self._name, range(place, min(place + 2, self._fan[-1])))
        return frozenset(name for name in found if name <= last)

    def _name(self, place: int) -> bytes:
        return self._names[place * ID : place * ID + ID]

    def close(self) -> None:
        os.close(self.data)


class Objects:
    """Commits, trees and tags below `folder`, an `objects` folder, and its alternates. A context manager.

    The constructor and every method raise Unreadable for content that is not understood, and OSError.
    """

    def __init__(self, folder: str) -> None:
        self._folders = [folder]
        self._packs: list[_Pack] = []
        for each in self._folders:  # grows meanwhile
            self._folders += [found for found in _alternates(each) if found not in self._folders]
            if len(self._folders) > 10:
                raise Unreadable(folder)

    def __enter__(self) -> "Objects":
        try:
            for folder in self._folders:
                self._open(f"{folder}/pack")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for pack in self._packs:
            pack.close()

    def _open(self, folder: str) -> None:
        try:
            names = frozenset(os.listdir(folder))
        except FileNotFoundError:
            return
        for name in sorted(names):
            if name.endswith(".pack"):
                if f"{name[:-5]}.idx" not in names or len(self._packs) == _MOST_PACKS:
                    raise Unreadable(f"{folder}/{name}")
                self._packs.append(_Pack(f"{folder}/{name[:-5]}"))

    def commit(self, id: bytes) -> Commit | None:
        """Return the commit or annotated tag `id`; None if there is no such object or it is of another kind."""
        read = self._read(id)
        if read is None or read[0] not in (_COMMIT, _TAG):
            return None
        kind, data = read
        head = data.partition(b"\n\n")[0]
        links = [bytes.fromhex(text.decode()) for text in _LINK.findall(head)]
        if not links:
            raise Unreadable(id.hex())
        return Commit(links[0], tuple(links[1:])) if kind == _COMMIT else Commit(None, (links[0],))

    def tree(self, id: bytes) -> list[TreeEntry] | None:
        """Return the entries of the tree `id`; None if there is no such tree."""
        read = self._read(id)
        return None if read is None or read[0] != _TREE else _entries(read[1])

    def blob(self, id: bytes) -> bytes | None:
        """Return the content of the file `id`; None if there is no such object. Raises Unreadable for a file above
        _LARGEST.
        """
        read = self._read(id)
        if read is None or read[0] != _BLOB:
            return None
        if not read[1] and id != _EMPTY:
            raise Unreadable(id.hex())
        return read[1]

    def beginning(self, digits: str) -> frozenset[bytes]:
        """Return the ids that begin with these hexadecimal digits, two or more; of many, at least two."""
        first, last = (bytes.fromhex(digits.ljust(2 * ID, fill)) for fill in "0f")
        found = {id for pack in self._packs for id in pack.beginning(first, last)}
        for folder in self._folders:
            try:
                names = os.listdir(f"{folder}/{digits[:2]}")
            except FileNotFoundError:
                continue
            loose = (digits[:2] + name for name in names if re.fullmatch("[0-9a-f]{38}", name))
            found.update(bytes.fromhex(name) for name in loose if name.startswith(digits))
        return frozenset(found)

    def _read(self, id: bytes) -> tuple[int, bytes] | None:
        for folder in self._folders:
            name = id.hex()
            data = whole(f"{folder}/{name[:2]}/{name[2:]}", _LARGEST)
            if data is not None:
                return _loose(data)
        for pack in self._packs:
            at = pack.place(id)
            if at is not None:
                return self._packed(pack, at)
        return None

    def _packed(self, pack: _Pack, at: int) -> tuple[int, bytes]:
        deltas: list[tuple[int, bytes]] = []
        while True:
            if at in pack.cached:
                pack.cached.move_to_end(at)
                kind, data = pack.cached[at]
                break
            kind, base, data = _object(pack.data, at)
            if kind not in (_BY_OFFSET, _BY_ID):
                break
            deltas.append((at, data))
            if len(deltas) > _DEEPEST:
                raise Unreadable("deltas")
            if kind == _BY_OFFSET:
                at -= int.from_bytes(base, "big")
            else:
                place = pack.place(base)
                if place is None:
                    outside = self._read(base)
                    if outside is None:
                        raise Unreadable("a base is missing")
                    kind, data = outside
                    break
                at = place
            if at <= 0:
                raise Unreadable("a base outside of the pack")
        for at, delta in reversed(deltas):
            try:
                data = applied(delta, data, _LARGEST)
            except DeltaError as error:
                raise Unreadable("a delta") from error
            pack.cached[at] = kind, data
        while len(pack.cached) > _CACHED:
            pack.cached.popitem(last=False)
        return kind, data


def whole(path: str, most: int) -> bytes | None:
    """Return the content of a regular file that is not a symbolic link; None if nothing has that name.

    Raises Unreadable for a file above `most` bytes or of another kind.
    """
    try:
        return read_whole(path, most, follow=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Unreadable(path) from error


def _alternates(folder: str) -> list[str]:
    lines = (whole(f"{folder}/info/alternates", 1 << 16) or b"").split(b"\n")
    folders = [os.fsdecode(line) for line in lines if line and not line.startswith(b"#")]
    if any(each.startswith('"') or "\0" in each for each in folders):
        raise Unreadable(folder)
    return [os.path.realpath(os.path.join(folder, each)) for each in folders]


def _inflated(data: bytes, most: int) -> tuple[bytes, bool]:
    """Return at most `most` + 1 bytes, and True if the stream ends there."""
    try:
        stream = zlib.decompressobj()
        content = stream.decompress(data, most + 1)
    except zlib.error as error:
        raise Unreadable("zlib") from error
    return content, stream.eof


def _loose(data: bytes) -> tuple[int, bytes]:
    content, ended = _inflated(data, _LARGEST)
    kind, blank, rest = content.partition(b" ")
    size, zero, body = rest.partition(b"\0")
    if not blank or not zero or not size.isdigit():
        raise Unreadable("a loose object")
    if kind not in _KINDS or (kind == b"blob" and not ended):
        return _BLOB, b""  # a file above _LARGEST, whose content is left out
    if not ended or int(size) != len(body):
        raise Unreadable("a loose object")
    return _KINDS[kind], body


def _object(handle: int, at: int) -> tuple[int, bytes, bytes]:
    """Return kind, base (a distance or an id, of a delta) and bytes of the object at `at` of a pack."""
    data = os.pread(handle, 4096, at)
    kind, size, shift, place = 0, 0, 4, 0
    try:
        byte = data[0]
        kind, size, place = (byte >> 4) & 7, byte & 15, 1
        while byte & 0x80:
            byte = data[place]
            size |= (byte & 0x7F) << shift
            shift, place = shift + 7, place + 1
        base = b""
        if kind == _BY_OFFSET:
            distance, place = distance_in(data, place)
            base = distance.to_bytes(16, "big")
        elif kind == _BY_ID:
            base, place = data[place : place + ID], place + ID
    except IndexError as error:
        raise Unreadable("a pack") from error
    if kind == _BLOB and size > _LARGEST:
        return kind, b"", b""
    if size > _LARGEST or kind not in (_COMMIT, _TREE, _BLOB, _TAG, _BY_OFFSET, _BY_ID):
        raise Unreadable("a pack")
    found, ended = _inflated(data[place:], size)
    if not ended or len(found) != size:  # the object is longer than the first page; the margin is the overhead of zlib
        found, ended = _inflated(os.pread(handle, size + (size >> 8) + 4096, at + place), size)
    if not ended or len(found) != size:
        raise Unreadable("a pack")
    return kind, base, found


def _entries(data: bytes) -> list[TreeEntry]:
    entries: list[TreeEntry] = _ENTRY.findall(data)
    if sum(len(mode) + len(name) + 2 + ID for mode, name, _ in entries) != len(data):
        raise Unreadable("a tree")
    return entries
