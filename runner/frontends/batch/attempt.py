"""One attempt at one task on this machine, in a process of its own and on a copy of the workspace."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from io import RawIOBase
from pathlib import Path
from typing import Any

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from runner.frontends.batch.store import STATUSES, Result, Status
from runner.frontends.batch.task import Task
from runner.problems import Exit, Stopped
from runner.state.paths import BATCH
from sandbox.inside import safe_rmtree
from sandbox.linux.helper_process import starting_process


@dataclass(frozen=True, slots=True)
class Way:
    """The values that are the same for every task of a batch.

    They are options of `agent` as typed, the environment of the processes, the folder of the copies with a descriptor
    that holds it, and the folder of the results, which no task may see.
    """

    options: tuple[str, ...]
    environ: Mapping[str, str]
    copies: str
    keep: int
    out: str


def words(task: Task, cwd: str, patch: Path, way: Way) -> tuple[str, ...]:
    """Return the arguments for `agent`. The prompt is not one of them: other users can read the arguments of a
    process.
    """
    budget = task.budget
    said: tuple[tuple[str, object], ...] = (
        ("--model", task.model),
        ("--mode", task.mode),
        ("--max-turns", budget.turns),
        ("--max-tokens", budget.tokens),
        ("--max-cost", budget.cost),  # as it is: rounded, a little would be nothing, which is no amount
        ("--timeout", f"{max(budget.seconds, 0.001):.3f}s" if budget.seconds is not None else None),
        ("--max-output", budget.output),
        ("--max-denials", budget.denials),
    )
    named = tuple(f"{name}={value}" for name, value in said if value is not None)
    return ("ci", "--json", "--review", f"--patch={patch}", f"--cwd={cwd}", *named, *way.options)


async def attempt(
    task: Task, number: int, cwd: str, way: Way, events: Path, patch: Path, hurry: asyncio.Event
) -> Result:
    """Work on a task in a copy of the workspace around `cwd`, write `events` and `patch`, and return the result.

    After a cancellation nothing of the task is left running.
    """
    started = now()
    own = tempfile.mkdtemp(dir=way.copies)  # so that a copy whose owner was killed goes when the attempt is over
    try:
        gone = await run(
            words(task, cwd, patch, way),
            prompt=task.prompt,
            events=events,
            environ={**way.environ, "TMPDIR": own, BATCH: way.out},
            keep=(way.keep,),
            hurry=hurry,
        )
    finally:
        safe_rmtree.remove(own)
    return result_of(task, number, gone, started)


def now() -> str:
    """Return the current time in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


_GRACE = 15.0  # seconds to end well, which closes the sandbox and the record
_REST = 5.0  # seconds for what it had said already
_LOOK = 0.05  # seconds between two looks whether it is over
_TAIL = 8192  # characters of what it said on stderr
_LONGEST = 32 << 20  # bytes of one event that is looked at
_START = "import sys; from runner.cli.batch_child import main; sys.exit(main())"


@dataclass(frozen=True, slots=True)
class Gone:
    """The end of a process. `status` is negative for a signal; `last` is the last line that summarizes a run."""

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

    After cancellation, the process is asked to end, and killed after a while, or at once if `hurry` is set. The process
    has ended when this function returns or raises. It inherits the descriptors `keep`.
    """
    argv = (sys.executable, "-I", "-c", _START, str(os.getpid()), *words)
    handle = os.open(events, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(handle, "wb", buffering=0) as file:  # noqa: ASYNC230  # a local file
        with starting_process():
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=dict(environ),
                pass_fds=tuple(keep),
                start_new_session=True,  # a Ctrl-C at our terminal is for us; we pass it on as we see fit
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
            # Whichever is first: what it left behind may hold its output open for as long as it likes.
            done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if streams in done:
                streams.result()  # raises when its events could not be written
            status = await asyncio.shield(over)
        finally:
            await _end(process, over, hurry)
            said = await _rest(streams)
            process._transport.close()  # type: ignore[attr-defined]  # nothing else lets go of pipes that others hold
    if not streams.cancelled() and isinstance(error := streams.exception(), Stopped):
        raise error  # the last events could not be written
    return Gone(status, lines.last, said)


async def _ended(process: asyncio.subprocess.Process) -> int:
    """Return the exit status. Some versions of `Process.wait` also wait until the output is closed, which may be
    later.
    """
    while process.returncode is None:  # noqa: ASYNC110  # nothing public tells it by an event
        await asyncio.sleep(_LOOK)
    return process.returncode


async def _end(process: asyncio.subprocess.Process, over: "asyncio.Future[int]", hurry: asyncio.Event) -> None:
    """Ask it to end, wait, kill it. At once when it is over."""
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
    """Return the rest of the output in the pipes. The wait is limited, because another process may hold them open."""
    await asyncio.wait({streams}, timeout=_REST)
    if not streams.done():
        streams.cancel()
        await asyncio.wait({streams})
    return "" if streams.cancelled() or streams.exception() else streams.result()[2]


async def _write(stdin: asyncio.StreamWriter, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it ended without reading; its status says why
        stdin.write(data)
        await stdin.drain()
        stdin.close()


async def _tail(stderr: asyncio.StreamReader) -> str:
    kept = b""
    while data := await stderr.read(1 << 16):
        kept = (kept + data)[-_TAIL:]
    return kept.decode("utf-8", "replace").strip()


class _Lines:
    """Copies lines to a file and remembers the one that sums the run up."""

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
                why, fix = (error.strerror or "the system refused it").lower(), "free some disk space, and run it again"
                raise Stopped(Problem("the events of a task could not be written", why, fix), Exit.FAILED) from None
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


def result_of(task: Task, attempt: int, gone: Gone, started: str) -> Result:
    """Return the line of `results.jsonl` for an attempt that came to an end by itself."""
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
    return first.removeprefix("agent: ") or f"its process ended with {gone.status} and said nothing"
