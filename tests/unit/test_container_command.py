"""Tests of the streams of one command in a container, without a daemon."""

import asyncio
import socket

import pytest

from sandbox.container.exec_stream import Running, Wire
from tests.support.loop_harness import let_others_go_on


@pytest.mark.threat("T14")
def test_a_cancellation_that_comes_with_the_end_is_not_dropped() -> None:
    """`asyncio.wait_for` of Python 3.11 returns the result instead, and what waits then goes on to its time limit."""

    async def scene(end: socket.socket) -> bool:
        reader = asyncio.StreamReader()
        _, writer = await asyncio.open_connection(sock=end)
        running = Running(1 << 10, None)
        running.follow(Wire(reader, writer))
        waiting = asyncio.create_task(running.wait(60))
        await let_others_go_on()
        assert [running.done, waiting.done()] == [False, False]
        reader.feed_eof()
        while not running.done:
            await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.wait({waiting})
        running.close()
        return waiting.cancelled()

    ours, theirs = socket.socketpair()
    with ours:
        assert asyncio.run(scene(theirs))
