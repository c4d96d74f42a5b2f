"""The tools for the history of a repository. Each plans one command of Git, which the policy judges like any other.

THREAT T254: a word of the model must not become a flag of Git, a pathspec with a meaning of its own, or a revision that
is looked for by a pattern of the model. Paths follow `--`, and revisions have the characters of names only.
"""

import re
from typing import Annotated

from pydantic import Field

from policy.model.action import RunArgv, RunScript
from policy.model.verdict import Problem
from tools.bash import BashTool
from tools.paths import SeenFiles
from tools.tool import Arguments, Finished, Keep, ModelTool, TextPart

_TIMEOUT = 60.0  # seconds
_LONGEST = 1000  # characters of a word
# A name, an id or a range, with the usual suffixes. `@{...}` and `^{/...}` search, and are left out.
_REVISION = re.compile(
    r"[A-Za-z0-9_][A-Za-z0-9_./+-]*(?:[~^][0-9]*)*(?:\.\.\.?[A-Za-z0-9_][A-Za-z0-9_./+-]*(?:[~^][0-9]*)*)?"
)
_PLAIN = ("--no-color", "--no-ext-diff", "--no-textconv")

Revision = Annotated[str, Field(max_length=_LONGEST)]
FilePath = Annotated[str, Field(max_length=_LONGEST, description="Only this file or folder, relative to the top.")]


class GitLogArgs(Arguments):
    revision: Revision = "HEAD"
    path: FilePath = ""
    count: Annotated[int, Field(ge=1, le=500)] = 30
    message: Annotated[str, Field(max_length=200, description="Only commits whose message has this text.")] = ""
    added: Annotated[str, Field(max_length=200, description="Only commits that add or remove this text.")] = ""
    stat: Annotated[bool, Field(description="Also list the changed files.")] = False


class GitShowArgs(Arguments):
    revision: Revision
    path: FilePath = ""
    stat: Annotated[bool, Field(description="Only list the changed files.")] = False
    whole: Annotated[bool, Field(description="Print the whole file at `path` as it was, not the change.")] = False


class GitBlameArgs(Arguments):
    path: Annotated[str, Field(min_length=1, max_length=_LONGEST)]
    revision: Revision = "HEAD"
    first: Annotated[int, Field(ge=1, le=10_000_000, description="First line.")] = 1
    lines: Annotated[int, Field(ge=1, le=2000)] = 200


class GitDiffArgs(Arguments):
    before: Revision
    after: Revision = "HEAD"
    path: FilePath = ""
    stat: Annotated[bool, Field(description="Only list the changed files.")] = False


class GitRefsArgs(Arguments):
    kind: Annotated[str, Field(pattern="^(all|branches|tags)$", description="all, branches or tags")] = "all"
    count: Annotated[int, Field(ge=1, le=1000)] = 100


class GitCheckoutArgs(Arguments):
    revision: Revision


class _GitTool:
    """A tool that plans a command of Git."""

    def render(
        self, action: RunArgv, finished: Finished, seen: SeenFiles, *, keep: Keep | None = None
    ) -> tuple[TextPart, ...]:
        """Return the output as that of a command."""
        script = RunScript(" ".join(action.argv), action.cwd, action.timeout)
        return BashTool().render(script, finished, seen, keep=keep)


class GitLogTool(_GitTool):
    name = "git_log"
    description = "List commits of the repository, newest first: id, date, author and subject."
    example = '{"path": "src/main.py", "count": 10}'
    Args = GitLogArgs

    def plan(self, args: GitLogArgs, cwd: str, seen: SeenFiles) -> RunArgv | Problem:
        """Return the command, or the problem of a word that Git could read as something else."""
        words = ["log", "--no-color", "--date=short", "--format=%h %ad %an: %s", f"--max-count={args.count}"]
        words += ["--stat"] if args.stat else []
        words += [f"--grep={args.message}", "--fixed-strings"] if args.message else []
        words += [f"-S{args.added}"] if args.added else []
        return _command(cwd, words, (args.revision,), args.path)


class GitShowTool(_GitTool):
    name = "git_show"
    description = "Show a commit with its change, or with `whole` a file as it was in that commit."
    example = '{"revision": "HEAD~1", "path": "src/main.py"}'
    Args = GitShowArgs

    def plan(self, args: GitShowArgs, cwd: str, seen: SeenFiles) -> RunArgv | Problem:
        """Return the command, or the problem of a word that Git could read as something else."""
        if args.whole:
            if fault := _path_fault(args.path) if args.path else "`whole` needs a `path`":
                return _refused(fault)
            if ".." in args.revision:
                return _refused("a file is part of one commit, not of a range")
            return _command(cwd, ["show", "--no-color", "--no-textconv"], (args.revision,), "", f":{args.path}")
        return _command(cwd, ["show", *_PLAIN, *(["--stat"] if args.stat else [])], (args.revision,), args.path)


class GitBlameTool(_GitTool):
    name = "git_blame"
    description = "Show for each line of a file the commit, author and date that wrote it."
    example = '{"path": "src/main.py", "first": 120, "lines": 40}'
    Args = GitBlameArgs

    def plan(self, args: GitBlameArgs, cwd: str, seen: SeenFiles) -> RunArgv | Problem:
        """Return the command, or the problem of a word that Git could read as something else."""
        lines = f"{args.first},+{args.lines}"
        return _command(cwd, ["blame", "--date=short", "-L", lines], (args.revision,), args.path)


class GitDiffTool(_GitTool):
    name = "git_diff"
    description = "Show the difference between two commits, branches or tags."
    example = '{"before": "v1.0", "after": "v1.1", "stat": true}'
    Args = GitDiffArgs

    def plan(self, args: GitDiffArgs, cwd: str, seen: SeenFiles) -> RunArgv | Problem:
        """Return the command, or the problem of a word that Git could read as something else."""
        words = ["diff", *_PLAIN, *(["--stat"] if args.stat else [])]
        return _command(cwd, words, (args.before, args.after), args.path)


class GitRefsTool(_GitTool):
    name = "git_refs"
    description = "List branches and tags, newest first."
    example = '{"kind": "tags"}'
    Args = GitRefsArgs

    def plan(self, args: GitRefsArgs, cwd: str, seen: SeenFiles) -> RunArgv | Problem:
        """Return the command."""
        places = {"branches": ("refs/heads", "refs/remotes"), "tags": ("refs/tags",)}
        named = places.get(args.kind, (*places["branches"], *places["tags"]))
        form = "--format=%(refname:short) %(objectname:short) %(creatordate:short) %(subject)"
        words = ["for-each-ref", "--sort=-creatordate", f"--count={args.count}", form]
        return RunArgv(("git", *words, *named), cwd, _TIMEOUT)


class GitCheckoutTool(_GitTool):
    name = "git_checkout"
    description = "Put the files of a commit, branch or tag into the folder. Other tools then read these files."
    example = '{"revision": "v1.0"}'
    Args = GitCheckoutArgs

    def plan(self, args: GitCheckoutArgs, cwd: str, seen: SeenFiles) -> RunArgv | Problem:
        """Return the command, or the problem of a word that Git could read as something else."""
        if ".." in args.revision:
            return _refused("the files are those of one commit, not of a range")
        return _command(cwd, ["checkout", "--quiet", "--detach"], (args.revision,), "")


def _command(cwd: str, words: list[str], revisions: tuple[str, ...], path: str, suffix: str = "") -> RunArgv | Problem:
    """Return `git WORDS REVISIONS -- PATH`, or the problem of a revision or path. `suffix` follows the last
    revision.
    """
    for revision in revisions:
        if not _REVISION.fullmatch(revision):
            return _refused(f"`{revision[:100]}` is not the name of a commit, a branch or a tag")
    if path and (fault := _path_fault(path)):
        return _refused(fault)
    named = (*revisions[:-1], f"{revisions[-1]}{suffix}")
    return RunArgv(("git", *words, *named, "--", *((path,) if path else ())), cwd, _TIMEOUT)


def _path_fault(path: str) -> str:
    """Return why `path` cannot be a path below the top of the repository; empty if it can."""
    if path.startswith((":", "-", "/")) or not path.isprintable() or set("*?[\\") & set(path):
        return f"`{path[:100]}` is not a plain path; a path is relative to the top, without wildcards"
    return "a path stays below the top of the repository" if ".." in path.split("/") else ""


def _refused(why: str) -> Problem:
    return Problem("nothing was run", why, "correct the call; `git_refs` and `git_log` list what there is")


GIT_TOOLS: tuple[ModelTool, ...] = (
    GitLogTool(),
    GitShowTool(),
    GitBlameTool(),
    GitDiffTool(),
    GitRefsTool(),
    GitCheckoutTool(),
)
