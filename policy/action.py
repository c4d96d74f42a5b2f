"""What may be asked: one sum type. Tools plan these, the policy judges them, the sandbox runs them."""

from policy.record import dataclass


@dataclass(frozen=True, slots=True)
class RunScript:
    """Run `script` under bash in `cwd` (absolute). `timeout` is wall seconds."""

    script: str
    cwd: str
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class RunArgv:
    """Run one program with these exact words, no shell in between."""

    argv: tuple[str, ...]
    cwd: str
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class ReadFile:
    """Read `path` (absolute). `offset` is the first line, from 1; `limit` a count of lines."""

    path: str
    offset: int = 1
    limit: int = 2000


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Put `content` at `path` (absolute), making parent folders; atomic, an existing mode is kept."""

    path: str
    content: str


@dataclass(frozen=True, slots=True)
class EditFile:
    """Replace `old` by `new` in `path`. `seen` is the sha256 (hex) of the content the model last read, or None."""

    path: str
    old: str
    new: str
    replace_all: bool = False
    seen: str | None = None


@dataclass(frozen=True, slots=True)
class ListFolder:
    """List the entries of the folder `path` (absolute)."""

    path: str


@dataclass(frozen=True, slots=True)
class GlobFiles:
    """Find files below `root` (absolute) whose relative path matches `pattern` (`**` crosses folders)."""

    pattern: str
    root: str


@dataclass(frozen=True, slots=True)
class GrepFiles:
    """Search file contents below `root` (a file or a folder, absolute) for the regular expression `pattern`."""

    pattern: str
    root: str
    glob: str | None = None
    ignore_case: bool = False
    files_only: bool = False
    context: int = 0
    limit: int = 200


Action = RunScript | RunArgv | ReadFile | WriteFile | EditFile | ListFolder | GlobFiles | GrepFiles
