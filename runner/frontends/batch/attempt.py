"""One attempt at one task on this machine, in a process of its own and on a copy of the workspace."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from io import RawIOBase
from pathlib import Path
from typing import Any

import runner
from policy.model.deadline import deadline
from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from runner.config.trust.session_check import now
from runner.frontends.batch.store import STATUSES, Status, TaskResult
from runner.frontends.batch.task import Task
from runner.problems import Exit, Stopped
from runner.state.paths import BATCH
from runner.text.phrases import os_reason
from sandbox.inside import safe_rmtree
from sandbox.linux.helper_process import starting_process


@dataclass(frozen=True, slots=True)
class BatchEnvironment:
    """The values that are the same for every task of a batch.

    Attributes:
        options: Options of `agent`, as typed.
        environ: The environment of the processes.
        copies: The folder of the copies.
        keep: The descriptor whose lock keeps other batches from removing that folder.
        out: The folder of the results, which no task may see.
    """

    options: tuple[str, ...]
    environ: Mapping[str, str]
    copies: str
    keep: int
    out: str


def words(task: Task, cwd: str, patch: Path, environment: BatchEnvironment) -> tuple[str, ...]:
    """Return the arguments for `agent`. The prompt is not one of them: other users can read the arguments of a
    process.
    """
    budget = task.budget
    said: tuple[tuple[str, object], ...] = (
        ("--model", task.model),
        ("--mode", task.mode),
        ("--max-turns", budget.turns),
        ("--max-tokens", budget.tokens),
        ("--max-cost", budget.cost),  # not rounded: a small amount would become 0, which is refused
        ("--timeout", f"{max(budget.seconds, 0.001):.3f}s" if budget.seconds is not None else None),
        ("--max-output", budget.output),
        ("--max-denials", budget.denials),
    )
    named = tuple(f"{name}={value}" for name, value in said if value is not None)
    return ("ci", "--json", "--review", f"--patch={patch}", f"--cwd={cwd}", *named, *environment.options)


async def attempt(
    task: Task, number: int, cwd: str, environment: BatchEnvironment, events: Path, patch: Path, hurry: asyncio.Event
) -> TaskResult:
    """Work on a task in a copy of the workspace around `cwd`, write `events` and `patch`, and return the result.

    `number` counts the attempts at the task from 1. If `hurry` is set, a cancelled process is killed at once. After a
    cancellation no process of the task is left running. Raise Stopped if the events cannot be written.
    """
    started = now()
    own = tempfile.mkdtemp(dir=environment.copies)  # removed with the attempt, even if the owner of the copy was killed
    try:
        gone = await run(
            words(task, cwd, patch, environment),
            prompt=task.prompt,
            events=events,
            environ={**environment.environ, "TMPDIR": own, BATCH: environment.out},
            keep=(environment.keep,),
            hurry=hurry,
        )
    finally:
        safe_rmtree.remove(own)
    return result_of(task, number, gone, started)


_GRACE = deadline(15.0)  # seconds for a process to close its sandbox and its audit log after SIGTERM
_REST = deadline(5.0)  # seconds to read the output that is still in the pipes
_LOOK = 0.05  # seconds between two checks of the exit status
_TAIL = 8192  # bytes of stderr that are kept
_LONGEST = 32 << 20  # bytes of an event that is parsed
_START = f"import sys; from {runner.__name__}.cli.batch_child import main; sys.exit(main())"


@dataclass(frozen=True, slots=True)
class Gone:
    """The end of a process: its status (negative for a signal), its last `result` event, and the end of its stderr."""

    status: int
    last: dict[str, object] | None
    stderr: str


async def run(
    words: Sequence[str],
    *,
    prompt: str,
    events: Path,
    environ: Mapping[str, str],
    keep: Sequence[int] = (),
    hurry: asyncio.Event,
) -> Gone:
    """Run `agent` with `words`, its prompt on stdin, and its events written to the file `events`.

    After cancellation, the process receives SIGTERM, and SIGKILL after `_GRACE` seconds, or at once if `hurry` is set.
    The process has ended when this function returns or raises. The process inherits the descriptors `keep`. Raise
    Stopped if the events cannot be written.
    """
    argv = (sys.executable, "-I", "-c", _START, str(os.getpid()), *words)
    try:
        handle = os.open(events, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as failed:
        raise _unwritten(failed) from None
    with open(handle, "wb", buffering=0) as file:  # noqa: ASYNC230  # a local file
        with starting_process():
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=dict(environ),
                pass_fds=tuple(keep),
                start_new_session=True,  # Ctrl-C reaches this process only, which decides when to end its children
            )
        assert process.stdin
        assert process.stdout
        assert process.stderr
        lines = _Lines(file)
        over: asyncio.Future[int] = asyncio.ensure_future(_ended(process))
        writing = _write(process.stdin, prompt.encode())
        streams = asyncio.gather(writing, lines.read(process.stdout), _tail(process.stderr))
        try:
            both: set[asyncio.Future[Any]] = {over, streams}
            # Do not wait for both: a process that the task left behind may hold the output open without limit.
            done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if streams in done:
                streams.result()  # raises if the events could not be written
            status = await asyncio.shield(over)
        finally:
            await _end(process, over, hurry)
            said = await _rest(streams)
            process._transport.close()  # type: ignore[attr-defined]  # the only way to close pipes that others hold
    if not streams.cancelled() and isinstance(error := streams.exception(), Stopped):
        raise error  # the last events could not be written
    return Gone(status, lines.last, said)


async def _ended(process: asyncio.subprocess.Process) -> int:
    """Return the exit status. Does not use `Process.wait`, which in some versions also waits for closed output."""
    while process.returncode is None:  # noqa: ASYNC110  # there is no public event for it
        await asyncio.sleep(_LOOK)
    return process.returncode


async def _end(process: asyncio.subprocess.Process, over: "asyncio.Future[int]", hurry: asyncio.Event) -> None:
    """Send SIGTERM to the process, wait, then kill its process group. Does nothing if the process has ended."""
    if over.done():
        return
    haste = asyncio.ensure_future(hurry.wait())
    either: set[asyncio.Future[Any]] = {over, haste}
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    await asyncio.wait(either, timeout=_GRACE, return_when=asyncio.FIRST_COMPLETED)
    haste.cancel()
    if not over.done():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    await over


async def _rest(streams: "asyncio.Future[tuple[None, None, str]]") -> str:
    """Return the end of stderr after reading what is left in the pipes.

    The wait is limited, because another process may hold the pipes open. After an error the text is empty.
    """
    await asyncio.wait({streams}, timeout=_REST)
    if not streams.done():
        streams.cancel()
        await asyncio.wait({streams})
    return "" if streams.cancelled() or streams.exception() else streams.result()[2]


async def _write(stdin: asyncio.StreamWriter, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the process ended before it read
        stdin.write(data)
        await stdin.drain()
        stdin.close()


async def _tail(stderr: asyncio.StreamReader) -> str:
    kept = b""
    while data := await stderr.read(1 << 16):
        kept = (kept + data)[-_TAIL:]
    return kept.decode("utf-8", "replace").strip()


def _unwritten(error: OSError) -> Stopped:
    what, fix = "the events of a task could not be written", "free some disk space, then try again"
    return Stopped(Problem(what, os_reason(error), fix), Exit.FAILED)


class _Lines:
    """A copier of event lines to a file that remembers the last `result` event, the summary of the run."""

    def __init__(self, file: RawIOBase) -> None:
        self._file = file
        self.last: dict[str, object] | None = None

    async def read(self, stdout: asyncio.StreamReader) -> None:
        rest = b""
        while data := await stdout.read(1 << 18):
            try:
                view = memoryview(data)
                while view:
                    view = view[self._file.write(view) or 0 :]
            except OSError as error:
                raise _unwritten(error) from None
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                self._look(line)
            if len(rest) > _LONGEST:
                rest = b""
        self._look(rest)

    def _look(self, line: bytes) -> None:
        if line.startswith(b'{"type":"result",'):  # an object, if it is JSON
            with contextlib.suppress(ValueError):
                self.last = json.loads(line)


def result_of(task: Task, attempt: int, gone: Gone, started: str) -> TaskResult:
    """Return the line of `results.jsonl` for an attempt that was not cancelled."""
    said = dict(gone.last or {})
    said.pop("type", None)
    code = gone.status
    status = STATUSES.get(code) if gone.last else None
    if gone.last is None or status is None:
        said.setdefault("reason", _reason(gone))
    if status is None or status is Status.FAILED:
        said["error"] = gone.stderr or None
    return {
        "type": "result",
        "id": task.id,
        "status": str(status or Status.FAILED),
        **said,
        "exit": code,
        "attempt": attempt,
        "started": started,
        "ended": now(),
        "metadata": task.metadata,
    }


def _reason(gone: Gone) -> str:
    if gone.status < 0:
        return f"its process was ended by signal {-gone.status}"
    if gone.status == Exit.INTERRUPTED:
        return "its process was stopped by another process"
    first = gone.stderr.splitlines()[0] if gone.stderr else ""
    return first.removeprefix("agent: ") or f"its process ended with {gone.status} and printed no error"
