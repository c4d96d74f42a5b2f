"""One command with the egress proxy: the connections of the command are returned with its result."""

from collections.abc import Awaitable
from typing import TypeVar

from sandbox.backend import Connection, InterruptedCommand, Violation
from sandbox.egress.proxy import Egress

T = TypeVar("T")


async def with_egress(egress: Egress, work: Awaitable[T]) -> tuple[T, tuple[Connection, ...], tuple[Violation, ...]]:
    """Await `work` and return its result, all connections of its command, and the violations among them.

    No connection of the command stays open afterwards. The cause of an exception of `work` has the connections
    (`interrupted_connections`).
    """
    egress.begin()
    try:
        done = await work
    except BaseException as end:
        connections, _ = await egress.end()
        raise end from InterruptedCommand(connections, end.__cause__)
    return done, *await egress.end()
