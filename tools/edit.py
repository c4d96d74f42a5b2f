"""The `edit` tool: replaces an exact piece of text in a file."""

from typing import Annotated

from pydantic import Field

from policy.model.action import EditFile
from policy.model.verdict import Problem
from tools.arguments import CONTENT_CAP, PATH_CAP
from tools.file_result import FileTool, PlacedFile, change_lines
from tools.paths import SeenFiles, place
from tools.text import count
from tools.tool import Arguments, TextPart


class EditArgs(Arguments):
    path: Annotated[str, Field(max_length=PATH_CAP, description="The file, absolute or from the working folder.")]
    old_string: Annotated[
        str, Field(max_length=CONTENT_CAP, description="The exact text to replace, spaces and line breaks included.")
    ]
    new_string: Annotated[str, Field(max_length=CONTENT_CAP, description="The text to put in its place.")]
    replace_all: Annotated[bool, Field(description="Replace all matches; otherwise there must be exactly one.")] = False


class EditAnswer(PlacedFile):
    count: int


class EditTool(FileTool):
    name = "edit"
    description = (
        "Replace an exact piece of text in a file. `old_string` must be in the file exactly once, unless `replace_all` "
        "is set: include surrounding lines to make it unique. Fails if the file changed since you last read it. "
        "Line ends (CR LF) and a byte order mark are kept."
    )
    example = '{"path": "src/main.py", "old_string": "retries = 3", "new_string": "retries = 5"}'
    Args = EditArgs
    Answer = EditAnswer

    def plan(self, args: EditArgs, cwd: str, seen: SeenFiles) -> EditFile | Problem:
        path = place(args.path, cwd)
        if isinstance(path, Problem):
            return path
        what = f"cannot edit `{path}`"
        if not args.old_string:
            fix = "give the exact text to replace, or create the file with `write`"
            return Problem(what, "`old_string` is empty", fix)
        if args.old_string == args.new_string:
            return Problem(what, "`old_string` and `new_string` are the same", "give a `new_string` that differs")
        return EditFile(path, args.old_string, args.new_string, args.replace_all, seen.digest(path))

    def parts(self, action: EditFile, answer: EditAnswer, seen: SeenFiles) -> tuple[TextPart, ...]:
        for path in (action.path, answer.real):
            seen.note(path, answer.sha256)
        headline = f"edited `{action.path}`: {count(answer.count, 'replacement')}, {count(answer.lines, 'line')} now"
        return (TextPart("\n".join([headline, *change_lines(answer)])),)
