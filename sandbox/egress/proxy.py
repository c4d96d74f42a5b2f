"""The proxy: accepts the connections of one helper's commands, and answers each with a connection or a reason.

One port serves HTTP CONNECT, plain HTTP and SOCKS5; the first byte of a connection selects the protocol.
"""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING

from policy.model.frozen import replace
from sandbox.backend import DIRECT, Connection, InterruptedCommand, NetworkOptions, Outcome, Violation
from sandbox.egress.connection import ProxyConnection
from sandbox.egress.dialer import Dialer, Resolve, resolve
from sandbox.egress.ledger import Attempt, Ledger
from sandbox.egress.stream import Stream

if TYPE_CHECKING:
    from sandbox.egress.credential_injection import Broker

OPEN = 48  # connections at one time; further ones wait to be accepted. Each needs two descriptors of the runner
_RETRY = 0.05  # seconds until accepting is tried again when this process has no descriptor left


class Egress:
    """The network access of one helper: call `begin` and `end` around each command, and `close` with the helper.

    `close` closes the listener, whose address is in the sandbox. Connections made while no command runs are not served.
    """

    def __init__(
        self,
        listener: socket.socket,
        hosts: Iterable[str],
        resolver: Resolve = resolve,
        broker: "Broker | None" = None,
        network: NetworkOptions = DIRECT,
    ) -> None:
        """Listen for commands. `broker` injects credentials, if there are any."""
        self._broker = broker
        listener.setblocking(False)
        self._listener = listener
        self._dialer = Dialer(hosts, resolver, network)
        self._ledger = Ledger()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening = self._busy = False

    async def around(self, work: Awaitable[Outcome]) -> Outcome:
        """Await `work` and return its outcome with all connections of its command, and the violations among them.

        No connection of the command stays open afterwards. The cause of an exception of `work` has the connections
        (`interrupted_connections`).
        """
        self.begin()
        try:
            outcome = await work
        except BaseException as end:
            connections, _ = await self.end()
            raise end from InterruptedCommand(connections, end.__cause__)
        connections, violations = await self.end()
        return replace(outcome, connections=connections, violations=violations)

    def begin(self) -> None:
        """Assign all following connections to a new command."""
        self._ledger = Ledger()
        with contextlib.suppress(OSError):
            while True:  # close the queued connections of an earlier command, which has ended
                self._listener.accept()[0].close()
        self._busy = True
        self._listen(True)

    async def end(self) -> tuple[tuple[Connection, ...], tuple[Violation, ...]]:
        """End the connections of the command, and return its connections and the violations among them."""
        self._stop()
        if self._tasks:
            await asyncio.wait(self._tasks)
        return self._ledger.connections(), self._ledger.violations()

    def so_far(self) -> tuple[tuple[Connection, ...], tuple[Violation, ...]]:
        """Return the ended connections of the command that runs, and the violations among them."""
        return self._ledger.connections(so_far=True), self._ledger.violations()

    def close(self) -> None:
        """Stop listening. Calling this again has no effect."""
        self._stop()
        self._listener.close()

    def _stop(self) -> None:
        self._busy = False
        self._listen(False)
        for task in self._tasks:
            task.cancel()

    def _listen(self, on: bool) -> None:
        if on != self._listening:
            self._listening = on
            loop = asyncio.get_running_loop()
            if on:
                loop.add_reader(self._listener, self._accept)
            else:
                loop.remove_reader(self._listener)

    def _accept(self) -> None:
        while len(self._tasks) < OPEN:
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:  # no descriptor left (EMFILE): retry later, because the event loop would spin here
                self._listen(False)
                asyncio.get_running_loop().call_later(_RETRY, self._again)
                return
            attempt = self._ledger.attempt()
            if attempt is None:
                sock.close()
                continue
            sock.setblocking(False)
            task = asyncio.create_task(self._serve(sock, attempt))
            self._tasks.add(task)
            task.add_done_callback(self._served)
        self._listen(False)

    def _again(self) -> None:
        if self._busy:
            self._listen(True)

    def _served(self, task: asyncio.Task[None]) -> None:
        full = len(self._tasks) >= OPEN
        self._tasks.discard(task)
        if full:
            self._again()

    async def _serve(self, sock: socket.socket, attempt: Attempt) -> None:
        with sock:
            served = ProxyConnection(Stream(sock), attempt, self._dialer, self._broker)
            try:
                await served.run()
            finally:
                served.close()
