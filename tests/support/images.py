"""Small images of each kind that the product reads."""

import struct
import zlib


def png(width: int = 1) -> bytes:
    """A whole, valid image."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    head = struct.pack(">IIBBBBB", width, 1, 8, 2, 0, 0, 0)
    rows = zlib.compress(b"\0" + b"\xff\0\0" * width)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


GIF = b"GIF89a" + b"\1\0\1\0" + b"\0\0\0" + b"," + b"\0\0\0\0\1\0\1\0\0" + b"\2\2\x44\1\0" + b";"


JPEG = (
    b"\xff\xd8" + b"\xff\xe0\0\x04xx" + b"\xff\xc0\0\x0b\x08\0\1\0\1\1\1\x11\0" + b"\xff\xda\0\x08\1\1\0\0\x3f\0"
    b"pixels" + b"\xff\xd9"
)


WEBP = b"RIFF\x1a\0\0\0WEBP" + b"VP8L\x0d\0\0\0" + b"\x2f\0\0\0\0" + b"\x10\x07\x10\x11\x11\x88\x88\xfe" + b"\0"
