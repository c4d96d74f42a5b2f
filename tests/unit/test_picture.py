"""Tests of image files: complete by their structure, because a model server refuses the whole conversation otherwise."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.inside.files.image_check import ImageKind, picture
from tests.support.images import GIF, JPEG, WEBP, png

WHOLE = png(3)


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def header(width: int = 1, height: int = 1, *rest: int) -> bytes:
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, *(rest or (8, 2, 0, 0, 0))))


def made(*chunks: bytes) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def riff(*chunks: bytes) -> bytes:
    body = b"WEBP" + b"".join(chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def part(name: bytes, body: bytes) -> bytes:
    return name + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)


DATA, END = chunk(b"IDAT", b"x"), chunk(b"IEND", b"")
FRAME = b"\0\0\0\x9d\x01\x2a"
# fmt: off
TABLE: list[tuple[bytes, ImageKind | None, str]] = [
    (WHOLE,                                          ("image/png", 3, 1),   "whole"),
    (WHOLE + b"trailing",                            ("image/png", 3, 1),   "what follows the end is ignored by every reader"),
    (made(header(), chunk(b"tEXt", b"a"), DATA, END), ("image/png", 1, 1),  "chunks that nobody must know"),
    (WHOLE[:-4],                                     None, "cut in the last chunk"),
    (WHOLE[:-12],                                    None, "without an end"),
    (WHOLE[:33],                                     None, "a header alone"),
    (made(header(), END),                            None, "no pixels"),
    (made(header(0, 5), DATA, END),                  None, "no width"),
    (made(header(5, 0), DATA, END),                  None, "no height"),
    (made(header(1, 1, 7, 2, 0, 0, 0), DATA, END),   None, "a depth that there is not"),
    (made(header(1, 1, 8, 5, 0, 0, 0), DATA, END),   None, "a type of colour that there is not"),
    (made(header(1, 1, 8, 2, 1, 0, 0), DATA, END),   None, "a compression that there is not"),
    (made(chunk(b"IHDR", b""), DATA, END),           None, "a header of nothing"),
    (made(DATA, header(), END),                      None, "the header is not the first"),
    (WHOLE.replace(b"IDAT", b"IDAX"),                None, "a checksum that does not hold"),
    (made(header()[:-4] + b"\0\0\0\0", DATA, END),   None, "the header's does not"),
    (made(struct.pack(">I", 1 << 31) + b"IHDR"),     None, "a chunk longer than the file"),
    (b"\x89PNG\r\n\x1a\n" + b"\0" * 8 + b"IHDR" + b"IEND", None, "the words alone"),
    (JPEG,                                           ("image/jpeg", 1, 1),  "a JPEG"),
    (JPEG[:-2],                                      None, "cut in its pixels"),
    (JPEG[:20],                                      None, "cut before them"),
    (b"\xff\xd8\xff\0\xff\xd9",                      None, "marks alone"),
    (b"\xff\xd8\xff\xe0\0\1" + JPEG[4:],             None, "a segment shorter than its own length"),
    (b"\xff\xd8\xff\xff" + JPEG[3:],                 ("image/jpeg", 1, 1),  "bytes that fill"),
    (JPEG[:8] + JPEG[21:],                           None, "pixels without a frame"),
    (JPEG.replace(b"\x08\0\1\0\1\1", b"\x08\0\0\0\1\1"), None, "no height"),
    (JPEG.replace(b"\x08\0\1\0\1\1", b"\x08\0\1\0\1\7"), None, "seven colours"),
    (GIF,                                            ("image/gif", 1, 1),   "a GIF"),
    (GIF[:13] + b"!\xf9\4\0\0\0\0\0" + GIF[13:],     ("image/gif", 1, 1),   "with an extension"),
    (GIF[:13] + b";",                                None, "without a frame"),
    (GIF[:-2],                                       None, "cut"),
    (b"GIF89a" + b"\0" * 30,                         None, "zeros"),
    (b"GIF87a\1\0\1\0\x80\0\0" + b"\0" * 6 + GIF[13:], ("image/gif", 1, 1), "a table of colours"),
    (WEBP,                                           ("image/webp", 1, 1),  "without loss"),
    (riff(part(b"VP8 ", FRAME + b"\x10\0\x20\0")),   ("image/webp", 16, 32), "with loss"),
    (riff(part(b"VP8X", b"\0" * 4 + b"\x0f\0\0\x1f\0\0"), part(b"VP8 ", FRAME + b"\x10\0\x20\0")), ("image/webp", 16, 32), "extended"),
    (riff(part(b"VP8X", b"\0" * 4 + b"\x0f\0\0\x1f\0\0"), part(b"ANIM", b"\0" * 6), part(b"ANMF", b"\0" * 30)), ("image/webp", 16, 32), "moving"),
    (riff(part(b"VP8X", b"\0" * 10)),                None, "extended by nothing"),
    (riff(part(b"VP8 ", FRAME + b"\0\0\x20\0")),     None, "no width"),
    (riff(part(b"VP8 ", b"\0" * 10)),                None, "no frame"),
    (riff(part(b"VP8 ", FRAME)),                     None, "a frame cut in its header"),
    (riff(),                                         None, "empty"),
    (b"RIFF\x04\0\0\0WEBP",                          None, "a header alone"),
    (b"",                                            None, "nothing"),
    (b"<svg xmlns='http://www.w3.org/2000/svg'/>",   None, "what no model takes"),
]
# fmt: on


@pytest.mark.threat("T122")
@pytest.mark.parametrize(("content", "kind", "why"), TABLE, ids=[row[2] for row in TABLE])
def test_which_are_whole_images(content: bytes, kind: ImageKind | None, why: str) -> None:
    assert picture(content) == kind, why


@pytest.mark.threat("T122")
@given(st.sampled_from([WHOLE, JPEG, GIF, WEBP]), st.integers(0, 200), st.binary(max_size=40))
def test_law_any_bytes_are_an_image_or_none(whole: bytes, at: int, more: bytes) -> None:
    for content in (whole[:at] + more, more + whole[at:], whole[:at] + more + whole[at + len(more) :]):
        found = picture(content)
        assert found is None or (found[1] > 0 and found[2] > 0)


@pytest.mark.threat("T122")
def test_an_image_that_is_cut_anywhere_is_none() -> None:
    for whole in (WHOLE, GIF, WEBP, JPEG):
        assert [at for at in range(len(whole)) if picture(whole[:at]) is not None] == []
