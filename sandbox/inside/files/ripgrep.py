"""Search of file contents with ripgrep, if it is installed. Runs confined: standard library only."""

import os
import select
import signal
import time

from sandbox.inside.files.access import show
from sandbox.inside.files.grep import SearchQuery, SearchResult

_OUTPUT_CAP = 8 << 20  # bytes of ripgrep's output that are read: far more than any answer holds
_LINE_CAP = 2000  # bytes of one line that it prints: more than an answer shows, even in UTF-8
_REMARKS = (b"binary file matches", b"WARNING: stopped searching binary file")
_PATH = "/usr/local/bin:/usr/bin:/bin"

# fmt: off
_ALWAYS = (
    "--no-config", "--color=never", "--hidden", "--no-require-git", "--sort=path", "--no-heading", "--null",
    "--with-filename",
)
_LINES = ("--line-number", "--crlf", "--no-context-separator", f"--max-columns={_LINE_CAP}", "--max-columns-preview")
# fmt: on


class Unusable(Exception):
    """The error for a search that ripgrep cannot do. The message is ripgrep's own reason, such as an invalid
    pattern.
    """


def program() -> str | None:
    """Return the path of ripgrep, or None. Only absolute folders of PATH count."""
    for folder in os.environ.get("PATH", _PATH).split(":"):
        path = f"{folder}/rg"
        if folder.startswith("/") and os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return None


def search(query: SearchQuery, path: str) -> SearchResult:
    """Search by running ripgrep (at `path`). Raises Unusable if ripgrep cannot do the search."""
    words = ["--files-with-matches"] if query.files_only else [*_LINES, f"--context={query.context}"]
    words += ["--ignore-case"] if query.ignore_case else []
    output, errors, late, full = _run(query, path, [*words, "--regexp", query.pattern])
    result = SearchResult()
    result.late = late
    for line in errors.decode("utf-8", "replace").splitlines():
        if "(os error" in line:
            result.unread += 1
        elif line.strip() and not output and not late:
            raise Unusable(_reason(errors))
    if query.files_only:
        names = output.split(b"\0")[:-1]
        result.files = [(_path_of(query, name), []) for name in names[: query.limit]]
        result.count, result.limited = len(result.files), len(names) > query.limit
    else:
        _take_lines(output, query, result)
    result.limited = result.limited or full
    return result


def files(query: SearchQuery, path: str) -> list[str] | None:
    """Return the files that ripgrep would search, for a search without ripgrep; None if ripgrep cannot list them, or
    lists none.
    """
    return [os.path.join(query.root, name) for name in relative_files(query, path) or ()] or None


def relative_files(query: SearchQuery, path: str) -> list[str] | None:
    """Return the files that ripgrep would search, relative to the folder of the query; None if ripgrep cannot list
    all.
    """
    if not os.path.isdir(query.root):
        return None
    try:
        output, errors, late, full = _run(query, path, ["--files"])
    except Unusable:
        return None
    names = [os.fsdecode(name).removeprefix("./") for name in output.split(b"\0")[:-1]]
    return None if late or full or (errors and not names) else names


def _run(query: SearchQuery, path: str, words: list[str]) -> tuple[bytes, bytes, bool, bool]:
    folder, target = (query.root, ".") if os.path.isdir(query.root) else os.path.split(query.root)
    glob = ["--glob", query.glob] if query.glob else []
    return run([path, *_ALWAYS, *words, *glob, "--glob", "!.git", "--", target], folder, query.seconds)


def _reason(errors: bytes) -> str:
    """Return the reason in ripgrep's error output: the first line that begins with `error:`, or else the first line."""
    lines = [line.strip() for line in errors.decode("utf-8", "replace").splitlines() if line.strip()]
    reason = next((line for line in lines if line.startswith("error:")), lines[0])
    return reason.removeprefix("error:").strip()[:300]


def _path_of(query: SearchQuery, name: bytes) -> str:
    text = os.fsdecode(name)
    return show(os.path.join(query.root, text.removeprefix("./")) if os.path.isdir(query.root) else query.root)


def _take_lines(output: bytes, query: SearchQuery, result: SearchResult) -> None:
    """Add the lines `path NUL number (: or -) text` of `output` to `result`. A path may contain a newline, and remarks
    of ripgrep may be between the lines."""
    at = 0
    while (nul := output.find(b"\0", at)) >= 0:
        name = output[at:nul]
        while (newline := name.find(b"\n")) >= 0 and any(remark in name[:newline] for remark in _REMARKS):
            name = name[newline + 1 :]
        end = output.find(b"\n", nul)
        rest = output[nul + 1 : end if end >= 0 else len(output)]
        at = end + 1 if end >= 0 else len(output)
        digits = len(rest) - len(rest.lstrip(b"0123456789"))
        if not digits:
            continue  # the output ends inside this line
        matches = rest[digits : digits + 1] == b":"
        if matches and result.count == query.limit:
            result.limited = True
            return
        text = rest[digits + 1 :].decode("utf-8", "replace").removesuffix("\r")
        if not result.line(_path_of(query, name), int(rest[:digits]), matches, text):
            return
        result.count += matches


def start(words: list[str], folder: str) -> tuple[int, int, int]:
    """Start a program in `folder` with empty input. Return its process number, and descriptors to read its standard
    output and standard error. Raises Unusable."""
    out, out_end = os.pipe2(os.O_CLOEXEC)
    err, err_end = os.pipe2(os.O_CLOEXEC)
    nothing, nothing_end = os.pipe2(os.O_CLOEXEC)
    back = os.open(".", os.O_PATH | os.O_CLOEXEC)
    child = 0
    try:
        os.chdir(folder)
        actions = [(os.POSIX_SPAWN_DUP2, handle, number) for number, handle in enumerate((nothing, out_end, err_end))]
        environment = {"LC_ALL": "C.UTF-8", "PATH": _PATH}
        child = os.posix_spawn(words[0], words, environment, file_actions=actions, setsigdef=[signal.SIGPIPE])
    except OSError as error:
        raise Unusable(f"ripgrep does not start: {error.strerror}") from None
    finally:
        os.fchdir(back)
        for descriptor in (nothing, nothing_end, out_end, err_end, back) + (() if child else (out, err)):
            os.close(descriptor)
    return child, out, err


def run(words: list[str], folder: str, seconds: float) -> tuple[bytes, bytes, bool, bool]:
    """Run a program in `folder`, and return (output, error output, True if the time was up, True if the output was
    cut). Raises Unusable."""
    child, out, err = start(words, folder)
    held: dict[int, list[bytes]] = {out: [], err: []}
    ends, size, late = time.monotonic() + seconds, 0, False
    waiting = select.poll()
    waiting.register(out, select.POLLIN)
    waiting.register(err, select.POLLIN)
    open_ends = {out, err}
    while open_ends and size < _OUTPUT_CAP:
        ready = waiting.poll(max(ends - time.monotonic(), 0) * 1000)
        if not ready:
            late = True
            break
        for descriptor, _ in ready:
            piece = os.read(descriptor, 1 << 16)
            if piece:
                held[descriptor].append(piece)
                size += len(piece)
            else:
                waiting.unregister(descriptor)
                open_ends.discard(descriptor)
    if open_ends:
        os.kill(child, signal.SIGKILL)
    os.close(out)
    os.close(err)
    os.waitpid(child, 0)
    return b"".join(held[out]), b"".join(held[err]), late, bool(open_ends) and not late
