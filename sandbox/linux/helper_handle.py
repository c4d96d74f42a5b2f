"""The runner's handle of one confined helper, which sends one request at a time and ends the helper."""

import contextlib
import os
import select
import socket
import subprocess
from functools import lru_cache
from typing import TYPE_CHECKING

from policy.describe.phrases import plain
from policy.model.deadline import deadline
from policy.model.frozen import dataclass, field
from sandbox.backend import DIRECT, Enforcement, Listener, NetworkOptions
from sandbox.linux.cgroup import ControlGroup
from sandbox.linux.helper_process import WAKE, end
from sandbox.linux.helper_request import HelperRequest, PollWait
from sandbox.workspace.protected_paths import Scan

if TYPE_CHECKING:
    from sandbox.egress.credential_injection import Broker
    from sandbox.egress.dialer import Resolve
    from sandbox.egress.proxy import Egress
    from sandbox.linux.canary_probe import Decoys
    from sandbox.linux.helper_layers import HelperLayers
    from sandbox.linux.shared_network import SharedNetwork
    from sandbox.workspace.autorun_watch import Live

HANDED = 6  # descriptors that may come with `ready`
READY = 30.0  # seconds until a helper that does not answer counts as failed
_PROCESSORS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
GRACE = deadline(0.15)  # seconds a helper has to end a command before it is killed itself: cancel stays under 200 ms
PARTING = deadline(0.04)  # seconds between SIGTERM and SIGKILL; GRACE is more than three times as long


@dataclass(slots=True, eq=False)
class HelperHandle:
    """One helper. `scan`: the scan of the workspace from which its mounts were made.

    `handed`: descriptors that came with its `ready`; `kill` closes them.
    """

    process: subprocess.Popen[bytes]
    control: socket.socket
    group: ControlGroup
    scan: Scan
    enforcement: Enforcement
    handed: tuple[int, ...] = ()
    entered: "SharedNetwork | None" = None  # the network of an earlier helper, or its own once that is used
    decoys: "Decoys | None" = None  # what its canary attacks, until the canary was judged
    egress: "Egress | None" = None  # the proxy, if the terms name hosts
    grace: float = 0.0  # seconds for the helper to end its command before the helper is killed
    layers: "HelperLayers | None" = None  # its commands change these instead of the workspace
    waits: PollWait | None = None  # those of a program without an event loop
    eager: bool = False  # set by `wake` for the next command: wait for the answer without sleeping
    _said: select.poll = field(default_factory=select.poll)

    def __post_init__(self) -> None:
        self._said.register(self.control.fileno(), select.POLLIN)

    @property
    def network(self) -> "SharedNetwork | None":
        """Return the network namespace of the helper; None if the runner cannot see it."""
        if self.entered is None and self.handed:
            from sandbox.linux.shared_network import SharedNetwork  # most sessions have one helper with a network

            shown, self.handed = self.handed, ()
            self.entered = SharedNetwork(shown)
            self.entered.enter(self)
        return self.entered

    def open_egress(
        self,
        hosts: tuple[str, ...],
        resolver: "Resolve | None",
        broker: "Broker | None" = None,
        network: NetworkOptions = DIRECT,
    ) -> None:
        """Start the runner's proxy on the listener that came with `ready`. The helper's commands reach only `hosts`."""
        from sandbox.egress.dialer import resolve
        from sandbox.egress.proxy import Egress  # only for the few commands that reach a host

        (handle,), self.handed = self.handed[:1], self.handed[1:]
        os.set_inheritable(handle, False)
        self.egress = Egress(socket.socket(fileno=handle), hosts, resolver or resolve, broker, network)

    async def ready(self) -> str:
        """Wait until the helper has confined itself and its canary has ended. Return the answer of the helper: `ready`
        and the results of the canary, or `failed ERRNO STEP`.
        """
        first = HelperRequest(self.control, 0, None, handed=HANDED, waits=self.waits)
        try:
            await first.settle(READY)
        finally:
            self.handed = first.handed
        if self.layers is not None:
            self.handed = tuple(self.layers.receive([*self.handed]))
        return first.line or "failed 110 start the helper"

    def drop_decoys(self) -> None:
        """Remove the decoys of the canary. Calling this again has no effect."""
        if self.decoys is not None:
            self.decoys.remove()
            self.decoys = None

    def complaint(self) -> str:
        """Return the error text of the program that failed to start the helper; empty if there is none."""
        if self.process.stderr is None:
            return ""
        os.set_blocking(self.process.stderr.fileno(), False)
        output = self.process.stderr.read(500) or b""
        return plain(output.decode("utf-8", "replace").strip().replace("\n", "; "), 500)

    @property
    def usable(self) -> bool:
        """Return True if the helper lives and waits for a request. A closed socket or unrequested data means False."""
        if self.control.fileno() == -1 or self.process.returncode is not None:
            return False
        try:
            # Called twice per command: `Popen.poll` and an exception of `recv` would take five times as long.
            ended = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return ended is None and not self._said.poll(0)

    def wake(self) -> None:
        """Wake the helper up before its next request, and make `ask` wait for the answer without sleeping.

        This is done only if there are idle processors for both processes. A request does not require a wake.
        """
        self.eager = idle_processors() > 0
        if self.eager:
            with contextlib.suppress(OSError):  # the helper is gone: the request will fail
                self.control.send(WAKE)

    async def ask(
        self,
        request: dict[str, object],
        stdin: bytes | int | None,
        listen: Listener | None,
        wall: float,
        most: int,
        alarm: "Live | None" = None,
    ) -> tuple[HelperRequest, str | None]:
        """Send one request, enforce the limits, and return the exchange with the limit that ended it, or None.

        `wall` is in seconds, `most` in bytes of output. A helper that does not answer in time is killed with its
        command. Raises OSError from the listener, or if the control group was removed.
        """
        exchange = HelperRequest(self.control, most, listen, eager=self.eager, alarm=alarm, waits=self.waits)
        self.eager = False
        try:
            self.group.begin()
            ended = await exchange.run(request, stdin, wall, self.group.excess)
            if ended is not None:
                # The helper ends its command. If it does not answer in time, the helper itself is killed.
                with contextlib.suppress(OSError):
                    exchange.send({"op": "stop", "why": ended, "parting": PARTING}, [])
                await exchange.settle(GRACE)
                if exchange.line is None:
                    self.kill()
            return exchange, ended
        except OSError:
            if self.process.poll() is None:  # the helper lives, so the error is for the caller
                self.kill()
                raise
            return exchange, None  # the helper is gone: `exchange.line` is empty
        except BaseException:
            # SAFETY: a cancelled command must not outlive the cancel: one signal ends the helper and the command.
            self.kill()
            raise
        finally:
            exchange.close()

    def kill(self) -> None:
        """End the helper and all processes in its namespaces. Calling this again has no effect."""
        if self.egress is not None:
            self.egress.close()
        if self.layers is not None:
            self.layers.end()
        end(self.process, self.control, self.group, self.grace)
        if self.layers is not None:
            self.layers.close()
        self.drop_decoys()
        handed, self.handed = self.handed, ()
        for handle in handed:
            os.close(handle)
        if self.entered is not None:
            self.entered.leave(self)


def idle_processors() -> int:
    """Return the number of available processors that are idle at this moment; 0 if the number is unknown."""
    if _PROCESSORS < 2:
        return 0
    try:
        running = int(os.pread(_loadavg(), 100, 0).split()[3].partition(b"/")[0])  # with this process, proc_loadavg(5)
    except (OSError, ValueError, IndexError):
        return 0
    return max(_PROCESSORS - running, 0)


@lru_cache(maxsize=1)
def _loadavg() -> int:
    return os.open("/proc/loadavg", os.O_RDONLY | os.O_CLOEXEC)
