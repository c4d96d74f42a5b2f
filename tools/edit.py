"""The `edit` tool: one exact piece of a file for another."""

from typing import Annotated

from pydantic import Field

from policy.model.action import EditFile
from policy.model.verdict import Problem
from tools.arguments import CONTENT_CAP, PATH_CAP, Arguments
from tools.file_result import Change, answer_of, change_lines, problem_parts
from tools.resolve_path import place
from tools.seen_files import Seen
from tools.tool import Finished, Keep, TextPart
from tools.units import count


class EditArgs(Arguments):
    path: Annotated[str, Field(max_length=PATH_CAP, description="The file, absolute or from the working folder.")]
    old_string: Annotated[
        str, Field(max_length=CONTENT_CAP, description="The exact text to replace, spaces and line breaks included.")
    ]
    new_string: Annotated[str, Field(max_length=CONTENT_CAP, description="What stands there afterwards.")]
    replace_all: Annotated[bool, Field(description="Replace every place; otherwise there must be exactly one.")] = False


class EditAnswer(Change):
    count: int


class Edit:
    name = "edit"
    description = (
        "Replace an exact piece of text in a file. `old_string` must be in the file exactly once, unless `replace_all` "
        "is set: give lines around it to make it the only one. Fails when the file changed since you last read it. "
        "Line ends (CR LF) and a byte order mark are kept."
    )
    example = '{"path": "src/main.py", "old_string": "retries = 3", "new_string": "retries = 5"}'
    Args = EditArgs

    def plan(self, args: EditArgs, cwd: str, seen: Seen) -> EditFile | Problem:
        path = place(args.path, cwd)
        if isinstance(path, Problem):
            return path
        what = f"cannot edit `{path}`"
        if not args.old_string:
            return Problem(
                what, "`old_string` is empty", "give the exact text to replace, or make the file with `write`"
            )
        if args.old_string == args.new_string:
            return Problem(what, "`old_string` and `new_string` are the same", "give a `new_string` that differs")
        return EditFile(path, args.old_string, args.new_string, args.replace_all, seen.digest(path))

    def render(
        self, action: EditFile, finished: Finished, seen: Seen, *, keep: Keep | None = None
    ) -> tuple[TextPart, ...]:
        answer = answer_of(EditAnswer, finished)
        if isinstance(answer, Problem):
            return problem_parts(answer, finished)
        seen.note(action.path, answer.sha256)
        seen.note(answer.real, answer.sha256)
        headline = f"edited `{action.path}`: {count(answer.count, 'replacement')}, {count(answer.lines, 'line')} now"
        return (TextPart("\n".join([headline, *change_lines(answer)])),)
