"""The hook program `agent guard hook AGENT`: one call of a guarded agent in, the answer of its gate out.

THREAT T193: an agent runs the original command if its hook breaks. Every failure is therefore a denial in the form
that the agent understands: an exception, an input that cannot be read, and a verdict that takes too long. The judgement
runs in a process of its own, so that nothing that it waits for can delay the answer.
"""

import os
import sys

from policy.model.deadline import deadline
from runner.frontends.guard.answering import UNREADABLE, Rendered, answer_bytes, words_of

TYPE_CHECKING = False  # the name that type checkers know, without the import of `typing`
if TYPE_CHECKING:
    from collections.abc import Callable


DEADLINE = deadline(20.0)  # seconds until the answer; `--install` sets the time limit of the agent to `TIME_LIMIT`
TIME_LIMIT = 60  # seconds
_LONGEST_INPUT = 16 << 20  # bytes; not from `call`, whose import takes as long as an answer
_PATIENCE = deadline(12.0)  # seconds until a worker must have answered; the hook judges by itself then
_INPUT_TIME = deadline(5.0)  # seconds until the input must be complete


def run_hook(words: list[str], *, worker: bool = False) -> int:
    """Read the call from standard input, print the answer, and return the exit code.

    `worker` is True in a worker of the resident process, whose client waits a limited time.
    """
    # Seam of the hook: whatever happens, the agent gets a denial. An exit code of 2 denies in every agent.
    try:
        agent, options = _options(words)
        data = _standard_input()
        if worker:
            out, error, code = answer_bytes(agent, options, data)
        else:
            warm = _warm(words, data) if "--warm" in options else None
            out, error, code = warm or _within_deadline(lambda: answer_bytes(agent, options, data))
            if "--warm" in options and warm is None:
                _start_resident()
    except Exception as failure:
        out, error, code = "", f"{UNREADABLE}: {words_of(failure)}", 2
    sys.stdout.write(out)
    sys.stderr.write(f"{error}\n" if error else "")
    sys.stdout.flush()
    return code


def _warm(words: list[str], data: bytes) -> "Rendered | None":
    """Return the answer of a worker of the resident process; None if there is none, or if it does not answer in time.

    The worker reads and writes files in memory, so that an answer is complete or none.
    """
    from runner.resident.client import ask_worker

    files = [os.memfd_create(name) for name in ("call", "answer", "error")]
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(files[0], left) :]
        os.lseek(files[0], 0, os.SEEK_SET)
        argv = [sys.argv[0], "guard", "hook", *words]
        code = ask_worker(argv, (files[0], files[1], files[2]), _PATIENCE)
        if code is None:
            return None
        out, error = (os.pread(each, os.fstat(each).st_size, 0).decode() for each in files[1:])
        return out, error.removesuffix("\n"), code
    except OSError:
        return None
    finally:
        for each in files:
            os.close(each)


def _start_resident() -> None:
    """Start the resident process apart from this process. It ends at once if there is one already."""
    from runner.resident.control import start_detached

    try:
        start_detached(os.environ, waits=False)
    except OSError:
        return  # the next hook tries again; without it a hook only takes longer


def _options(words: list[str]) -> tuple[str, dict[str, str]]:
    """Return the name of the agent and its options. Raise ValueError for other words."""
    agent, *rest = words or [""]
    switches = ("--redirect", "--warm", "--replaced")
    rest = [word for name in rest for word in ((name, "yes") if name in switches else (name,))]
    if len(rest) % 2 or any(name not in ("--mode", "--config", *switches) for name in rest[::2]):
        raise ValueError(
            "the hook takes an agent, and `--mode MODE`, `--config FILE`, `--redirect`, `--warm` or `--replaced`"
        )
    return agent, dict(zip(rest[::2], rest[1::2], strict=True))


def _standard_input() -> bytes:
    """Return standard input up to its end. Raise ValueError if it is too long or does not end in time."""
    import select
    import time

    until, parts, size = time.monotonic() + _INPUT_TIME, list[bytes](), 0
    while True:
        left = until - time.monotonic()
        if left <= 0 or not select.select([0], [], [], left)[0]:
            raise ValueError("the input of the hook does not end")
        chunk = os.read(0, 1 << 20)
        if not chunk:
            return b"".join(parts)
        parts.append(chunk)
        size += len(chunk)
        if size > _LONGEST_INPUT:
            raise ValueError(f"the input of the hook is longer than {_LONGEST_INPUT >> 20} MiB")


def _within_deadline(judge: "Callable[[], Rendered]") -> Rendered:
    """Return the result of `judge`, which runs in a child process. Raise ValueError if it takes too long or dies."""
    import select
    import signal
    import time
    from json import dumps, loads

    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reader)
            data = dumps(judge()).encode()
            while data:
                data = data[os.write(writer, data) :]
            code = 0
        finally:
            os._exit(code)  # the parent prints; nothing of the parent's cleanup may run twice
    os.close(writer)
    until, parts = time.monotonic() + DEADLINE, list[bytes]()
    try:
        while True:
            left = until - time.monotonic()
            if left <= 0 or not select.select([reader], [], [], left)[0]:
                raise ValueError(f"the judgement takes longer than {DEADLINE:g} s")
            chunk = os.read(reader, 1 << 16)
            if not chunk:
                break
            parts.append(chunk)
    finally:
        os.close(reader)
        if time.monotonic() >= until:
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    if status:
        raise ValueError("the judgement ended without an answer")
    out, error, code = loads(b"".join(parts))
    return str(out), str(error), int(code)
