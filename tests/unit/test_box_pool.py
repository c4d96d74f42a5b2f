"""Tests of the choice of the container whose network a new container joins, without a daemon."""

import asyncio
from dataclasses import replace
from typing import Any

from policy.model.verdict import Limits, Rights, Terms
from sandbox.backend import Enforcement, Level, SandboxUnavailable
from sandbox.container.box_pool import BoxPool

TERMS = Terms(Rights.WORKSPACE_WRITE, "/w", "/nonexistent")


class OpenedBox:
    """A container that is never created. `proofs` are the results of its proofs: False if it cannot join a network."""

    def __init__(self, name: str, terms: Terms) -> None:
        self.name, self.terms, self.network, self.usable = name, terms, "", True
        self.enforcement = Enforcement(Level.NONE, "container")

    def kill(self) -> None:
        self.usable = False


class Pooled:
    """A pool of such containers. `joinable` is False if no container can join the network of another one."""

    def __init__(self) -> None:
        self.joinable, self._count = True, 0
        self.pool = BoxPool(self._launch, self._prove, lambda box, _: self.pool.is_current(box), lambda *_: True)

    def _launch(self, terms: Terms) -> Any:
        self._count += 1
        return OpenedBox(f"box-{self._count}", terms)

    async def _prove(self, box: Any, terms: Terms) -> None:
        neighbour = self.pool.neighbour(terms)
        await asyncio.sleep(0)
        if neighbour is not None and not self.joinable:
            raise SandboxUnavailable.of("the container cannot be created", "the network is gone", "try again")
        box.network = neighbour.network if neighbour is not None else box.name
        box.enforcement = Enforcement(Level.FULL, "container")

    async def networks(self, *terms: Terms) -> list[str]:
        return [box.network for box in await asyncio.gather(*map(self.pool.take_apart, terms))]


def test_equal_rights_share_a_network_and_nothing_else_does() -> None:
    more = replace(TERMS, limits=Limits(pids=7))
    reads = replace(TERMS, rights=Rights.READ_ONLY)
    host = replace(TERMS, hosts=("example.org:443",))
    others = [replace(TERMS, env=(("A", "1"),)), reads, reads, host, host]

    async def scene() -> list[str]:
        return await Pooled().networks(TERMS, more, TERMS, *others)

    first, second, third, *apart = asyncio.run(scene())
    assert first == second == third, "also if they start at the same time"
    assert len({first, *apart}) == 1 + len(others)


def test_a_container_that_cannot_join_starts_the_network_of_later_ones() -> None:
    async def scene() -> None:
        pooled = Pooled()
        pool = pooled.pool
        idle = await pool.take(TERMS)
        pool.give_back(TERMS, idle)
        pooled.joinable = False
        alone = await pool.take_apart(replace(TERMS, limits=Limits(pids=7)))
        pooled.joinable = True
        assert alone.network == alone.name != idle.network
        later = await pool.take(TERMS)
        assert (later.network, later is idle, idle.usable) == (alone.network, False, False)
        for box in (alone, later):
            pool.end(box)
        assert (await pool.take_apart(TERMS)).network not in (alone.network, idle.network), "nothing of it is left"

    asyncio.run(scene())
