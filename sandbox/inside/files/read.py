"""Reading of one file as numbered text, as an image, or as binary. Runs confined: standard library only."""

import binascii
import os

from sandbox.inside.files.access import Refused, digest, is_binary, read_capped, show
from sandbox.inside.files.image_check import SIDE_CAP, picture

LINE_CAP = 2000  # characters of one line
TEXT_CAP = 200_000  # characters of one answer; the next read continues after them
IMAGE_CAP = 3_932_160  # bytes: 5 MiB as base64, the most that model vendors take

_BOM = b"\xef\xbb\xbf"

# fmt: off
_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0,   b"\x7fELF",              "an ELF program or library"),
    (0,   b"MZ",                   "a Windows program"),
    (0,   b"\xcf\xfa\xed\xfe",     "a Mach-O program"),
    (0,   b"\xca\xfe\xba\xbe",     "a Java class or a Mach-O program"),
    (0,   b"\x00asm",              "a WebAssembly module"),
    (0,   b"PK\x03\x04",           "a zip archive (or jar, docx, xlsx, wheel)"),
    (0,   b"\x1f\x8b",             "gzip data"),
    (0,   b"BZh",                  "bzip2 data"),
    (0,   b"\xfd7zXZ\x00",         "xz data"),
    (0,   b"\x28\xb5\x2f\xfd",     "zstd data"),
    (0,   b"7z\xbc\xaf\x27\x1c",   "a 7z archive"),
    (257, b"ustar",                "a tar archive"),
    (0,   b"%PDF-",                "a PDF document (read its text with `pdftotext FILE -`)"),
    (0,   b"SQLite format 3\x00",  "an SQLite database"),
    (0,   b"\xff\xfe",             "UTF-16 text (read it with `iconv -f UTF-16 -t UTF-8`)"),
    (0,   b"\xfe\xff",             "UTF-16 text (read it with `iconv -f UTF-16 -t UTF-8`)"),
    (4,   b"ftyp",                 "an MP4 or HEIC file"),
    (0,   b"OggS",                 "Ogg media"),
    (0,   b"ID3",                  "MP3 audio"),
    (0,   b"BM",                   "a BMP image"),
    (0,   b"\x89PNG\r\n\x1a\n",    "a damaged PNG image"),
    (0,   b"\xff\xd8\xff",         "a damaged JPEG image"),
    (0,   b"GIF8",                 "a damaged GIF image"),
    (8,   b"WEBP",                 "a damaged WebP image"),
    (0,   b"RIFF",                 "RIFF media"),
)
# fmt: on


def read_file(path: str, offset: int, limit: int) -> dict[str, object]:
    """Return the answer for one file: `type` is text, empty, image or binary. Raises Refused if it cannot be read."""
    what = f"cannot read `{show(path)}`"
    content, more = read_capped(path, what)
    size = os.stat(path).st_size if more else len(content)
    answer: dict[str, object] = {
        "real": show(os.path.realpath(path)),
        "size": size,
        "sha256": None if more else digest(content),
    }
    if not more and (image := picture(content)) is not None:
        media, *sides = image
        why = ""
        if len(content) > IMAGE_CAP:
            why = f"the image has {size:,} bytes, and a model accepts at most {IMAGE_CAP:,}"
        elif max(sides) > SIDE_CAP:
            why = f"the image has {sides[0]:,} by {sides[1]:,} pixels, and a model accepts {SIDE_CAP:,} a side"
        if why:
            raise Refused(what, why, "make a smaller copy, and read the copy")
        text = binascii.b2a_base64(content, newline=False).decode()
        return answer | {"type": "image", "media": media, "base64": text}
    if is_binary(content) or _is_surely_binary(content):
        return answer | {"type": "binary", "guess": guess(content)}
    if not content:
        return answer | {"type": "empty"}
    return answer | {"type": "text"} | page(content, more, offset, limit)


# Beginnings of formats whose files may contain no NUL, and with which no text begins.
_SURELY_BINARY = (
    b"%PDF-", b"\x7fELF", b"PK\x03\x04", b"PK\x05\x06", b"\x1f\x8b", b"BZh91AY&SY", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd",
    b"7z\xbc\xaf\x27\x1c", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"\xca\xfe\xba\xbe", b"\xcf\xfa\xed\xfe",
)  # fmt: skip


def _is_surely_binary(content: bytes) -> bool:
    return content.startswith(_SURELY_BINARY)


def page(content: bytes, more: bool, offset: int, limit: int) -> dict[str, object]:
    """Return lines `offset` to `offset + limit - 1` of `content`, each cut to LINE_CAP, as many as TEXT_CAP holds."""
    bom = content.startswith(_BOM)
    pieces = content.removeprefix(_BOM).split(b"\n")
    if pieces[-1] == b"" or (more and len(pieces) > 1):
        pieces.pop()  # the empty text after the last newline, or an incomplete line at the cap
    ends = content.count(b"\r\n")
    lines: list[str] = []
    room = TEXT_CAP
    replaced = cut = 0
    for piece in pieces[offset - 1 : offset - 1 + limit]:
        try:
            line = piece.decode()
        except UnicodeDecodeError:
            line = piece.decode("utf-8", "replace")
            replaced += 1
        line = line.removesuffix("\r")
        if len(line) > LINE_CAP:
            line = f"{line[:LINE_CAP]} [... {len(line) - LINE_CAP:,} more characters]"
            cut += 1
        room -= len(line) + 8
        if room < 0 and lines:
            break
        lines.append(line)
    return {
        "lines": lines,
        "total": None if more else len(pieces),
        "known": len(pieces),
        "replaced": replaced,
        "cut": cut,
        "bom": bom,
        "ends": "LF" if not ends else "CRLF" if ends == content.count(b"\n") else "mixed",
    }


def guess(content: bytes) -> str:
    """Return the probable kind of binary `content`, in words."""
    for at, magic, words in _MAGIC:
        if content[at : at + len(magic)] == magic:
            return words
    return "binary data"
