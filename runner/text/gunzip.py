"""Decompression of gzip data (RFC 1952) with a limit on the bytes that go in and on the bytes that come out.

THREAT T119: 20 KB of compressed data can expand to gigabytes, and several layers to more. Everything in this project
that decompresses data of another machine does it here, one layer deep; `runner/changes/review/patch_parser.py`
decompresses zlib data of patches, whose size the patch states.
"""

import zlib
from collections.abc import Iterable, Iterator

STEP = 64 << 10  # bytes that one step unpacks at most
LAYERS = ("gzip", "x-gzip")  # names of the one coding that is unpacked (RFC 9110, section 8.4.1.3)


class PackedError(ValueError):
    """An error for data that is damaged, incomplete, or larger than the limit. Its text completes "it ..."."""


class PackedTooLarge(PackedError):
    """An error for data that is larger than the limit, compressed or decompressed."""


class Gunzip:
    """One gzip stream that arrives in pieces. `limit` is the largest number of bytes that go in, and that come out.

    A stream has one member. Data after its end is refused: no server sends it, and each member could expand anew.
    """

    __slots__ = ("_given", "_inflate", "_left")

    def __init__(self, limit: int) -> None:
        self._inflate = zlib.decompressobj(wbits=31)  # gzip's header and checksum are required
        self._given = self._left = limit

    @property
    def whole(self) -> bool:
        """Return True when the end of the stream was reached and its checksum was right."""
        return self._inflate.eof

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Unpack `piece`; yield at most STEP bytes at a time, possibly none.

        Raises PackedError for damaged data, and PackedTooLarge beyond the limit.
        """
        self._given -= len(piece)
        if self._given < 0:
            raise PackedTooLarge("is too long")
        while piece:
            if self.whole:
                raise PackedError("has data after its end")
            full = True
            while full:  # a full step may have left output behind although it took all of its input
                try:
                    made = self._inflate.decompress(piece, STEP)
                except zlib.error:
                    raise PackedError("is compressed and damaged") from None
                self._left -= len(made)
                if self._left < 0:
                    raise PackedTooLarge("is too long when unpacked")
                yield made
                piece, full = self._inflate.unconsumed_tail, len(made) == STEP
            piece = piece or self._inflate.unused_data


def gunzip(data: bytes, limit: int) -> bytes:
    """Decompress one complete gzip stream. Raise PackedError; then no more than `limit` bytes were held."""
    stream = Gunzip(limit)
    made = b"".join(stream.feed(data))
    if not stream.whole:
        raise PackedError("is compressed and incomplete")
    return made


def layer_of(fields: Iterable[str]) -> bool | None:
    """Return whether data with these `Content-Encoding` fields is packed once with gzip: True, or False for data that
    is not packed. None stands for another coding, or for more than one layer."""
    codings = [coding.strip().lower() for field in fields for coding in field.split(",")]
    packed = [coding for coding in codings if coding not in ("", "identity")]
    if not packed:
        return False
    return True if len(packed) == 1 and packed[0] in LAYERS else None
