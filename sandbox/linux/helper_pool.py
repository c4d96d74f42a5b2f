"""The pool of a session's helpers or containers (its members), which are kept for some minutes for the next command.

Helpers whose Terms are equal but for limits, and that may write the workspace, share one network namespace, so that a
command reaches a server that an earlier command started. A helper that only reads never shares one (T131).
"""

import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from policy.model.frozen import dataclass
from policy.model.verdict import Rights, Terms
from sandbox.backend import FilesChanged, SandboxUnavailable
from sandbox.linux.plan_builder import helper_key, network_key

if TYPE_CHECKING:
    import asyncio

    from sandbox.linux.helper_handle import HelperHandle
    from sandbox.linux.shared_network import SharedNetwork

SLOTS = 8  # members for the same Terms at one time; a further command waits for one
IDLE = 4  # members kept for the next command; a helper needs about 10 MB
TRIES = 3  # starts of a member while other commands move files
REST = 300.0  # seconds after which an idle member is ended


class PoolMember(Protocol):
    """The members of a pool: helpers or containers."""

    @property
    def usable(self) -> bool:
        """Return True if the member lives and waits for a request."""
        ...

    def kill(self) -> None:
        """End the member and all its processes. Calling this again has no effect."""
        ...


S = TypeVar("S", bound=PoolMember)


@dataclass(slots=True)
class _Idle(Generic[S]):
    key: str
    member: S
    since: float


class HelperPool(Generic[S]):
    """A pool: `take` a member, then `give_back` or `discard` it. `all` are the living members, idle ones included.

    INVARIANT: one pool belongs to one session, and a member to one pool.
    """

    def __init__(
        self,
        launch: Callable[[Terms], S],
        prove: Callable[[S, Terms], Awaitable[None]],
        fits: Callable[[S, Terms], bool],
        covers: Callable[[S, Terms], bool],
        *,
        timed: bool = True,
    ) -> None:
        """Make an empty pool.

        Args:
            launch: Makes a member. Raises SandboxUnavailable.
            prove: Waits until the member has shown that its boundary holds. Raises SandboxUnavailable.
            fits: Returns True if the mounts of an idle member still cover all paths that must be protected.
            covers: Returns True if no other command has moved such a path while the mounts of a new member were made.
            timed: False for a program without an event loop, whose members are idle for a moment only.
        """
        self.all: set[S] = set()
        self._launch, self._prove, self._fits, self._covers, self._rest = launch, prove, fits, covers, REST
        self._timed = timed
        self._idle: list[_Idle[S]] = []  # least recently used first
        self._gates: dict[str, asyncio.Semaphore] = {}  # of the keys for which a task had to wait
        self._users: dict[str, int] = {}  # tasks that use a slot or wait for one
        self._timer: asyncio.TimerHandle | None = None

    async def take(self, terms: Terms, launch: Callable[[Terms], S] | None = None, mark: str = "") -> S:
        """Return a member for `terms` that no other task uses. Raises SandboxUnavailable if none can be started.

        Members with different marks are not exchanged. `launch` makes a member if there is none with this `mark`.
        """
        key = helper_key(terms) + mark
        await self._enter(key)
        try:
            return self._idle_one(key, terms) or await self._start(terms, launch)
        except BaseException:
            self._leave(key)
            raise

    async def keep(self, terms: Terms, launch: Callable[[Terms], S], mark: str) -> None:
        """Make a member for a later `take` with this `mark`, unless one is idle. Raises SandboxUnavailable."""
        key = helper_key(terms) + mark
        if not any(each.key == key for each in self._idle):
            self._rest_with(key, await self._start(terms, launch))

    async def take_apart(self, terms: Terms) -> S:
        """Return a member for a process that stays. It uses no slot, and only `end` gives it up.

        Raises SandboxUnavailable if none can be started.
        """
        return self._idle_one(helper_key(terms), terms) or await self._start(terms)

    def end(self, member: S) -> None:
        """End a member of `take_apart`."""
        self._end(member)

    def give_back(self, terms: Terms, member: S, mark: str = "") -> None:
        """Keep `member` for the next command, or end it if it is not usable any more."""
        if not member.usable:
            self.discard(terms, member, mark)
            return
        key = helper_key(terms) + mark
        self._rest_with(key, member)
        self._leave(key)

    def discard(self, terms: Terms, member: S, mark: str = "") -> None:
        """End `member`, for example because its state is uncertain."""
        self._end(member)
        self._leave(helper_key(terms) + mark)

    def _rest_with(self, key: str, member: S) -> None:
        """Keep an idle member, and end the one that was used first beyond `IDLE`."""
        self._idle.append(_Idle(key, member, time.monotonic()))
        if len(self._idle) > IDLE:
            self._end(self._idle.pop(0).member)
        self._wake()

    def close(self) -> None:
        """End all members, including those that run a command."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for member in list(self.all):
            self._end(member)
        self._idle.clear()

    async def _start(self, terms: Terms, launch: Callable[[Terms], S] | None = None) -> S:
        for count in range(1, TRIES + 1):
            try:
                member = await self._proven(terms, launch or self._launch)
            except FilesChanged:
                if count == TRIES or not self.all:
                    raise
                continue
            # THREAT T163: another command may have moved a file between the scan and the mounts. Idle members are
            # counted as well, because they may just have run one.
            if len(self.all) == 1 or self._covers(member, terms):
                return member
            self._end(member)
        raise SandboxUnavailable.of(
            "the sandbox cannot be built",
            "other commands of this session move secret or auto-run files all the time",
            "wait until they have ended, or end them; nothing was run",
        )

    async def _proven(self, terms: Terms, launch: Callable[[Terms], S]) -> S:
        """Return a new member that has shown that its boundary holds."""
        member = launch(terms)
        self.all.add(member)  # so that a `close` during the proof ends the member
        try:
            await self._prove(member, terms)
        except BaseException:
            self._end(member)
            raise
        return member

    def _idle_one(self, key: str, terms: Terms) -> S | None:
        """Return the idle member with this key that was used last, or None. End the members with this key that died, or
        whose mounts miss a new secret or auto-run file.
        """
        for index in range(len(self._idle) - 1, -1, -1):
            if self._idle[index].key != key:
                continue
            member = self._idle.pop(index).member
            if member.usable and self._fits(member, terms):
                return member
            self._end(member)
        return None

    async def _enter(self, key: str) -> None:
        """Take one of the slots of `key`. Wait until one is free."""
        users = self._users.get(key, 0)
        self._users[key] = users + 1
        gate = self._gates.get(key)
        if gate is None and users == SLOTS:  # the first task that waits: all others use a slot
            import asyncio

            gate = self._gates[key] = asyncio.Semaphore(0)
        if gate is None:
            return
        try:
            await gate.acquire()
        except BaseException:
            self._forget_user(key)
            raise

    def _leave(self, key: str) -> None:
        """Give up a slot of `key`."""
        if (gate := self._gates.get(key)) is not None:
            gate.release()
        self._forget_user(key)

    def _forget_user(self, key: str) -> None:
        self._users[key] -= 1
        if not self._users[key]:
            del self._users[key]
            self._gates.pop(key, None)

    def _end(self, member: S) -> None:
        self.all.discard(member)
        member.kill()

    def _wake(self) -> None:
        """Start the timer that ends members idle for too long, unless it runs already or no member is idle."""
        if self._timed and self._timer is None and self._idle:
            import asyncio

            due = self._idle[0].since + self._rest - time.monotonic()
            self._timer = asyncio.get_running_loop().call_later(max(due, 0.0), self._retire)

    def _retire(self) -> None:
        self._timer = None
        now = time.monotonic()
        while self._idle and (now - self._idle[0].since >= self._rest or not self._idle[0].member.usable):
            self._end(self._idle.pop(0).member)
        self._wake()


class NetworkPool(HelperPool["HelperHandle"]):
    """The pool of one session's helpers, which also knows the network namespaces that they share."""

    def __init__(
        self,
        launch: "Callable[[Terms], HelperHandle]",
        prove: "Callable[[HelperHandle, Terms], Awaitable[None]]",
        fits: "Callable[[HelperHandle, Terms], bool]",
        covers: "Callable[[HelperHandle, Terms], bool]",
        *,
        timed: bool = True,
    ) -> None:
        """Make an empty pool. The parameters are those of HelperPool."""
        super().__init__(launch, prove, fits, covers, timed=timed)
        self._makers: dict[str, HelperHandle] = {}  # the helpers that made a namespace for others to enter
        self._locks: dict[str, asyncio.Lock] = {}  # held while the first helper of a namespace starts

    def network(self, terms: Terms) -> "SharedNetwork | None":
        """Return the namespace that a new helper for `terms` has to enter, or None if it makes its own."""
        maker = self._makers.get(network_key(terms)) if _shares(terms) else None
        found = maker.network if maker is not None else None
        return found if found is not None and found.handles else None

    def note_network(self, helper: "HelperHandle", terms: Terms) -> None:
        """Let later helpers for `terms` enter the namespace that `helper` made and showed, if they may share it."""
        if helper.handed and _shares(terms):
            self._makers[network_key(terms)] = helper

    async def take(
        self, terms: Terms, launch: "Callable[[Terms], HelperHandle] | None" = None, mark: str = ""
    ) -> "HelperHandle":
        """Return a helper as HelperPool does. Of several helpers with equal rights that start at the same time, the
        others wait for the first, whose namespace they share.
        """
        async with self._turn(terms):
            return await super().take(terms, launch, mark)

    async def keep(self, terms: Terms, launch: "Callable[[Terms], HelperHandle]", mark: str) -> None:
        """Make a helper for a later `take`, in the shared namespace as `take` does."""
        async with self._turn(terms):
            await super().keep(terms, launch, mark)

    async def take_apart(self, terms: Terms) -> "HelperHandle":
        """Return a helper for a process that stays, in the shared namespace as `take` does."""
        async with self._turn(terms):
            return await super().take_apart(terms)

    def _turn(self, terms: Terms) -> AbstractAsyncContextManager[None]:
        """Return a lock that is held while the first helper of a namespace starts."""
        if not _shares(terms) or self._makers.get(network_key(terms)) in self.all:
            return nullcontext()
        import asyncio

        return self._locks.setdefault(network_key(terms), asyncio.Lock())

    async def _start(self, terms: Terms, launch: "Callable[[Terms], HelperHandle] | None" = None) -> "HelperHandle":
        if self.network(terms) is None:
            return await super()._start(terms, launch)
        try:
            return await super()._start(terms, launch)
        except SandboxUnavailable:
            # A command may have taken the port of the proxy: this helper gets a namespace of its own, as do later ones.
            del self._makers[network_key(terms)]
            return await super()._start(terms, launch)


def _shares(terms: Terms) -> bool:
    return terms.rights is Rights.WORKSPACE_WRITE
