"""The worker on a machine of the cluster: an attempt on a workspace that was sent, with the key of that machine.

Ray imports this module on the worker by name, so the same version of ringfence must be installed there.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import runner
from policy.model.frozen import dataclass
from runner import VERSION
from runner.changes.review.workspace_copy import place
from runner.frontends.batch.archive import RemoteTask, TaskReply, packed, unpack
from runner.frontends.batch.attempt import BatchEnvironment, attempt
from runner.frontends.batch.scratch import CopiesFolder

_PROBE = 60.0  # seconds for the command of `probe`


@dataclass(frozen=True, slots=True)
class Machine:
    """The abilities of a machine. `why` is the reason why it cannot be used, or None."""

    name: str
    version: str
    why: str | None


def probe() -> Machine:
    """Check, by running one command, that a sandbox with full enforcement is available on this machine."""
    words = (sys.executable, "-I", "-c", f"import sys; from {runner.__name__}.cli.main import main; sys.exit(main())")
    said = ("exec", "--unattended", "--require", "full", "--", "true")
    try:
        with tempfile.TemporaryDirectory(dir=place()) as folder:
            done = subprocess.run(
                (*words, *said), cwd=folder, env=own_environment(), capture_output=True, text=True, timeout=_PROBE
            )
        why = None if done.returncode == 0 else done.stderr.strip().removeprefix("agent: ") or f"exit {done.returncode}"
    except (OSError, subprocess.TimeoutExpired) as error:
        why = str(error).lower()
    return Machine(socket.gethostname(), VERSION, why)


def perform(remote: RemoteTask, archive: bytes) -> TaskReply:
    """Work on a task on this machine and return its result. Nothing of the task is left when this function returns.

    Raise ValueError for another version or a changed archive, and KeyboardInterrupt after a cancellation.
    """
    if remote.version != VERSION:
        raise ValueError(f"ringfence {VERSION} is installed here, and {remote.version} is required")
    scratch = CopiesFolder(place())
    try:
        return asyncio.run(_work(remote, archive, scratch))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None  # the exception by which Ray recognizes a cancelled task
    finally:
        scratch.remove()


async def _work(remote: RemoteTask, archive: bytes, scratch: CopiesFolder) -> TaskReply:
    # THREAT: events and patch are written outside of the workspace, so that no command of the task can replace them.
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        # Ray cancels a task with SIGINT (`_thread.interrupt_main`) and ends a worker with SIGTERM.
        loop.add_signal_handler(number, _cancel, task)
    there = os.path.realpath(unpack(archive, remote.digest, scratch.path))
    back = Path(scratch.path, "back")
    back.mkdir(mode=0o700)
    events, patch = back / "events.jsonl", back / "work.patch"
    environment = BatchEnvironment(remote.options, own_environment(), scratch.path, scratch.handle, str(back))
    cwd = os.path.normpath(f"{there}/{remote.cwd}")
    result = await attempt(remote.task, remote.number, cwd, environment, events, patch, asyncio.Event())
    made = patch.read_bytes() if patch.exists() else None
    return TaskReply({**result, "node": socket.gethostname()}, packed(events.read_bytes()), made)


def _cancel(task: "asyncio.Task[TaskReply]") -> None:
    if not task.cancelling():  # a second cancel would interrupt the cleanup of the first one
        task.cancel()


def own_environment() -> dict[str, str]:
    """Return the environment of this process without Ray's variables, since its token gives access to the cluster."""
    return {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
