"""Unpacking of gzip data (RFC 1952) within a bound on the bytes that come out, counted while they do, and that go in.

THREAT T119: 20 KB of packed data can stand for gigabytes, and several layers for more. Everything in this project that
unpacks data of another machine does it here, one layer deep; `runner/changes/review/patch_parser.py` unpacks zlib
data of patches, whose size the patch states.
"""

import zlib
from collections.abc import Iterable, Iterator

STEP = 64 << 10  # bytes that one step unpacks at most
LAYERS = ("gzip", "x-gzip")  # names of the one coding that is unpacked (RFC 9110, section 8.4.1.3)


class PackedError(ValueError):
    """The data is damaged, incomplete, or more than the bound allows. Its text completes "it ..."."""


class PackedTooLarge(PackedError):
    """The data is more than the bound allows, packed or unpacked."""


class Gunzip:
    """One gzip stream that arrives in pieces. `limit`: bytes that may go in, and bytes that may come out.

    A stream has one member. What follows its end is refused: no server sends it, and each member could expand anew.
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
            raise PackedTooLarge("is more than was expected")
        while piece:
            if self.whole:
                raise PackedError("goes on behind its end")
            full = True
            while full:  # a full step may have left output behind although it took all of its input
                try:
                    made = self._inflate.decompress(piece, STEP)
                except zlib.error:
                    raise PackedError("is compressed, and damaged") from None
                self._left -= len(made)
                if self._left < 0:
                    raise PackedTooLarge("unpacks to more than was expected")
                yield made
                piece, full = self._inflate.unconsumed_tail, len(made) == STEP
            piece = piece or self._inflate.unused_data


def gunzip(data: bytes, limit: int) -> bytes:
    """Unpack the whole of one gzip stream. Raises PackedError; then no more than `limit` bytes were held."""
    stream = Gunzip(limit)
    made = b"".join(stream.feed(data))
    if not stream.whole:
        raise PackedError("is compressed, and cut off")
    return made


def layer_of(fields: Iterable[str]) -> bool | None:
    """Return whether data with these `Content-Encoding` fields is packed once with gzip: True, or False for data that
    is not packed. None stands for another coding, or for more than one layer."""
    codings = [coding.strip().lower() for field in fields for coding in field.split(",")]
    packed = [coding for coding in codings if coding not in ("", "identity")]
    if not packed:
        return False
    return True if len(packed) == 1 and packed[0] in LAYERS else None
