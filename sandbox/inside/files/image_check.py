"""The check whether a file is a complete image that a model accepts. Standard library only, because it runs confined.

A server refuses the entire conversation for one image that it cannot read, so the whole structure is checked and not
only the beginning. Pixels are not decoded.
SOURCE: PNG (W3C, third edition) 5; ITU-T T.81 (JPEG) B.1; GIF89a specification; RFC 9649 (WebP) 2.
"""

import zlib

# Pixels. SOURCE: platform.claude.com/docs/en/build-with-claude/vision, the least of the vendors' bounds
SIDE_CAP = 8_000
ImageKind = tuple[str, int, int]  # the media type, width and height in pixels

_PNG = b"\x89PNG\r\n\x1a\n"
# SOURCE: PNG 11.2.1, table 12: the bit depths of each colour type.
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # JPEG's markers that begin a frame


def picture(content: bytes) -> ImageKind | None:
    """Return the kind of the image in `content`; None if it is no image, is damaged or incomplete, or has no pixels."""
    for read in (_png, _jpeg, _gif, _webp):
        try:
            image = read(content)
        except IndexError:  # the content ends inside a field
            continue
        if image is not None and image[1] > 0 and image[2] > 0:
            return image
    return None


def _png(content: bytes) -> ImageKind | None:
    if not content.startswith(_PNG):
        return None
    size, at, data = (0, 0), len(_PNG), False
    while at < len(content):
        length, name = _big(content, at, 4), content[at + 4 : at + 8]
        body, end = at + 8, at + 12 + length
        if end > len(content) or zlib.crc32(memoryview(content)[at + 4 : end - 4]) != _big(content, end - 4, 4):
            return None
        if at == len(_PNG):
            depths = _DEPTHS.get(content[body + 9], ())
            header = name == b"IHDR" and length == 13
            if not header or content[body + 8] not in depths or any(content[body + 10 : body + 12]):
                return None
            size = _big(content, body, 4), _big(content, body + 4, 4)
        data = data or (name == b"IDAT" and length > 0)
        if name == b"IEND":
            return ("image/png", *size) if data else None
        at = end
    return None


def _jpeg(content: bytes) -> ImageKind | None:
    if not content.startswith(b"\xff\xd8\xff"):
        return None
    size, at = (0, 0), 2
    while content[at] == 0xFF:
        mark = content[at + 1]
        if mark == 0xFF:  # a fill byte
            at += 1
            continue
        length = _big(content, at + 2, 2)
        if mark < 0xC0 or mark in (0xD8, 0xD9) or 0xD0 <= mark <= 0xD7 or length < 2:
            return None
        if mark in _FRAMES:
            if content[at + 9] not in (1, 3, 4) or length != 8 + 3 * content[at + 9]:
                return None
            size = _big(content, at + 7, 2), _big(content, at + 5, 2)
        at += 2 + length
        if mark == 0xDA:  # pixels follow, up to the end of the image
            return ("image/jpeg", *size) if content.find(b"\xff\xd9", at) > at else None
    return None


def _gif(content: bytes) -> ImageKind | None:
    if content[:6] not in (b"GIF87a", b"GIF89a"):
        return None
    size, at, frames = (_little(content, 6, 2), _little(content, 8, 2)), 13 + _table(content[10]), 0
    while True:
        if content[at] == 0x3B:
            return ("image/gif", *size) if frames else None
        if content[at] == 0x21:
            at += 2
        elif content[at] == 0x2C and _little(content, at + 5, 2) and _little(content, at + 7, 2):
            at += 10 + _table(content[at + 9])
            if not 1 <= content[at] <= 11 or not content[at + 1]:  # the least bits of a code, then its first block
                return None
            at, frames = at + 1, frames + 1
        else:
            return None
        while content[at]:
            at += 1 + content[at]
        at += 1


def _webp(content: bytes) -> ImageKind | None:
    if content[:4] != b"RIFF" or content[8:12] != b"WEBP" or len(content) < 8 + _little(content, 4, 4):
        return None
    size, at, end = (0, 0), 12, 8 + _little(content, 4, 4)
    while at + 8 <= end:
        name, length, body = content[at : at + 4], _little(content, at + 4, 4), at + 8
        if body + length > end:
            return None
        if name == b"VP8X":
            size = _little(content, body + 4, 3) + 1, _little(content, body + 7, 3) + 1
        elif name == b"VP8 " and content[body + 3 : body + 6] == b"\x9d\x01\x2a":
            inner = _little(content, body + 6, 2) & 0x3FFF, _little(content, body + 8, 2) & 0x3FFF
            return ("image/webp", *(size if all(size) and all(inner) else inner))
        elif name == b"VP8L" and content[body] == 0x2F:
            bits = _little(content, body + 1, 4)
            inner = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
            return ("image/webp", *(size if all(size) else inner))
        elif name == b"ANMF" and all(size) and length > 24:
            return ("image/webp", *size)
        elif name in (b"VP8 ", b"VP8L"):
            return None
        at = body + length + length % 2
    return None


def _table(flags: int) -> int:
    """Return the bytes of a GIF's colour table."""
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _big(content: bytes, at: int, length: int) -> int:
    return int.from_bytes(_field(content, at, length), "big")


def _little(content: bytes, at: int, length: int) -> int:
    return int.from_bytes(_field(content, at, length), "little")


def _field(content: bytes, at: int, length: int) -> bytes:
    if at + length > len(content):
        raise IndexError
    return content[at : at + length]
