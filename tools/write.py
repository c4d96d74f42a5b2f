"""The `write` tool: a whole file."""

from typing import Annotated

from pydantic import Field

from policy.model.action import WriteFile
from policy.model.verdict import Problem
from tools.arguments import CONTENT_CAP, PATH_CAP
from tools.file_result import FileTool, PlacedFile, change_lines
from tools.paths import MASKED, SeenFiles, place
from tools.text import count
from tools.tool import Arguments, TextPart


class WriteArgs(Arguments):
    path: Annotated[str, Field(max_length=PATH_CAP, description="The file, absolute or from the working folder.")]
    content: Annotated[str, Field(max_length=CONTENT_CAP, description="The complete new content of the file.")]


class WriteAnswer(PlacedFile):
    created: bool
    changed: bool
    was: int | None
    folders: int


class WriteTool(FileTool):
    name = "write"
    description = (
        "Create a file or replace its content; missing folders are created. To change a part of a file, use `edit`: it "
        "costs less and cannot lose the rest."
    )
    example = '{"path": "notes/plan.md", "content": "# Plan\\n"}'
    Args = WriteArgs
    Answer = WriteAnswer

    def plan(self, args: WriteArgs, cwd: str, seen: SeenFiles) -> WriteFile | Problem:
        path = place(args.path, cwd)
        if isinstance(path, Problem):
            return path
        if args.path.endswith("/"):
            why = "the path ends in a slash, so it names a folder"
            return Problem(f"cannot write `{path}/`", why, "add the name of a file")
        if MASKED in args.content and seen.masked(path):
            what = f"cannot write `{path}` with `{MASKED}` in it"
            why = "this text replaced a secret in what you read; the file contains the real secret, which would be lost"
            return Problem(what, why, "change the other lines with `edit`, which keeps the secret")
        return WriteFile(path, args.content)

    def parts(self, action: WriteFile, answer: WriteAnswer, seen: SeenFiles) -> tuple[TextPart, ...]:
        for path in (action.path, answer.real):
            seen.note(path, answer.sha256)
            seen.mask(path, False)
        return (TextPart("\n".join([_headline(action, answer), *change_lines(answer)])),)


def _headline(action: WriteFile, answer: WriteAnswer) -> str:
    now = count(answer.lines, "line")
    through = f" (the link leads to `{answer.real}`)" if answer.real != action.path else ""
    if answer.created:
        made = f", and {count(answer.folders, 'folder')} above it" if answer.folders else ""
        return f"created `{action.path}`{through} with {now}{made}"
    if not answer.changed:
        return f"`{action.path}`{through} held exactly this before: {now}"
    was = "a file of more than 10 MiB" if answer.was is None else count(answer.was, "line")
    return f"replaced `{action.path}`{through}: {was} before, {now} now"
