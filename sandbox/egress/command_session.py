"""One command beside the proxy: what it did on the network comes back with it, however it ends."""

from collections.abc import Awaitable
from typing import TypeVar

from sandbox.backend import Connection, Violation, note_connections
from sandbox.egress.proxy import Egress

T = TypeVar("T")


async def talking(egress: Egress, work: Awaitable[T]) -> tuple[T, tuple[Connection, ...], tuple[Violation, ...]]:
    """What `work` gives, all that its command tried, and what of that was refused; nothing of it goes on afterwards.

    An exception of `work` carries the connections (`noted_connections`).
    """
    egress.begin()
    try:
        done = await work
    except BaseException as end:
        note_connections(end, (await egress.end())[0])
        raise
    return done, *await egress.end()
