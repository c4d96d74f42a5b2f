"""Reading of one file as numbered text, as an image, or as binary. Runs confined: standard library only."""

import binascii
import os

from sandbox.inside.files.access import Refused, digest, is_binary, read_capped, show
from sandbox.inside.files.image_check import SIDE_CAP, picture

LINE_CAP = 2000  # characters of one line
TEXT_CAP = 200_000  # characters of one answer; the next read continues after them
DOCUMENT_CAP = 32 << 20  # bytes of a document that is converted
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
    (0,   b"%PDF-",                "a PDF document"),
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


def read_file(path: str, offset: int, limit: int, *, paged: bool = False) -> dict[str, object]:
    """Return the answer for one file: `type` is text, empty, image, document or binary. Raises Refused if it cannot be
    read.

    A document is returned as it is, because a program apart converts it: PDF, an image that a model does not accept,
    and a notebook unless its lines are asked for. With `paged` a notebook is one whatever lines are asked for.
    """
    what = f"cannot read `{show(path)}`"
    content, more = read_capped(path, what)
    answer: dict[str, object] = {"real": show(os.path.realpath(path))}
    if not more and (image := picture(content)) is not None:
        media, *sides = image
        if len(content) <= IMAGE_CAP and max(sides) <= SIDE_CAP:
            text = binascii.b2a_base64(content, newline=False).decode()
            kept = {"size": len(content), "sha256": digest(content), "type": "image", "media": media, "base64": text}
            return answer | kept
    if (kind := document_kind(path, content, lines=(offset, limit) != (1, 2000) and not paged)) is not None:
        if more:
            content, more = read_capped(path, what, DOCUMENT_CAP)
        if not more:
            text = binascii.b2a_base64(content, newline=False).decode()
            kept = {"size": len(content), "sha256": digest(content), "type": "document", "kind": kind, "base64": text}
            return answer | kept | {"guess": guess(content)}
    size = os.stat(path).st_size if more else len(content)
    answer |= {"size": size, "sha256": None if more else digest(content)}
    if kind is not None and kind != "notebook":
        why = f"the document has {size:,} bytes, and at most {DOCUMENT_CAP:,} are read"
        raise Refused(what, why, "make a smaller copy, or convert it with a command")
    if is_binary(content) or _is_surely_binary(content):
        return answer | {"type": "binary", "guess": guess(content)}
    if not content:
        return answer | {"type": "empty"}
    return answer | {"type": "text"} | page(content, more, offset, limit)


# Beginnings of binary images that need a conversion for models: BMP, TIFF, ICO, ICNS, JPEG 2000, QOI, PSD, DDS, PCX,
# SGI. A TGA has none, and a PNM may contain no NUL: these are found by their names.
_IMAGES = (
    b"BM", b"II*\0", b"MM\0*", b"\0\0\1\0", b"icns", b"\0\0\0\x0cjP  ", b"\xff\x4f\xff\x51", b"qoif", b"8BPS", b"DDS ",
    b"\n\5\1\x08", b"\x01\xda",
)  # fmt: skip
_AVIF = (b"ftypavif", b"ftypavis")


def document_kind(path: str, content: bytes, *, lines: bool = False) -> str | None:
    """Return the kind of document that `content` is the beginning of; None for other files.

    The content decides, so that a PDF document under another name is one. A notebook is JSON like other files, so that
    its name counts, too. `lines` is True if lines of a text are asked for.
    """
    name, binary = path.lower(), is_binary(content)
    if content.startswith(b"%PDF-") or (binary and b"%PDF-" in content[:1024]):
        return "pdf"
    if binary and (content.startswith(_IMAGES) or content[4:12] in _AVIF or name.endswith(".tga")):
        return "image"
    if content[:2] in (b"P4", b"P5", b"P6") and name.endswith((".pbm", ".pgm", ".ppm", ".pnm")):
        return "image"
    if picture(content) is not None:
        return "image"  # one that is too large for a model
    if name.endswith(".ipynb") and not lines and content.lstrip()[:1] == b"{":
        return "notebook"
    return None


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
