"""The engine that makes attempts on an existing Ray cluster, through Ray's own client: Ray queues, places and retries
them.

SOURCE: docs.ray.io, "Ray Client" and "Task fault tolerance": a task whose worker process or machine died is run again
up to `max_retries` times; a task that raised is not.
"""

import asyncio
import contextlib
import logging
import os
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from policy.model.verdict import Problem
from runner import VERSION
from runner.changes.review.session import reviewed
from runner.changes.review.workspace_copy import place
from runner.config import load
from runner.config.trust.session_check import now
from runner.frontends.batch import remote_worker
from runner.frontends.batch.archive import TaskReply, pack, remote_task, unpacked
from runner.frontends.batch.scratch import CopiesFolder
from runner.frontends.batch.store import BatchFolder, TaskResult
from runner.frontends.batch.task import Task, within
from runner.problems import Exit, Stopped, usage
from runner.state.paths import BATCH
from runner.state.workspace import workspace_at
from runner.text.gunzip import PackedError
from runner.text.phrases import os_reason

_RETRIES = 2  # how often Ray repeats a task whose machine died
# Seconds before another attempt to begin a session. The head starts a process for each client; a busy head loses some
# of these processes while they start. Beginning a session has no effect on the cluster, so an attempt can be repeated.
_PAUSES = (1.0, 3.0)
# SOURCE: `DataClient._check_shutdown` of ray 2.60: the head ended the stream of a session that had begun.
_SESSION_LOST = "Request can't be sent because the Ray client has already been disconnected"
_GRACE = 30.0  # seconds for a cancelled task to end


class OnRay:
    """The engine for the cluster at `address`: `ray://HOST:PORT`, or `ray` for the cluster of this machine."""

    def __init__(
        self,
        address: str,
        store: BatchFolder,
        tasks: Sequence[Task],
        environ: Mapping[str, str],
        options: tuple[str, ...],
    ) -> None:
        """Connect, check that every machine can run tasks, and send the workspaces. Raise Stopped if a step fails."""
        self._ray = _connected(address)
        try:
            _check(self._ray)
            self._store = store
            self._options = options
            self._perform = self._ray.remote(num_cpus=1, max_retries=_RETRIES)(remote_worker.perform)
            self._roots = {task.cwd: workspace_at(task.cwd, environ) for task in tasks}
            self._sent = {each: self._send(each, environ) for each in dict.fromkeys(self._roots.values())}
        except BaseException:
            self._ray.shutdown()
            raise

    def close(self) -> None:
        self._ray.shutdown()

    async def attempt(self, task: Task, number: int, left: float | None, hurry: asyncio.Event) -> TaskResult:
        task = within(task, left)
        top = self._roots[task.cwd]
        archive, digest = self._sent[top]
        sent = remote_task(task, number, VERSION, os.path.relpath(task.cwd, top), digest, self._options)
        reference = self._perform.remote(sent, archive)
        coming = asyncio.wrap_future(reference.future())
        try:
            answer = await asyncio.shield(coming)
        except asyncio.CancelledError:
            await self._cancel(reference, coming, hurry)
            raise
        except Exception as error:  # the seam to Ray: every error is a failure of this task only
            return _lost(task, number, error)
        try:
            return self._keep(task, answer)
        except PackedError as error:
            return _lost(task, number, ValueError(f"the reply of the worker {error}"))

    async def _cancel(self, reference: Any, coming: "asyncio.Future[TaskReply]", hurry: asyncio.Event) -> None:
        haste = asyncio.ensure_future(hurry.wait())
        with contextlib.suppress(Exception):  # it has ended already, or the cluster is gone
            self._ray.cancel(reference, force=hurry.is_set())
        either: set[asyncio.Future[Any]] = {coming, haste}
        await asyncio.wait(either, timeout=_GRACE, return_when=asyncio.FIRST_COMPLETED)
        haste.cancel()
        if not coming.done():
            with contextlib.suppress(Exception):  # as above
                self._ray.cancel(reference, force=True)
            await asyncio.wait({coming}, timeout=_GRACE)
        if coming.done() and not coming.cancelled():
            coming.exception()  # mark it as retrieved, so that asyncio does not print it

    def _keep(self, task: Task, answer: TaskReply) -> TaskResult:
        """Write events and patch of the reply to the results folder, and return the result with the task's metadata.

        Raise Stopped if a file cannot be written, and PackedError if the events cannot be decompressed.
        """
        try:
            _write(str(self._store.events(task)), unpacked(answer.events))
            if answer.patch is not None:
                _write(str(self._store.patch(task)), answer.patch)
        except OSError as error:
            why, fix = os_reason(error), "free some disk space, and run the command again"
            raise Stopped(Problem("the results of a task could not be written", why, fix), Exit.FAILED) from None
        return {**answer.result, "metadata": task.metadata}

    def _send(self, workspace: str, environ: Mapping[str, str]) -> tuple[Any, str]:
        """Send a copy of the workspace, without secret files and without the results, to the cluster's object store.

        Return the reference to the archive, and its digest.
        """
        environ = {**environ, BATCH: str(self._store.folder)}
        folder = Path(workspace)
        settings = load(folder, environ, unattended=True)
        scratch = CopiesFolder(place())
        try:
            with reviewed(folder, environ, settings, where=scratch.path) as review:
                data, digest = pack(review.workspace)
        finally:
            scratch.remove()
        return self._ray.put(data), digest


def _connected(address: str) -> Any:
    # SOURCE: gRPC's doc/fork_support.md: its threads are started again in a child that was forked, and crash there.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    try:
        import ray
    except ImportError:
        raise usage(
            f"`--engine {address}` needs Ray",
            "it is not installed here",
            "install ringfence with its extra: pip install 'ringfence[ray]'",
        ) from None
    said = ""
    for pause in (*_PAUSES, None):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a failed connection is raised as well
                ray.init(address if address != "ray" else "auto", log_to_driver=False, logging_level=logging.ERROR)
            return ray
        except Exception as error:  # the seam to Ray, which documents no exceptions
            said = _cause_of(error)
            ray.shutdown()
            if isinstance(error, ConnectionError) and not _session_lost(error):
                break  # no head answered for half a minute
        if pause is not None:
            time.sleep(pause)
    fix = "check the address; a cluster with tokens needs RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH"
    raise Stopped(Problem(f"no Ray cluster answers at `{address}`", said, fix), Exit.FAILED)


def _session_lost(error: ConnectionError) -> bool:
    """Return True if a head answered but its session for this client was lost while it started.

    Ray raises ConnectionAbortedError if the process of the session could not be started, and ConnectionError, as for a
    head that does not answer, if that process ended before its first answer.
    """
    return isinstance(error, ConnectionAbortedError) or str(error).startswith(_SESSION_LOST)


def _check(ray: Any) -> None:
    """Raise Stopped, with the names of the machines, unless every machine of the cluster can run tasks.

    A machine can run tasks if it has this version of ringfence and a sandbox with full enforcement.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    probe = ray.remote(num_cpus=0, max_retries=_RETRIES)(remote_worker.probe)
    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    asked = [  # a list, since two machines may have the same name
        (
            node["NodeManagerHostname"],
            probe.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote(),
        )
        for node in nodes
    ]
    bad: list[str] = []
    for name, reference in asked:
        try:
            found = ray.get(reference, timeout=120)
            why = found.why if found.version == VERSION else f"ringfence {found.version}, not {VERSION}"
        except Exception as error:  # the seam to Ray: most often, ringfence is not installed there
            why = _cause_of(error)
        if why:
            bad.append(f"{name}: {why}")
    if bad or not nodes:
        fix = "install the same ringfence there and see `agent doctor` on it, or take the machine out of the cluster"
        what = "a machine of the cluster cannot run tasks" if bad else "the cluster has no machine that can run tasks"
        raise Stopped(Problem(what, "\n".join(bad) or "no machine has a CPU", fix), Exit.SANDBOX)


def _lost(task: Task, number: int, error: Exception) -> TaskResult:
    return {
        "type": "result",
        "id": task.id,
        "status": "failed",
        "exit": int(Exit.FAILED),
        "reason": f"the cluster lost the task: {_cause_of(error)}",
        "attempt": number,
        "ended": now(),
        "metadata": task.metadata,
    }


def _cause_of(error: Exception) -> str:
    """Return the line of a message of Ray that names the cause: the details of a gRPC error, otherwise the last line.

    The text may contain control characters.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    details = [line for line in lines if line.startswith("details = ")]
    return (details or lines or [type(error).__name__.lower()])[-1][:500]


def _write(path: str, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
