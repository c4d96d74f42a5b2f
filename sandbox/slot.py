"""The runner's hold on one confined helper: asking it for one thing at a time, and ending it."""

import asyncio
import contextlib
import os
import socket
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from policy.phrases import plain
from sandbox.backend import Enforcement, Level, Listener
from sandbox.cgroup import Group
from sandbox.exchange import Exchange
from sandbox.launch import Launch
from sandbox.scan import Scan
from sandbox.spawn import end

if TYPE_CHECKING:
    from sandbox.egress.broker import Broker
    from sandbox.egress.proxy import Egress
    from sandbox.egress.resolver import Resolve

HANDED = 4  # descriptors that may come with `ready`
READY = 10.0  # seconds until a helper that says nothing is given up
GRACE = 0.15  # seconds a helper has to end a command before it is killed itself: cancel stays under 200 ms


@dataclass(slots=True, eq=False)
class Slot:
    """One helper. `scan`: what its mounts know of the workspace.

    `handed`: descriptors that came with its `ready`; they are closed with it.
    """

    process: subprocess.Popen[bytes]
    control: socket.socket
    group: Group
    scan: Scan
    enforcement: Enforcement
    handed: tuple[int, ...] = ()
    egress: "Egress | None" = None  # the way out, where its terms name hosts

    @classmethod
    def of(cls, launched: Launch, tier: str) -> "Slot":
        return cls(launched.process, launched.control, launched.group, launched.scan, Enforcement(Level.NONE, tier))

    def open_egress(self, hosts: tuple[str, ...], resolver: "Resolve | None", broker: "Broker | None" = None) -> None:
        """Have the runner's proxy accept on the listener that came with `ready`. Its commands reach `hosts` alone."""
        from sandbox.egress.proxy import Egress  # only for the few commands that talk to somebody
        from sandbox.egress.resolver import resolve

        (handle,), self.handed = self.handed[:1], self.handed[1:]
        os.set_inheritable(handle, False)
        self.egress = Egress(socket.socket(fileno=handle), hosts, resolver or resolve, broker)

    async def ready(self) -> str:
        """Wait until it has locked itself in. Empty when it has, else what it said instead."""
        first = Exchange(self.control, 0, None, HANDED)
        try:
            await first.settle(READY)
        finally:
            self.handed = first.handed
        return "" if first.line == "ready" else first.line or "failed 110 start the helper"

    def complaint(self) -> str:
        """What the program that was to start the helper said when it could not; empty when it said nothing."""
        if self.process.stderr is None:
            return ""
        os.set_blocking(self.process.stderr.fileno(), False)
        said = self.process.stderr.read(500) or b""
        return plain(said.decode("utf-8", "replace").strip().replace("\n", "; "), 500)

    @property
    def usable(self) -> bool:
        """Whether it lives and waits for a request: an end of its socket, or a word unasked, and it is not."""
        if self.control.fileno() == -1 or self.process.poll() is not None:
            return False
        try:
            self.control.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    async def ask(
        self, request: dict[str, object], stdin: bytes | None, listen: Listener | None, wall: float, most: int
    ) -> tuple[Exchange, str | None]:
        """Send one request, enforce wall time and output, and return what came back with the limit that ended it.

        A helper that does not answer in time is killed, and what it ran with it. Raises OSError from the listener.
        """
        exchange = Exchange(self.control, most, listen)
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
        end(self.process, self.control, self.group)
        handed, self.handed = self.handed, ()
        for handle in handed:
            os.close(handle)
