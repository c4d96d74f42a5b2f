"""The head of a Markdown file between two lines of `---`: a few plain settings, read strictly.

It is YAML to whoever writes it. Read are texts: plain, quoted, folded and literal ones. Lists and tables are skipped,
anchors, tags and escapes that nobody needs are refused: a file that came from elsewhere gets no parser with features.
"""

import re
from collections.abc import Mapping

from policy.record import dataclass

_KEY = re.compile(r"([A-Za-z][A-Za-z0-9_-]{0,63}):(?:[ \t]+(.*))?$")
_BLOCK = re.compile(r"([|>])([+-]?)[ \t]*(?:#.*)?$")
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\", "/": "/", " ": " ", "0": ""}
_ESCAPE = re.compile(r"\\(.)")
_MOST_LINES = 200
_LONGEST = 32 << 10  # characters of a head


class HeadError(ValueError):
    """The head cannot be read; the text says why."""


@dataclass(frozen=True, slots=True)
class Head:
    """`texts` are the settings that are texts; `others` the names of those that are something else. `body` follows."""

    texts: Mapping[str, str]
    others: tuple[str, ...]
    body: str


def front_matter(text: str) -> Head:
    """Split a file. Without a head all of it is body. Raises HeadError."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        return Head({}, (), text)
    ends = (place for place, line in enumerate(lines[1 : _MOST_LINES + 1], 1) if line.rstrip() == "---")
    end = next(ends, None)
    if end is None:
        raise HeadError(f"its head has no end: a second line of `---` is missing in the first {_MOST_LINES} lines")
    if sum(map(len, lines[:end])) > _LONGEST:
        raise HeadError(f"its head is longer than {_LONGEST >> 10} KiB")
    texts: dict[str, str] = {}
    others: list[str] = []
    at = 1
    while at < end:
        line = lines[at]
        at += 1
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key = _KEY.match(line)
        if key is None:
            raise HeadError(f"line {at} of its head is no `name: text`")
        name, value = key.group(1), (key.group(2) or "").strip()
        if name in texts or name in others:
            raise HeadError(f"`{name}` stands in its head twice")
        below = []
        while at < end and (not lines[at].strip() or lines[at][0] in " \t" or lines[at].startswith("- ")):
            below.append(lines[at])
            at += 1
        read = _value(name, value, below)
        if read is None:
            others.append(name)
        else:
            texts[name] = read
    return Head(texts, tuple(others), "\n".join(lines[end + 1 :]).strip("\n"))


def _value(name: str, value: str, below: list[str]) -> str | None:
    """A text, or None for what is no text."""
    if any("\t" in line[: len(line) - len(line.lstrip())] for line in below):
        raise HeadError(f"`{name}` is indented with tabs")
    if block := _BLOCK.match(value):
        return _block(name, block.group(1) == ">", block.group(2), below)
    rest = [line.strip() for line in below if line.strip() and not line.strip().startswith("#")]
    if value[:1] in ("[", "{") or (not value and rest):
        return None
    if value[:1] in ("&", "*", "!", "%", "@", "`", "|", ">"):
        raise HeadError(f"`{name}` begins with `{value[0]}`, which is no plain text; put it in quotes")
    if value[:1] in ('"', "'"):
        return _quoted(name, " ".join([value, *rest]))
    if any(_KEY.match(line) for line in rest):
        raise HeadError(f"`{name}` is a text and a table at once")
    if len(found := [line for line in (value, *below) if line.strip()]) > 1 and any(map(_remarked, found)):
        raise HeadError(f"a comment stands in the middle of `{name}`")
    return " ".join([value[: _remark(value)].rstrip(), *rest])


def _remark(line: str) -> int:
    """Where a comment begins, or the end of the line."""
    if line.lstrip().startswith("#"):
        return 0
    return min((at for at in (line.find(" #"), line.find("\t#")) if at >= 0), default=len(line))


def _remarked(line: str) -> bool:
    return _remark(line) < len(line)


def _quoted(name: str, value: str) -> str:
    mark = value[0]
    body = re.match(r'"((?:[^"\\]|\\.)*)"' if mark == '"' else r"'((?:[^']|'')*)'", value)
    if body is None or ((after := value[body.end() :].strip()) and not after.startswith("#")):
        raise HeadError(f"the quotes of `{name}` do not end where its text does")
    if mark == "'":
        return body.group(1).replace("''", "'")
    wrong = next((found for found in _ESCAPE.findall(body.group(1)) if found not in _ESCAPES), None)
    if wrong is not None:
        raise HeadError(f"`\\{wrong}` in `{name}` is an escape that is not read here")
    return _ESCAPE.sub(lambda found: _ESCAPES[found.group(1)], body.group(1))


def _block(name: str, folds: bool, end: str, below: list[str]) -> str:
    while below and not below[-1].strip():
        below.pop()
    if not below:
        return ""
    deep = len(below[0]) - len(below[0].lstrip(" "))
    if deep == 0 or any(line.strip() and not line.startswith(" " * deep) for line in below):
        raise HeadError(f"the lines of `{name}` are not indented alike")
    lines = [line[deep:].rstrip() for line in below]
    if not folds:
        text = "\n".join(lines)
    else:
        text = "\n".join(" ".join(part.split("\n")) for part in re.split(r"\n{2,}", "\n".join(lines)))
    return text if end == "-" else f"{text}\n"
