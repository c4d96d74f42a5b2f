"""The `ls` tool: the entries of a folder."""

from typing import Annotated, Literal

from pydantic import Field, Strict

from policy.model.action import ListFolder
from policy.model.verdict import Problem
from tools.arguments import PATH_CAP
from tools.file_result import FileTool, ToolAnswer
from tools.paths import SeenFiles, place
from tools.text import BYTES, count, head
from tools.tool import Arguments, TextPart

_Kind = Literal["file", "folder", "link", "pipe", "socket", "device", "unknown"]


class LsArgs(Arguments):
    path: Annotated[
        str | None, Field(max_length=PATH_CAP, description="The folder, absolute or from the working folder.")
    ] = None


class LsAnswer(ToolAnswer):
    # JSON has no tuples: a list of the right length and types is one.
    entries: list[Annotated[tuple[str, _Kind, int | None, str | None], Strict(False)]]
    total: int | None
    unsorted: bool


class LsTool(FileTool):
    name = "ls"
    description = (
        "List a folder by name, dot files included, at most 1,000 entries: folders end in `/`, files show their size, "
        "links where they lead."
    )
    example = '{"path": "src"}'
    Args = LsArgs
    Answer = LsAnswer

    def plan(self, args: LsArgs, cwd: str, seen: SeenFiles) -> ListFolder | Problem:
        path = place("." if args.path is None else args.path, cwd)
        return path if isinstance(path, Problem) else ListFolder(path)

    def parts(self, action: ListFolder, answer: LsAnswer, seen: SeenFiles) -> tuple[TextPart, ...]:
        if not answer.entries:
            return (TextPart(f"`{action.path}` is empty"),)
        names = []
        for name, kind, size, target in answer.entries:
            endings = {"file": f"  {count(size or 0, 'byte')}", "folder": "/", "link": f" -> {target}"}
            names.append(name + endings.get(kind, f"  ({kind})"))
        shown, left = head(names, BYTES)
        if answer.total is None:
            lines = [f"`{action.path}`, more than 200,000 entries:", *shown]
            lines.append("[not all entries are shown: search for names with `glob`]")
        else:
            lines = [f"`{action.path}`, {count(answer.total, 'entry', 'entries')}:", *shown]
            left += answer.total - len(answer.entries)
            if left:
                lines.append(f"[{count(left, 'more entry', 'more entries')} not shown: search for names with `glob`]")
        return (TextPart("\n".join(lines)),)
