"""Fixtures that more than one file needs. No autouse magic."""

import contextlib
import functools
import os
import signal
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support.container_bench import Dock, dock
from tests.support.sandbox_bench import USERS, Bench, make

# A job runner may start us with Ctrl-C ignored, and what we start would inherit that: the product respects it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A law says what holds, and not how soon: on a busy machine any example takes as long as it likes.
# The same examples each time, so that a failure is of the change that it comes with; LAW_EXAMPLES=1000 tries others.
settings.register_profile(
    "busy",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="LAW_EXAMPLES" not in os.environ,
    database=None,
)
settings.load_profile("busy")


@pytest.fixture(scope="session")
def docked() -> Iterator[Dock]:
    """A container daemon with an image that was built here."""
    with dock() as found:
        yield found


@pytest.fixture(scope="session")
def benches() -> Iterator[Callable[[str], Bench]]:
    """Return a bench by its name, such as `root-T1`. Each is made once, in whatever order the tests ask for them."""
    with contextlib.ExitStack() as made:
        yield functools.cache(lambda name: made.enter_context(_bench(*name.split("-"))))


@contextlib.contextmanager
def _bench(user: str, tier: str) -> Iterator[Bench]:
    yield from make(user, tier=tier)


@pytest.fixture(scope="session", params=[f"{user}-{tier}" for user in USERS for tier in ("T1", "T2")])
def bench(request: pytest.FixtureRequest, benches: Callable[[str], Bench]) -> Bench:
    """A workspace with decoys around it, and a driver under each user that this machine lets us be.

    In each sandbox that has a private root: what holds in the one has to hold in the other.
    """
    return benches(request.param)
