"""The text of a page: its kind, its charset, and its conversion to Markdown by a confined program."""

import codecs
import re
from enum import Enum

from policy.model.frozen import dataclass
from policy.model.verdict import Problem, ProblemError
from runner.text.sanitize import one_line


class PageKind(Enum):
    """The kinds of content that are read. The value is that of `runner/documents`, or empty for text."""

    HTML = "html"
    PDF = "pdf"
    TEXT = ""


@dataclass(frozen=True, slots=True)
class PageText:
    """The text of a page.

    Attributes:
        text: The text, as Markdown if the page is HTML or PDF.
        title: The title that the page states; empty if it states none.
        notes: What the text lacks, in words of this program.
    """

    text: str
    title: str = ""
    notes: tuple[str, ...] = ()


_HTML = ("text/html", "application/xhtml+xml")
_TEXTS = ("json", "xml", "yaml", "x-yaml", "toml", "javascript", "ecmascript", "x-sh", "sql", "x-ndjson", "graphql")
_UNSTATED = ("", "application/octet-stream", "binary/octet-stream", "application/x-download")
_LOOKS_HTML = re.compile(rb"\s*(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL)
# SOURCE: html.spec.whatwg.org, "Determining the character encoding": the first 1,024 bytes are searched.
_META = re.compile(rb"<meta[^>]{0,500}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_CHARSET = re.compile(r"charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
# The labels of encodings that pages use, as the codecs that browsers take for them (encoding.spec.whatwg.org). No other
# codec of Python is used: some of them are no encodings of text, or take quadratic time.
# fmt: off
_LABELS = {
    **dict.fromkeys(("utf-8", "utf8", "unicode-1-1-utf-8"), "utf-8"),
    **dict.fromkeys(("utf-16", "utf-16le", "unicode", "ucs-2"), "utf-16-le"), "utf-16be": "utf-16-be",
    **dict.fromkeys(("ascii", "us-ascii", "iso-8859-1", "iso8859-1", "latin1", "windows-1252", "cp1252"), "cp1252"),
    **{f"windows-{each}": f"cp{each}" for each in (874, 1250, 1251, 1253, 1254, 1255, 1256, 1257, 1258)},
    **{f"iso-8859-{each}": f"iso8859-{each}" for each in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)},
    "iso-8859-9": "cp1254", "iso-8859-11": "cp874", "latin2": "iso8859-2", "latin5": "cp1254",
    "koi8-r": "koi8-r", "koi8-u": "koi8-u", "macintosh": "mac-roman", "ibm866": "cp866", "cp866": "cp866",
    **dict.fromkeys(("gbk", "gb2312", "x-gbk", "gb18030"), "gb18030"),
    **dict.fromkeys(("big5", "big5-hkscs"), "big5hkscs"),
    "euc-jp": "euc_jp", **dict.fromkeys(("shift_jis", "shift-jis", "sjis", "x-sjis", "windows-31j"), "cp932"),
    "iso-2022-jp": "iso2022_jp", **dict.fromkeys(("euc-kr", "ks_c_5601-1987", "windows-949"), "cp949"),
}
# fmt: on


def kind_of(kind: str, data: bytes) -> PageKind:
    """Return the kind of content. The first bytes decide about PDF and about content without a stated type. Raises
    ProblemError for content that is no text.
    """
    media = kind.partition(";")[0].strip().lower()
    if data[:1024].lstrip().startswith(b"%PDF-"):  # some servers send PDF as HTML or text
        return PageKind.PDF
    binary = b"\0" in data[:4096] and not data.startswith(tuple(mark for mark, _ in _MARKS)) and "utf-16" not in kind
    subtype = media.partition("/")[2]
    if media == "application/pdf":
        raise _unread("it is stated to be a PDF document and is none")
    if binary:
        raise _unread(f"its content is binary data, stated to be `{one_line(media, 60)}`")
    if media in _HTML or (media in _UNSTATED and _LOOKS_HTML.match(data[:4096])):
        return PageKind.HTML
    if media.startswith("text/") or media in _UNSTATED or subtype.rpartition("+")[2] in _TEXTS:
        return PageKind.TEXT
    raise _unread(f"its content is {one_line(media, 60)}")


def _unread(why: str) -> ProblemError:
    fix = "only HTML, PDF and text are read: look for another address of the same content"
    return ProblemError(Problem("the page was not read", why, fix))


def decoded(kind: str, data: bytes, *, html: bool) -> tuple[str, tuple[str, ...]]:
    """Return the text of `data`, and notes about characters that could not be decoded.

    A byte order mark overrides the stated charset, which overrides that in the HTML. Without any of them, the text is
    UTF-8 if it is valid, else windows-1252.
    """
    codec = next((codec for mark, codec in _MARKS if data.startswith(mark)), "")
    stated = _CHARSET.search(kind)
    named = stated[1].lower() if stated else ""
    if not named and html and (found := _META.search(data[:1024])):
        named = found[1].decode("ascii").lower()
        named = "utf-8" if named.startswith("utf-16") else named  # as browsers: such a page could not have been read
    notes: tuple[str, ...] = ()
    if not codec and named:
        codec = _LABELS.get(named, "")
        if not codec:
            notes = (f"the charset `{one_line(named, 40)}` is not known",)
    if not codec:
        try:
            return data.decode("utf-8").removeprefix("\ufeff"), notes
        except UnicodeDecodeError:
            codec = "cp1252"
    text = data.decode(codec, "replace").removeprefix("\ufeff")
    if lost := text.count("\ufffd"):
        notes = (*notes, f"{lost:,} characters are not valid {codec}")
    return text, notes


def plain_text(kind: str, data: bytes) -> PageText:
    """Return the text of a page that needs no conversion."""
    text, notes = decoded(kind, data, html=False)
    return PageText(text.replace("\r\n", "\n"), notes=notes)
