"""The `read` tool: a file as numbered lines, or as an image."""

from typing import Annotated, Literal

from pydantic import Field, RootModel

from policy.model.action import ReadFile
from policy.model.verdict import Problem
from tools.arguments import PATH_CAP
from tools.file_result import FileTool, ToolAnswer
from tools.paths import MASKED, SeenFiles, place
from tools.text import count, size
from tools.tool import Arguments, ImagePart, ResultPart, TextPart

_LINES = 2000


class ReadArgs(Arguments):
    path: Annotated[str, Field(max_length=PATH_CAP, description="The file, absolute or from the working folder.")]
    offset: Annotated[int, Field(ge=1, le=10**9, description="The first line to show, counted from 1.")] = 1
    limit: Annotated[int, Field(ge=1, le=100_000, description="Largest number of lines to show.")] = _LINES


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


class _Image(_Read):
    type: Literal["image"]
    media: Literal["image/png", "image/jpeg", "image/gif", "image/webp"]
    base64: str


class _Binary(_Read):
    type: Literal["binary"]
    guess: str


class _Empty(_Read):
    type: Literal["empty"]


class ReadAnswer(RootModel[Annotated[_Text | _Image | _Binary | _Empty, Field(discriminator="type")]]):
    pass


class ReadTool(FileTool):
    name = "read"
    description = (
        f"Read a file. Shows {_LINES:,} lines unless `limit` says otherwise, each with its number and a tab before it "
        "(they are not part of the file); lines longer than 2,000 characters are cut. Shows png, jpg, gif and webp as "
        "images."
    )
    example = '{"path": "src/main.py", "offset": 1, "limit": 200}'
    Args = ReadArgs
    Answer = ReadAnswer

    def plan(self, args: ReadArgs, cwd: str, seen: SeenFiles) -> ReadFile | Problem:
        path = place(args.path, cwd)
        return path if isinstance(path, Problem) else ReadFile(path, args.offset, args.limit)

    def parts(self, action: ReadFile, answer: ReadAnswer, seen: SeenFiles) -> tuple[ResultPart, ...]:
        content = answer.root
        if content.sha256 is not None:
            for path in (action.path, content.real):
                seen.note(path, content.sha256)
        match content:
            case _Empty():
                return (TextPart(f"`{action.path}` is empty"),)
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
    if content.bom:
        remarks.append("[the file starts with a byte order mark]")
    return remarks
