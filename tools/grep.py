"""The `grep` tool: files by their content."""

from typing import Annotated, Literal

from pydantic import Field, Strict

from policy.model.action import GrepFiles
from policy.model.verdict import Problem
from tools.arguments import PATH_CAP, PATTERN_CAP
from tools.file_result import FileTool, ToolAnswer
from tools.paths import SeenFiles, place
from tools.text import BYTES, count, head
from tools.tool import Arguments, TextPart


class GrepArgs(Arguments):
    pattern: Annotated[
        str, Field(min_length=1, max_length=PATTERN_CAP, description="A regular expression, matched line by line.")
    ]
    path: Annotated[
        str | None,
        Field(max_length=PATH_CAP, description="The file or folder to search; the working folder if omitted."),
    ] = None
    glob: Annotated[
        str | None,
        Field(min_length=1, max_length=PATH_CAP, description="Search only these files: `*.py`, `src/**`, `!*.min.js`."),
    ] = None
    ignore_case: Annotated[bool, Field(description="Ignore the difference between capital and small letters.")] = False
    files_only: Annotated[bool, Field(description="Return only the names of matching files.")] = False
    context: Annotated[int, Field(ge=0, le=20, description="Number of lines to show before and after each match.")] = 0
    limit: Annotated[int, Field(ge=1, le=2000, description="Most matching lines (or files) to show.")] = 200


class GrepAnswer(ToolAnswer):
    # JSON has no tuples: a list of the right length and types is one.
    engine: Literal["ripgrep", "python"]
    files: list[Annotated[tuple[str, list[Annotated[tuple[int, bool, str], Strict(False)]]], Strict(False)]]
    count: int
    unread: int
    limited: bool
    late: bool


class GrepTool(FileTool):
    name = "grep"
    description = (
        "Search the contents of files for a regular expression. Uses ripgrep when the sandbox has it: then what "
        "`.gitignore` names is left out; otherwise every file is searched. Binary files and `.git` are always skipped, "
        "hidden files are searched; lines are cut at 500 characters."
    )
    example = '{"pattern": "def main\\\\(", "path": "src", "glob": "*.py", "context": 2}'
    Args = GrepArgs
    Answer = GrepAnswer

    def plan(self, args: GrepArgs, cwd: str, seen: SeenFiles) -> GrepFiles | Problem:
        if "\n" in args.pattern:
            what = "cannot search for a pattern with a line break"
            return Problem(what, "files are searched line by line", "search for one line, with `context` around it")
        root = place("." if args.path is None else args.path, cwd)
        if isinstance(root, Problem):
            return root
        return GrepFiles(args.pattern, root, args.glob, args.ignore_case, args.files_only, args.context, args.limit)

    def parts(self, action: GrepFiles, answer: GrepAnswer, seen: SeenFiles) -> tuple[TextPart, ...]:
        body = [path for path, _ in answer.files] if action.files_only else _grouped(answer)
        shown, left = head(body, BYTES)
        lines = [_headline(action, answer), *shown]
        if left:
            lines.append(f"[{count(left, 'more line')} not shown: search a smaller folder, or give `glob`]")
        elif answer.limited:
            lines.append("[there are more matches: search a smaller folder, give `glob`, or raise `limit`]")
        if answer.unread:
            lines.append(f"[{count(answer.unread, 'file or folder', 'files or folders')} could not be read]")
        if answer.late:
            lines.append("[time limit reached before all files were searched: search a smaller folder, or give `glob`]")
        return (TextPart("\n".join(lines)),)


def _headline(action: GrepFiles, answer: GrepAnswer) -> str:
    more = "at least " if answer.limited or answer.late else ""
    if action.files_only:
        return f"{more}{count(answer.count, 'file')} with `{action.pattern[:200]}` in `{action.root}`"
    found = count(answer.count, "matching line")
    return f"{more}{found} for `{action.pattern[:200]}` in `{action.root}`, {count(len(answer.files), 'file')}"


def _grouped(answer: GrepAnswer) -> list[str]:
    """Return each file's name and its lines: `12:` before a match, `12-` before other lines, `--` where lines are
    missing.
    """
    lines: list[str] = []
    for path, found in answer.files:
        lines.append(path)
        around = any(not matches for _, matches, _ in found)
        before = 0
        for number, matches, text in found:
            if around and before and number > before + 1:
                lines.append("--")
            lines.append(f"{number}{':' if matches else '-'}{text}")
            before = number
    return lines
