"""Name resolution in the runner, because no command inside a sandbox can reach a name server."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable

Resolve = Callable[[str, int], Awaitable[tuple[str, ...]]]

LONGEST = 10.0  # seconds


async def resolve(host: str, port: int) -> tuple[str, ...]:
    """Return the addresses of `host` from this machine's resolver, best first; empty if there are none. Raises
    TimeoutError.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[str, ...]] = loop.create_future()

    def tell(found: tuple[str, ...]) -> None:
        if not done.done():
            done.set_result(found)

    def look() -> None:
        try:
            answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
            found = tuple(dict.fromkeys(str(answer[4][0]) for answer in answers))
        except (OSError, UnicodeError):
            found = ()
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody asks any more
            loop.call_soon_threadsafe(tell, found)

    # A thread that nobody waits for: a name server that is silent must not hold up the end of the program.
    threading.Thread(target=look, daemon=True).start()
    async with asyncio.timeout(LONGEST):
        return await done
