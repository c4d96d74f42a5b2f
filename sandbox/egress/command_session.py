"""One command beside the proxy: what it did on the network comes back with it, however it ends."""

from collections.abc import Awaitable
from typing import TypeVar

from sandbox.backend import Connection, InterruptedCommand, Violation
from sandbox.egress.proxy import Egress

T = TypeVar("T")


async def with_egress(egress: Egress, work: Awaitable[T]) -> tuple[T, tuple[Connection, ...], tuple[Violation, ...]]:
    """What `work` gives, all that its command tried, and what of that was refused; nothing of it goes on afterwards.

    The cause of an exception of `work` has the connections (`interrupted_connections`).
    """
    egress.begin()
    try:
        done = await work
    except BaseException as end:
        connections, _ = await egress.end()
        raise end from InterruptedCommand(connections, end.__cause__)
    return done, *await egress.end()
