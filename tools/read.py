"""The `read` tool: a file as numbered lines, as an image, or as the pages or cells of a document."""

import re
from typing import Annotated, Literal

from pydantic import Field, RootModel

from policy.model.action import ReadFile
from policy.model.verdict import Problem
from tools.arguments import PATH_CAP
from tools.file_result import FileTool, ToolAnswer
from tools.paths import MASKED, SeenFiles, place
from tools.text import count, short, size
from tools.tool import Arguments, ImagePart, ResultPart, TextPart

_LINES = 2000
_PAGES = "Pages of a PDF, or cells of a notebook, such as `3`, `2-5` or `8-`."
_RANGE = re.compile(r"([1-9]\d{0,5})(?:-([1-9]\d{0,5})?)?")


class ReadArgs(Arguments):
    path: Annotated[str, Field(max_length=PATH_CAP, description="The file, absolute or from the working folder.")]
    offset: Annotated[int, Field(ge=1, le=10**9, description="The first line to show, counted from 1.")] = 1
    limit: Annotated[int, Field(ge=1, le=100_000, description="Largest number of lines to show.")] = _LINES
    pages: Annotated[str | None, Field(max_length=20, description=_PAGES)] = None


class _Read(ToolAnswer):
    real: str
    size: int
    sha256: str | None


class _Text(_Read):
    type: Literal["text"]
    lines: list[str]
    total: int | None
    known: int
    replaced: int
    cut: int
    bom: bool
    ends: Literal["LF", "CRLF", "mixed"]
    note: str = ""


class _Image(_Read):
    type: Literal["image"]
    media: Literal["image/png", "image/jpeg", "image/gif", "image/webp"]
    base64: str


class _Binary(_Read):
    type: Literal["binary"]
    guess: str


class _Empty(_Read):
    type: Literal["empty"]


class _Unconverted(_Read):
    type: Literal["document"]
    kind: str
    base64: str
    guess: str


class _Drawing(ToolAnswer):
    media: Literal["image/png", "image/jpeg", "image/gif", "image/webp"]
    base64: str
    label: str


class _Section(ToolAnswer):
    label: str
    text: str
    images: list[_Drawing]


class _Converted(_Read):
    type: Literal["converted"]
    kind: str
    title: str
    total: int
    sections: list[_Section]
    notes: list[str]


_Answers = _Text | _Image | _Binary | _Empty | _Unconverted | _Converted


class ReadAnswer(RootModel[Annotated[_Answers, Field(discriminator="type")]]):
    pass


class ReadTool(FileTool):
    name = "read"
    description = (
        f"Read a file. Shows {_LINES:,} lines unless `limit` says otherwise, each with its number and a tab before it "
        "(they are not part of the file); lines longer than 2,000 characters are cut. Shows images, the text of PDF "
        "documents by page (pages without text as images), and notebooks (.ipynb) by cell with their outputs; `offset` "
        "or `limit` show the lines of a notebook's JSON instead."
    )
    example = '{"path": "src/main.py", "offset": 1, "limit": 200}'
    Args = ReadArgs
    Answer = ReadAnswer

    def plan(self, args: ReadArgs, cwd: str, seen: SeenFiles) -> ReadFile | Problem:
        path = place(args.path, cwd)
        if isinstance(path, Problem):
            return path
        pages = (args.pages or "").replace(" ", "")
        chosen = _RANGE.fullmatch(pages) if pages else None
        if pages and (chosen is None or (chosen[2] and int(chosen[2]) < int(chosen[1]))):
            why, fix = f"`{short(pages, 30)}` is no range of pages", "write a number or a range such as `2-5`"
            return Problem(f"cannot read `{path}`", why, fix)
        return ReadFile(path, args.offset, args.limit, pages)

    def parts(self, action: ReadFile, answer: ReadAnswer, seen: SeenFiles) -> tuple[ResultPart, ...]:
        content = answer.root
        if content.sha256 is not None:
            for path in (action.path, content.real):
                seen.note(path, content.sha256)
        match content:
            case _Empty():
                return (TextPart(f"`{action.path}` is empty"),)
            case _Unconverted():
                text = f"`{action.path}` is {content.guess} of {size(content.size)}, which is not converted here"
                return (TextPart(text),)
            case _Converted():
                if any(MASKED in section.text for section in content.sections):
                    for path in (action.path, content.real):
                        seen.mask(path, True)
                return _document(action, content)
            case _Binary():
                return (TextPart(f"`{action.path}` is a binary file of {size(content.size)}: {content.guess}"),)
            case _Image():
                kind = content.media.removeprefix("image/")
                return (
                    TextPart(f"`{action.path}`, a {kind} image of {size(content.size)}"),
                    ImagePart(content.media, content.base64),
                )
            case _Text():
                if any(MASKED in line for line in content.lines):
                    for path in (action.path, content.real):
                        seen.mask(path, True)
                lines = [f"{number:6}\t{line}" for number, line in enumerate(content.lines, action.offset)]
                return (TextPart("\n".join([*lines, *_remarks(action, content)])),)


_KINDS = {"pdf": ("a PDF document", "page"), "notebook": ("a notebook", "cell"), "image": ("an image", "")}


def _document(action: ReadFile, content: _Converted) -> tuple[ResultPart, ...]:
    """Return the parts of a document. Each line of its text has a number and a tab before it, so that no text of the
    document can look like a mark of this program.
    """
    words, word = _KINDS.get(content.kind, ("a document", ""))
    extent = f", {count(content.total, word)}" if word else ""
    titled = short(content.title.replace("`", "'"), 300)
    title = f", with the title `{titled}`" if titled else ""
    lines = [f"`{action.path}`, {words} of {size(content.size)}{extent}{title}"]
    parts: list[ResultPart] = []
    for section in content.sections:
        if section.label:
            lines.append(f"[{section.label}]")
        if section.text.strip():
            lines += [f"{number:6}\t{line}" for number, line in enumerate(section.text.rstrip().split("\n"), 1)]
        for image in section.images:
            lines.append(f"[image: {image.label}]")
            parts += [TextPart("\n".join(lines)), ImagePart(image.media, image.base64)]
            lines = []
    lines += [f"[{note}]" for note in content.notes]
    return (*parts, TextPart("\n".join(lines))) if lines else tuple(parts)


def _remarks(action: ReadFile, content: _Text) -> list[str]:
    """Return remarks about properties that the lines alone do not show."""
    remarks: list[str] = []
    whole = count(content.known, "line")
    after = action.offset + len(content.lines)
    if not content.lines:
        remarks.append(f"[line {action.offset:,} is past the end: the file has {whole}]")
    elif after <= content.known:
        remarks.append(f"[lines {action.offset:,} to {after - 1:,} of {content.known:,}; continue with offset {after}]")
    if content.total is None:
        only = f"only the first 10 MiB ({whole}) can be read this way: use `grep`"
        remarks.append(f"[the file has {size(content.size)}; {only}]")
    if content.cut:
        remarks.append(f"[{count(content.cut, 'long line')} cut at 2,000 characters]")
    if content.replaced:
        remarks.append(f"[not UTF-8: {count(content.replaced, 'line')} with bytes shown as �]")
    if content.ends != "LF":
        ends = "all lines end in CR LF" if content.ends == "CRLF" else "some lines end in CR LF, some in LF"
        remarks.append(f"[{ends}]")
    if content.note:
        remarks.append(f"[{content.note}]")
    if content.bom:
        remarks.append("[the file starts with a byte order mark]")
    return remarks
