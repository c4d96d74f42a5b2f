"""The `notebook_edit` tool: replaces, inserts or deletes one cell of a notebook."""

from typing import Annotated, Literal

from pydantic import Field

from policy.model.action import EditNotebook
from policy.model.verdict import Problem
from tools.arguments import CONTENT_CAP, PATH_CAP
from tools.file_result import FileTool, PlacedFile, change_lines
from tools.paths import MASKED, SeenFiles, place
from tools.tool import Arguments, TextPart

_CELL = "The `id` of the cell, or its number as `read` shows it. `insert` adds after it, or first if it is left out."


class NotebookEditArgs(Arguments):
    path: Annotated[str, Field(max_length=PATH_CAP, description="The notebook, absolute or from the working folder.")]
    operation: Annotated[Literal["replace", "insert", "delete"], Field(description="What to do with the cell.")] = (
        "replace"
    )
    cell: Annotated[str, Field(max_length=64, description=_CELL)] = ""
    source: Annotated[str, Field(max_length=CONTENT_CAP, description="The new text of the cell.")] = ""
    cell_type: Annotated[
        Literal["code", "markdown", "raw"] | None, Field(description="The kind; needed only to change it.")
    ] = None


class NotebookAnswer(PlacedFile):
    done: str


class NotebookEditTool(FileTool):
    name = "notebook_edit"
    description = (
        "Change one cell of a notebook (.ipynb): `replace` its text, `insert` a new cell, or `delete` it. The outputs "
        "of a replaced cell are removed. Fails if the notebook changed since you last read it."
    )
    example = '{"path": "analysis.ipynb", "operation": "replace", "cell": "3", "source": "total = sum(values)"}'
    Args = NotebookEditArgs
    Answer = NotebookAnswer

    def plan(self, args: NotebookEditArgs, cwd: str, seen: SeenFiles) -> EditNotebook | Problem:
        path = place(args.path, cwd)
        if isinstance(path, Problem):
            return path
        what = f"cannot edit `{path}`"
        if args.operation != "insert" and not args.cell:
            return Problem(what, "no cell is named", "give the `id` or the number of the cell as `cell`")
        if args.operation == "delete" and args.source:
            return Problem(what, "a cell that is deleted has no new text", "leave out `source`")
        if MASKED in args.source and seen.masked(path):
            why = f"`{MASKED}` replaced a secret in what you read; the notebook contains the real secret"
            return Problem(what, why, "change another cell, or read the secret from the environment in the code")
        kind = args.cell_type or ""
        return EditNotebook(path, "", args.source, False, seen.digest(path), args.operation, args.cell, kind)

    def parts(self, action: EditNotebook, answer: NotebookAnswer, seen: SeenFiles) -> tuple[TextPart, ...]:
        for path in (action.path, answer.real):
            seen.note(path, answer.sha256)
        return (TextPart("\n".join([f"`{action.path}`: {answer.done}", *change_lines(answer)])),)
