"""The `bash` tool: a script, and its result."""

import signal
from typing import Annotated

from pydantic import Field

from policy.model.action import RunScript, StartProcess
from policy.model.verdict import Problem
from tools.arguments import SCRIPT_CAP
from tools.file_result import tell, violations
from tools.paths import SeenFiles
from tools.processes import started_text
from tools.text import BYTES, LINES, Tail, count, seconds, size, tail
from tools.tool import Arguments, Finished, Keep, TextPart

_TIMEOUT = 120  # seconds
_TIMEOUT_MOST = 600  # seconds


class BashArgs(Arguments):
    command: Annotated[str, Field(max_length=SCRIPT_CAP, description="Text of the bash script.")]
    timeout: Annotated[
        float, Field(gt=0, le=_TIMEOUT_MOST, description="Time in seconds after which the script is ended.")
    ] = _TIMEOUT
    background: Annotated[
        bool, Field(description="Start the script as a process that stays, and return its id at once.")
    ] = False
    pty: Annotated[bool, Field(description="Run the script in a terminal, for programs that need one.")] = False
    description: Annotated[
        str | None,
        Field(max_length=1000, description="Purpose of the script in five to ten words, shown to the user."),
    ] = None


class BashTool:
    name = "bash"
    description = (
        "Run a bash script in the working folder, inside the sandbox. Each call starts a new shell: `cd` and variables "
        "do not last. There is no network unless a host was allowed, no terminal without `pty`, and nothing on "
        "standard input. What the script needs is read from its text before it runs: plain commands with plain words "
        "are allowed most often. Start a server or a watcher with `background`: it stays until this session ends, and "
        "later commands with the same rights reach it on localhost. "
        f"You see the last {LINES:,} lines or {BYTES // 1024} KiB of the output. "
        "To look at files, prefer `read`, `grep`, `glob` and `ls`; to change them, `edit` and `write`."
    )
    example = '{"command": "git status --short", "timeout": 60}'
    Args = BashArgs

    def plan(self, args: BashArgs, cwd: str, seen: SeenFiles) -> RunScript | Problem:
        if not args.command.strip():
            return Problem("the command is empty", "there is nothing to run", f"call `bash` with {self.example}")
        if args.background:
            return StartProcess(args.command, cwd, pty=args.pty)
        if args.pty:
            return StartProcess(args.command, cwd, args.timeout, pty=True, stays=False)
        return RunScript(args.command, cwd, args.timeout)

    def render(
        self, action: RunScript, finished: Finished, seen: SeenFiles, *, keep: Keep | None = None
    ) -> tuple[TextPart, ...]:
        lines = [tell(finished.problem)] if finished.problem is not None else []
        if lines and not finished.stdout and not finished.stderr:
            return (TextPart("\n".join([*lines, *violations(finished)])),)
        if isinstance(action, StartProcess) and action.stays and finished.problem is None:
            return (TextPart(started_text(finished, pty=action.pty)),)
        lines += _output(finished, keep)
        if finished.truncated:
            lines.append("[the output exceeded the output limit; the rest was dropped]")
        lines += violations(finished)
        lines.append(f"[{_ending(action, finished)}]")
        return (TextPart("\n".join(lines)),)


def _output(finished: Finished, keep: Keep | None) -> list[str]:
    """Return both streams, cut to the length that a model can use, with a marker where text is missing."""
    streams = (finished.stdout, finished.stderr)
    out, err = (stream.decode("utf-8", "replace").replace("\0", "\\x00") for stream in streams)
    if not out and not err:
        return ["(no output)"]
    shown_out, shown_err = _share(out, err)
    where = _kept(finished, keep) if shown_out.bytes or shown_err.bytes else ""
    lines: list[str] = []
    for name, shown in (("stdout", shown_out), ("stderr", shown_err)):
        if not shown.text:
            continue
        if name == "stderr":
            lines.append("[stderr]")
        if shown.bytes:
            cut = count(shown.lines, "line") + f" ({size(shown.bytes)})" if shown.lines else size(shown.bytes)
            lines.append(f"[cut from the start of {name}: {cut}{where}]")
        lines.append(shown.text.removesuffix("\n"))
    return lines


def _share(out: str, err: str) -> tuple[Tail, Tail]:
    """Return the ends of both streams within LINES and BYTES: first at most half for stderr, then the rest for stdout,
    then the remaining room for stderr.
    """
    shown_err = tail(err, LINES // 2, BYTES // 2)
    shown_out = tail(out, *_beside(shown_err))
    return shown_out, tail(err, *_beside(shown_out))


def _beside(other: Tail) -> tuple[int, int]:
    """Return the lines and bytes that are left beside `other`."""
    used = other.text.encode("utf-8", "replace")
    return LINES - used.count(b"\n"), BYTES - len(used)


def _kept(finished: Finished, keep: Keep | None) -> str:
    if keep is None:
        return ""
    try:
        path = keep(finished.stdout, finished.stderr)
    except OSError as error:
        return f", and the complete output could not be saved: {(error.strerror or 'disk error').lower()}"
    if not path:
        return ""
    # Output beyond the limit was dropped, so only the first part was saved.
    first = f"the first {size(len(finished.stdout) + len(finished.stderr))} are"
    return f"; {first if finished.truncated else 'the complete output is'} saved for the user in {path}"


def _ending(action: RunScript, finished: Finished) -> str:
    """Return how the command ended, in words."""
    took = seconds(finished.seconds)
    match finished.ended_by:
        case "wall":
            limit = action.timeout if action.timeout and finished.seconds >= action.timeout * 0.95 else finished.seconds
            longer = f"give a longer `timeout` (at most {_TIMEOUT_MOST})"
            return f"ended by the wall-time limit of {seconds(limit)}; {longer}, or do less in one call"
        case "cancelled":
            return f"stopped after {took}"
        case "watch":
            return (
                f"ended after {took}: it created an auto-run file (now moved away), or another program opened a socket"
            )
        case str(limit_name):
            return f"ended by the {limit_name} limit after {took}"
    if finished.status > 128:
        try:
            return f"exit status {finished.status}, as after {signal.Signals(finished.status - 128).name}, in {took}"
        except ValueError:
            pass  # no signal has this number: a plain exit status
    return f"exit status {finished.status}, in {took}"
