"""Processor seconds of each test file: `make durations` records them, and they decide which files run first.

`tests/durations.json` has the figures of one whole run. They are only about the order: a file that is missing there is
taken for an average one.
"""

import atexit
import contextlib
import json
import os
import resource
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path

import pytest

from tests.support import forked_agent
from tests.support.places import TESTS

FILE = TESTS / "durations.json"
LONGEST = 60.0  # processor seconds of one worker's piece of work; a file of more is split
SLOW = 5.0  # processor seconds from which on a test carries its reason (`@pytest.mark.slow`)
_GROUPS = Path("/sys/fs/cgroup/cpuacct")  # cgroups(7), version 1


class Durations:
    """The recorded processor seconds of the test files."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds = seconds
        self._usual = sum(seconds.values()) / len(seconds) if seconds else 1.0

    @classmethod
    def recorded(cls) -> "Durations":
        return cls(json.loads(FILE.read_text()) if FILE.exists() else {})

    def of(self, file: str) -> float:
        """Return the processor seconds of a file, named as in the ID of a test."""
        return self._seconds.get(file, self._usual)

    def parts(self, file: str) -> int:
        """Return the number of parts in which a file is distributed over the workers."""
        return 1 + int(self.of(file) // LONGEST)


def pieces(ids: Iterable[str], scopes: dict[str, str], durations: Durations) -> dict[str, str]:
    """Return the piece of work that each test belongs to. All tests of a piece run in one worker, in order.

    Args:
        ids: the tests in their order.
        scopes: the scope of each test that is not distributed by its file: it is never split.
    """
    files = {id: id.partition("::")[0] for id in ids}
    sizes = Counter(files.values())
    before: Counter[str] = Counter()
    made = {}
    for id, file in files.items():
        made[id] = scopes.get(id) or f"{file} {before[file] * durations.parts(file) // sizes[file]}"
        before[file] += 1
    return made


def longest_first(ids: Sequence[str], scopes: dict[str, str], durations: Durations) -> dict[str, float]:
    """Return the place of each test in the order of the run: pieces with many processor seconds first."""
    piece = pieces(ids, scopes, durations)
    sizes = Counter(id.partition("::")[0] for id in ids)
    weights: defaultdict[str, float] = defaultdict(float)
    for id in ids:
        file = id.partition("::")[0]
        weights[piece[id]] += durations.of(file) / sizes[file]
    return {id: -round(weights[piece[id]], 3) for id in ids}


class Meter:
    """The processor seconds of this process and of all that it started.

    A group of the controller `cpuacct` counts processes that have left their parent as well, such as those of a sandbox,
    and those that the server of all workers forks.
    Where no such group can be made, only children that were waited for are counted.
    """

    def __init__(self) -> None:
        self._usage: Path | None = None
        group = _GROUPS / f"tests-{os.getpid()}"
        try:
            group.mkdir()
            (group / "cgroup.procs").write_text(str(os.getpid()))
            self._usage = group / "cpuacct.usage"
            forked_agent.COUNTED = str(group / "cgroup.procs")
            atexit.register(self._leave, group)
        except OSError:
            pass

    @staticmethod
    def _leave(group: Path) -> None:
        with contextlib.suppress(OSError):  # what the tests started may still be there
            (group.parent / "cgroup.procs").write_text(str(os.getpid()))
            group.rmdir()

    def read(self) -> float:
        if self._usage is not None:
            return int(self._usage.read_text()) / 1e9
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(each.ru_utime + each.ru_stime for each in used)


class ItemMeter:
    """A plug-in in each process that runs tests: it adds the processor seconds to the reports."""

    def __init__(self) -> None:
        self._meter = Meter()
        self._began = 0.0

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, None, None]:
        self._began = self._meter.read()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.when == "teardown":
            seconds = self._meter.read() - self._began
            report.user_properties.append(("processor seconds", seconds))
            report.user_properties.append(("slow", item.get_closest_marker("slow") is not None))
        return report


class Recorder:
    """A plug-in in the process that prints the results: it writes the file."""

    def __init__(self) -> None:
        self._files: defaultdict[str, float] = defaultdict(float)
        self._slow: list[tuple[float, str]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        measured = dict(report.user_properties)
        if report.when == "teardown" and "processor seconds" in measured:
            seconds = float(str(measured["processor seconds"]))
            self._files[report.nodeid.partition("::")[0]] += seconds
            if seconds > SLOW and not measured["slow"]:
                self._slow.append((seconds, report.nodeid))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the file, and name the tests that take long without a reason."""
        rounded = {file: round(seconds, 1) for file, seconds in sorted(self._files.items())}
        FILE.write_text(json.dumps(rounded, indent=0) + "\n")
        terminalreporter.section(f"{sum(rounded.values()):.0f} processor seconds, by file in {FILE.name}")
        for seconds, id in sorted(self._slow, reverse=True):
            terminalreporter.line(f"{seconds:6.1f} s without `@pytest.mark.slow`: {id}")
