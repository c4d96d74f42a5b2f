"""Fixtures that more than one folder needs, the marks of the folders, and the selection of `--smoke`."""

import contextlib
import functools
import os
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support.container_bench import Dock, dock
from tests.support.places import TESTS
from tests.support.sandbox_bench import USERS, Bench, make

FOLDERS = ("sandbox", "services", "terminal", "process", "laws", "unit")  # in the order in which they run
# Groups of tests, for runs with `--dist loadgroup`; `make test` gives each file to one worker. `sandbox` is the group of the tests that share a bench, count
# processes and descriptors of a user, or look at files that sandboxes of other tests have in /var/tmp.
SHARED = {"docked": "docker", "benches": "sandbox"}  # by fixture
ALONE = {
    "test_limits": "sandbox",
    "test_cgroup": "sandbox",
    "test_sandbox_many": "sandbox",
    "test_broker_exec": "sandbox",
    # These look for a key in every process of the machine, and have processes that hold one.
    "test_credentials": "keys",
    "test_canary": "keys",
    "test_keyring": "keys",
}

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
settings.register_profile("few", parent=settings.get_profile("busy"), max_examples=10)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--smoke",
        action="store_true",
        help="outside tests/unit only the first row of each test (one backend, one user), and ten examples of each law",
    )


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("few" if config.getoption("--smoke") else "busy")


@pytest.hookimpl(tryfirst=True)  # before xdist, which reads the groups from the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test with the name of its folder and its group, put the longest folders first, and select for `--smoke`."""
    folders: dict[pytest.Item, str] = {}
    for item in items:
        folders[item] = item.path.relative_to(TESTS).parts[0]
        item.add_marker(folders[item])
        names = getattr(item, "fixturenames", ())
        shared = [group for name, group in SHARED.items() if name in names]
        item.add_marker(pytest.mark.xdist_group((shared or [ALONE.get(item.path.stem, item.path.stem)])[0]))
    items.sort(key=lambda item: FOLDERS.index(folders[item]))
    if config.getoption("--smoke"):
        functions: set[str] = set()
        kept, left_out = [], []
        for item in items:
            function = item.nodeid.partition("[")[0]
            (kept if folders[item] == "unit" or function not in functions else left_out).append(item)
            functions.add(function)
        items[:] = kept
        config.hook.pytest_deselected(items=left_out)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many tests were skipped for each reason."""
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", ())
        if isinstance(report.longrepr, tuple)
    )
    if reasons:
        terminalreporter.section("skipped tests by reason")
        for reason, number in reasons.most_common():
            terminalreporter.line(f"{number:6} {reason}")


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop() -> Generator[None, object, object]:
    """Run the tests in an empty folder: a sandbox that is tried out looks through the current one, and ours is large."""
    with tempfile.TemporaryDirectory(prefix="ringfence-tests-") as folder, contextlib.chdir(folder):
        os.chmod(folder, 0o755)  # other users look into it as well
        return (yield)


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
