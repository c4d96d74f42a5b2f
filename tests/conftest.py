"""Fixtures that more than one folder needs, the marks of the folders, and the selection of `--smoke`."""

import contextlib
import functools
import gc
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator

import pytest
from hypothesis import HealthCheck, settings

import tests.support.long_deadlines  # noqa: F401  # before all modules of the program
from runner.config.load import keep_packaged
from runner.secrets import secret
from tests.support import own_environment
from tests.support.container_bench import Dock, dock
from tests.support.durations import Durations, ItemMeter, Recorder, longest_first, pieces
from tests.support.places import TESTS
from tests.support.rotation import rotate
from tests.support.sandbox_bench import USERS, Bench, make

# A collection makes millions of objects that stay, and each look for garbage among them would go through all of them: with
# the collector, the whole tree takes almost three times as long. `pytest_collection_finish` switches it on again.
gc.disable()
# Where the environment forbids bytecode, as in many containers, each worker would compile all test files anew.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Files whose tests run one after the other in one worker. All other files are distributed over the workers one by one.
GROUPS = {
    # These use one container daemon, whose containers they count.
    "test_container": "containers",
    "test_container_egress": "containers",
    "test_container_processes": "containers",
    "test_everyday_container": "containers",
}
# Files with a costly fixture for several rows each: the rows with the same text before the colon in their id share a worker.
SHARED_ROWS = {"test_attacks"}

# Before the files are imported, because some read the environment then. Each worker has a home of its own.
HOME = own_environment.isolate()

# A job runner, nohup(1) or a shell (for a job in the background) may start pytest with ignored signals. Commands that
# tests start would inherit that, and `agent` leaves an ignored signal ignored.
for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:  # Python itself ignores these two
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
# Files that the tests create have the usual modes, for every umask of the user who starts the tests.
os.umask(0o022)

# Laws have no deadline: on a busy machine an example may take any time. Each run tries the same examples, so that a
# failure is caused by the change that is tested; LAW_EXAMPLES=1000 tries others.
settings.register_profile(
    "busy",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="LAW_EXAMPLES" not in os.environ,
    database=None,
)
settings.register_profile("many", parent=settings.get_profile("busy"), max_examples=400)
settings.register_profile("few", parent=settings.get_profile("busy"), max_examples=10)  # see tests/support/law.py


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--smoke",
        action="store_true",
        help="outside tests/unit only the first row of each test (one backend, one user), ten examples of each law, and no"
        " test that is marked as `thorough`",
    )
    parser.addoption(
        "--matrix",
        action="store_true",
        help="each row as each user on each backend, not only in one variant that changes from row to row, and many examples"
        " of each law",
    )
    parser.addoption(
        "--record-durations",
        action="store_true",
        help="write the processor seconds of each file into tests/durations.json, and name the tests that take long without"
        " `@pytest.mark.slow`",
    )


def pytest_unconfigure() -> None:
    """Remove the home of the tests."""
    shutil.rmtree(HOME, ignore_errors=True)


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Choose the number of examples before a file is imported, because a law reads it then.

    The laws of tests/unit try all their examples, with `--smoke` as well: it includes `make check`.
    """
    few = collector.config.getoption("--smoke") and not collector.path.is_relative_to(TESTS / "unit")
    settings.load_profile("few" if few else "many" if collector.config.getoption("--matrix") else "busy")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--record-durations"):
        if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
            config.pluginmanager.register(ItemMeter())
        if not hasattr(config, "workerinput"):
            config.pluginmanager.register(Recorder())


def scope(id: str) -> str:
    """Return the scope of a test that is not distributed by its file alone, and nothing for the others."""
    file, _, test = id.partition("::")
    name = file.rpartition("/")[2].removesuffix(".py")
    return test.partition(":")[0] if name in SHARED_ROWS else GROUPS.get(name, "")


def scopes(ids: Iterable[str]) -> dict[str, str]:
    """Return the scopes of the tests that are not distributed by their file alone."""
    return {id: named for id in ids if (named := scope(id))}


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Return a scheduler for pytest-xdist that gives each piece of work (`pieces`) to one worker, in order."""
    from xdist.scheduler import LoadScopeScheduling  # only with -n

    class PieceScheduling(LoadScopeScheduling):
        @functools.cached_property
        def _pieces(self) -> dict[str, str]:
            return pieces(self.collection, scopes(self.collection), Durations.recorded())

        def _split_scope(self, nodeid: str) -> str:
            return self._pieces[nodeid]

    config.option.loadscopereorder = False  # `pytest_collection_modifyitems` has put the longest pieces first
    return PieceScheduling(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test with the name of its folder, select those that run, and put the longest files first."""
    folders = {item: item.path.relative_to(TESTS).parts[0] for item in items}
    for item, folder in folders.items():
        item.add_marker(folder)
    kept = items[:]
    if config.getoption("--smoke"):
        functions: set[str] = set()
        kept = []
        for item in items:
            function = item.nodeid.partition("[")[0]
            chosen = function not in functions and item.get_closest_marker("thorough") is None
            if folders[item] == "unit" or chosen:
                kept.append(item)
            functions.add(function)
    elif not config.getoption("--matrix"):
        kept = rotate(items, folders, SHARED_ROWS)
    config.hook.pytest_deselected(items=list(set(items).difference(kept)))
    ids = [item.nodeid for item in kept]
    order = longest_first(ids, scopes(ids), Durations.recorded())
    items[:] = sorted(kept, key=lambda item: order[item.nodeid])


def pytest_collection_finish() -> None:
    """Look for garbage again, but not among the tests and their modules, which stay."""
    gc.freeze()
    gc.enable()


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


@pytest.fixture(autouse=True)
def _own_secrets() -> Iterator[None]:
    """Forget the secrets that a test registered, which would be masked or held back in the output of later tests."""
    before = len(secret._registered)
    yield
    del secret._registered[before:]


@pytest.fixture(autouse=True, scope="session")
def _packaged_settings() -> None:
    """Read the packaged settings once for all tests of this process, as a resident process does."""
    keep_packaged()


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
