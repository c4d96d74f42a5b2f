"""The runner's hold on one confined helper: asking it for one thing at a time, and ending it."""

import asyncio
import contextlib
import os
import select
import socket
import subprocess
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from policy.describe.phrases import plain
from sandbox.backend import Enforcement, Listener
from sandbox.linux.cgroup import ControlGroup
from sandbox.linux.helper_process import WAKE, end
from sandbox.linux.helper_request import HelperRequest
from sandbox.workspace.protected_paths import Scan

if TYPE_CHECKING:
    from sandbox.egress.credential_injection import Broker
    from sandbox.egress.dialer import Resolve
    from sandbox.egress.proxy import Egress
    from sandbox.workspace.autorun_watch import Live

HANDED = 4  # descriptors that may come with `ready`
READY = 10.0  # seconds until a helper that says nothing is given up
_PROCESSORS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
GRACE = 0.15  # seconds a helper has to end a command before it is killed itself: cancel stays under 200 ms


@dataclass(slots=True, eq=False)
class HelperHandle:
    """One helper. `scan`: what its mounts know of the workspace.

    `handed`: descriptors that came with its `ready`; they are closed with it.
    """

    process: subprocess.Popen[bytes]
    control: socket.socket
    group: ControlGroup
    scan: Scan
    enforcement: Enforcement
    handed: tuple[int, ...] = ()
    egress: "Egress | None" = None  # the way out, where its terms name hosts
    grace: float = 0.0  # seconds that it has to end what its command started, when it is ended
    eager: bool = False  # for its next command; `wake` tells
    _said: select.poll = field(default_factory=select.poll)

    def __post_init__(self) -> None:
        self._said.register(self.control.fileno(), select.POLLIN)

    def open_egress(self, hosts: tuple[str, ...], resolver: "Resolve | None", broker: "Broker | None" = None) -> None:
        """Have the runner's proxy accept on the listener that came with `ready`. Its commands reach `hosts` alone."""
        from sandbox.egress.dialer import resolve
        from sandbox.egress.proxy import Egress  # only for the few commands that reach a host

        (handle,), self.handed = self.handed[:1], self.handed[1:]
        os.set_inheritable(handle, False)
        self.egress = Egress(socket.socket(fileno=handle), hosts, resolver or resolve, broker)

    async def ready(self) -> str:
        """Wait until it has locked itself in. Empty when it has, else what it said instead."""
        first = HelperRequest(self.control, 0, None, handed=HANDED)
        try:
            await first.settle(READY)
        finally:
            self.handed = first.handed
        return "" if first.line == "ready" else first.line or "failed 110 start the helper"

    def complaint(self) -> str:
        """Return the error text of the program that failed to start the helper; empty if there is none."""
        if self.process.stderr is None:
            return ""
        os.set_blocking(self.process.stderr.fileno(), False)
        output = self.process.stderr.read(500) or b""
        return plain(output.decode("utf-8", "replace").strip().replace("\n", "; "), 500)

    @property
    def usable(self) -> bool:
        """Return True if the helper lives and waits for a request. A closed socket or unrequested data means that it
        does not.
        """
        if self.control.fileno() == -1 or self.process.returncode is not None:
            return False
        try:
            # Every command asks this twice: `Popen.poll` and an exception of `recv` would be five times as much.
            ended = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return ended is None and not self._said.poll(0)

    def wake(self) -> None:
        """Tell the helper that a request, or its end, comes at once, and wait for the answer without sleeping.

        This is done only if there are idle processors for both processes. A request does not require a wake.
        """
        self.eager = idle_processors() > 0
        if self.eager:
            with contextlib.suppress(OSError):  # it is gone: the request will tell
                self.control.send(WAKE)

    async def ask(
        self,
        request: dict[str, object],
        stdin: bytes | None,
        listen: Listener | None,
        wall: float,
        most: int,
        alarm: "Live | None" = None,
    ) -> tuple[HelperRequest, str | None]:
        """Send one request, enforce wall time and output, and return what came back with the limit that ended it.

        A helper that does not answer in time is killed, and what it ran with it. Raises OSError from the listener.
        """
        exchange = HelperRequest(self.control, most, listen, eager=self.eager, alarm=alarm)
        self.eager = False
        try:
            self.group.begin()
            ended = await exchange.run(request, stdin, wall, self.group.excess)
            if ended is not None:
                # The helper ends everything; when it does not answer in time, the helper itself is ended.
                with contextlib.suppress(OSError):
                    exchange.send({"op": "stop", "why": ended}, [])
                await exchange.settle(GRACE)
                if exchange.line is None:
                    self.kill()
            return exchange, ended
        except OSError:
            if self.process.poll() is None:  # not the helper's end but the listener's: the caller's own to explain
                self.kill()
                raise
            return exchange, None  # the helper is gone: no line, and the caller says so
        except asyncio.CancelledError:
            # SAFETY: a cancelled command must not outlive the cancel; the helper goes with it, in one signal.
            self.kill()
            raise
        finally:
            exchange.close()

    def kill(self) -> None:
        """End it and everything in its namespaces. Again is harmless."""
        if self.egress is not None:
            self.egress.close()
        end(self.process, self.control, self.group, self.grace)
        handed, self.handed = self.handed, ()
        for handle in handed:
            os.close(handle)


def idle_processors() -> int:
    """Return how many of the available processors are idle at this moment; 0 if that cannot be determined."""
    if _PROCESSORS < 2:
        return 0
    try:
        running = int(os.pread(_loadavg(), 100, 0).split()[3].partition(b"/")[0])  # us as well, proc_loadavg(5)
    except (OSError, ValueError, IndexError):
        return 0
    return max(_PROCESSORS - running, 0)


@lru_cache(maxsize=1)
def _loadavg() -> int:
    return os.open("/proc/loadavg", os.O_RDONLY | os.O_CLOEXEC)
