"""The `glob` tool: files by name."""

import posixpath
from typing import Annotated, Literal

from pydantic import Field

from policy.model.action import GlobFiles
from policy.model.verdict import Problem
from tools.arguments import PATH_CAP
from tools.file_result import FileTool, ToolAnswer
from tools.paths import SeenFiles, place
from tools.text import count, head
from tools.tool import Arguments, TextPart

_ROOM = 100_000  # characters of one result
_SPECIAL = "*?[{\\"


class GlobArgs(Arguments):
    pattern: Annotated[
        str, Field(min_length=1, max_length=PATH_CAP, description="Names, such as `**/*.py` or `src/*.{ts,tsx}`.")
    ]
    path: Annotated[
        str | None, Field(max_length=PATH_CAP, description="The folder to search; the working folder if omitted.")
    ] = None
    ignored: Annotated[bool, Field(description="Also find files that Git ignores.")] = False


class GlobAnswer(ToolAnswer):
    names: list[str]
    total: int
    unread: int
    late: bool
    ignored: Literal["none", "skipped", "unknown"]


class GlobTool(FileTool):
    name = "glob"
    description = (
        "Find files by name, newest first, at most 1,000. `*` and `?` stay within a name, `**/` crosses folders, "
        "`{a,b}` and `[a-z]` work; names that start with a dot count, `.git` and files that Git ignores are "
        "skipped, links are not followed. "
        "`*.py` looks in the folder itself only, `**/*.py` below it too."
    )
    example = '{"pattern": "**/*.py", "path": "src"}'
    Args = GlobArgs
    Answer = GlobAnswer

    def plan(self, args: GlobArgs, cwd: str, seen: SeenFiles) -> GlobFiles | Problem:
        pattern, folder = args.pattern, args.path
        what = f"cannot look for `{args.pattern[:200]}`"
        if pattern.startswith("/"):
            if folder is not None:
                return Problem(what, "it is absolute, and `path` is given too", "give the folder as `path` only")
            folder, pattern = _split(pattern)
        if pattern.startswith("~"):
            why = "`~` is expanded only by a shell, not by this tool"
            return Problem(what, why, "give the full path of the folder as `path`")
        if ".." in pattern.split("/"):
            return Problem(what, "`..` leads out of the folder", "give the folder to look in as `path`")
        root = place("." if folder is None else folder, cwd)
        return root if isinstance(root, Problem) else GlobFiles(pattern, root, args.ignored)

    def parts(self, action: GlobFiles, answer: GlobAnswer, seen: SeenFiles) -> tuple[TextPart, ...]:
        names, left = head([posixpath.join(action.root, name) for name in answer.names], _ROOM)
        left += answer.total - len(answer.names)
        lines = [f"{count(answer.total, 'file')} below `{action.root}` for `{action.pattern}`"]
        if names:
            lines[0] += ", newest first:"
        elif "/" not in action.pattern:
            below = f"`**/{action.pattern}` looks below it too"
            lines.append(f"[`{action.pattern}` looks in the folder itself only; {below}]")
        lines += names
        if left:
            lines.append(f"[{count(left, 'older file')} not shown: use a narrower pattern]")
        if answer.ignored == "skipped" and not names:
            lines.append("[files that Git ignores were skipped: `ignored` includes them]")
        elif answer.ignored == "unknown":
            lines.append("[files that Git ignores are included, because ripgrep could not list the others]")
        if answer.unread:
            lines.append(f"[{count(answer.unread, 'folder')} could not be read]")
        if answer.late:
            lines.append("[time limit reached before all folders were searched: give a smaller folder as `path`]")
        return (TextPart("\n".join(lines)),)


def _split(pattern: str) -> tuple[str, str]:
    """Return the fixed folder of an absolute pattern, and the pattern below it."""
    parts = pattern.split("/")
    certain = next((at for at, part in enumerate(parts[:-1]) if set(_SPECIAL) & set(part)), len(parts) - 1)
    return "/".join(parts[:certain]) or "/", "/".join(parts[certain:])
