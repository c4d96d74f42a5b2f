"""The pool of a session's containers, in which containers with equal rights share a network.

Containers whose Terms are equal but for limits, and that may write the workspace, share the network of the first one,
so that a command reaches a server that an earlier command started. A container that only reads never shares one, and
neither does one whose commands may reach a host, because the runner's proxy belongs to one container.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext

from policy.model.verdict import Rights, Terms
from sandbox.backend import Level, SandboxUnavailable
from sandbox.container.container import Box
from sandbox.linux.helper_pool import HelperPool
from sandbox.linux.plan_builder import network_key


class BoxPool(HelperPool[Box]):
    """The pool of one session, which also knows the network that new containers have to join."""

    def __init__(
        self,
        launch: Callable[[Terms], Box],
        prove: Callable[[Box, Terms], Awaitable[None]],
        fits: Callable[[Box, Terms], bool],
        covers: Callable[[Box, Terms], bool],
    ) -> None:
        """Make an empty pool. The parameters are those of HelperPool."""
        super().__init__(launch, prove, fits, covers)
        self._networks: dict[str, str] = {}  # for equal rights: the network that new containers join (`Box.network`)
        self._first: dict[str, asyncio.Lock] = {}  # held while the first container of a network starts

    def neighbour(self, terms: Terms) -> Box | None:
        """Return a container whose network a new container for `terms` has to join, or None."""
        network = self._networks.get(network_key(terms)) if _shares(terms) else None
        ready = (box for box in self.all if box.network == network and box.enforcement.level is not Level.NONE)
        return next((box for box in ready if box.usable), None) if network is not None else None

    def is_current(self, box: Box) -> bool:
        """Return True if `box` is in the network that new containers with its rights join, or shares none."""
        return not _shares(box.terms) or self._networks.get(network_key(box.terms)) == box.network

    async def _start(self, terms: Terms, launch: Callable[[Terms], Box] | None = None) -> Box:
        if not _shares(terms):
            return await super()._start(terms, launch)
        key = network_key(terms)
        first = self.neighbour(terms) is None
        async with self._first.setdefault(key, asyncio.Lock()) if first else nullcontext():
            joins = self.neighbour(terms) is not None
            try:
                box = await super()._start(terms, launch)
            except SandboxUnavailable:
                if not joins:
                    raise
                # The other container has just ended, or its commands disturb the proof: this one starts a network.
                self._networks.pop(key, None)
                box = await super()._start(terms, launch)
            self._networks[key] = box.network
            return box


def _shares(terms: Terms) -> bool:
    return terms.rights is Rights.WORKSPACE_WRITE and not terms.hosts
