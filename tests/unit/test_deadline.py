"""Tests of the deadlines: their factor, and that every short deadline of the program is one."""

import re
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from policy.model import deadline as stretched
from tests.support import forked_agent
from tests.support.agent_program import AGENT
from tests.support.long_deadlines import FACTOR
from tests.support.places import ROOT
from tests.support.sandbox_bench import DRIVER

LONG = 15.0  # seconds: longer times are not crossed on a busy machine


@pytest.fixture
def fresh() -> ModuleType:
    """Return the module as a new process has it: the tests have stretched the one that is imported."""
    spec = spec_from_file_location("fresh_deadline", stretched.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_deadline_is_what_the_program_says(fresh: ModuleType) -> None:
    assert fresh.deadline(2.5) == 2.5


def test_a_deadline_is_longer_after_a_stretch(fresh: ModuleType) -> None:
    fresh.stretch(10)
    assert fresh.deadline(2.5) == 25.0


def test_a_stretch_after_the_first_deadline_is_refused(fresh: ModuleType) -> None:
    fresh.deadline(2.5)
    with pytest.raises(RuntimeError, match="imported before"):
        fresh.stretch(10)
    assert fresh.deadline(2.5) == 2.5


def test_no_deadline_can_be_made_shorter(fresh: ModuleType) -> None:
    with pytest.raises(ValueError, match="never shorter"):
        fresh.stretch(0.5)


def test_all_processes_of_the_tests_have_the_same_longer_deadlines() -> None:
    assert stretched.deadline(1.0) == FACTOR > 1.0
    for program in (DRIVER.read_text(), Path(AGENT).read_text(), forked_agent.SERVER):
        assert f"stretch({FACTOR})" in program


# fmt: off
# The short times that are no deadlines, by file and name, with what each of them is.
OTHER_TIMES = {
    ("runner/audit/export/out.py", "_EVERY"): "interval",
    ("runner/audit/otlp_stream.py", "EVERY"): "interval",
    ("runner/audit/stores/sqlite_file.py", "_LOOK"): "interval",
    ("runner/audit/tail.py", "POLL"): "interval",
    ("runner/changes/transaction/place.py", "_TICK"): "interval",
    ("runner/changes/transaction/transaction.py", "_STEP"): "difference of two clocks",
    ("runner/cli/listen.py", "_LOOK"): "interval",
    ("runner/cli/main.py", "_TURN"): "turn of a thread",
    ("runner/config/live_profile.py", "_RACY"): "age of a file",
    ("runner/engine/process_actions.py", "_SETTLE"): "always waited for",
    ("runner/engine/signature_requests.py", "_TURN"): "interval",
    ("runner/engine/transaction_helper.py", "_AFTER"): "always waited for",
    ("runner/frontends/acp/updates.py", "_PAUSE"): "interval",
    ("runner/frontends/batch/attempt.py", "_LOOK"): "interval",
    ("runner/frontends/hosted/host.py", "_LOOK"): "interval",
    ("runner/frontends/hosted/host.py", "_SOON"): "always waited for",
    ("runner/frontends/hosted/host.py", "_WORKING"): "interval",
    ("runner/frontends/hosted/line.py", "_QUIET"): "guard against typing ahead",
    ("runner/frontends/hosted/line.py", "_SOON"): "always waited for",
    ("runner/frontends/hosted/start.py", "_STEP"): "interval",
    ("runner/frontends/jsonl/writer.py", "_LOOK"): "interval",
    ("runner/frontends/prompt_input.py", "_SILENCE"): "silence of a user",
    ("runner/frontends/remote/viewer.py", "_CHECK"): "interval",
    ("runner/frontends/remote/viewer.py", "_LOOK"): "interval",
    ("runner/frontends/resident/process.py", "_LATER"): "always waited for",
    ("runner/frontends/resident/process.py", "_LOOK"): "interval",
    ("runner/frontends/serve/calls.py", "_REPORTS"): "interval",
    ("runner/frontends/terminal/input.py", "_SETTLED"): "silence of a terminal",
    ("runner/frontends/terminal/input.py", "_SOON"): "silence of a terminal",
    ("runner/frontends/terminal/probe.py", "_FORGOTTEN"): "silence of a terminal",
    ("runner/frontends/terminal/probe.py", "_LAST"): "silence of a terminal",
    ("runner/frontends/tui/app.py", "FRAME"): "interval",
    ("runner/frontends/tui/app.py", "_BEAT"): "interval",
    ("runner/frontends/tui/controller.py", "_PORT_CHECK"): "interval",
    ("runner/frontends/tui/files.py", "_FRESH"): "age of a list",
    ("runner/frontends/tui/panel.py", "CAREFUL"): "guard against typing ahead",
    ("runner/frontends/tui/panel.py", "GUARD"): "guard against typing ahead",
    ("runner/gate/policy_tools/expectations.py", "_PATIENCE"): "until progress is shown at a terminal",
    ("runner/lsp/client.py", "_SETTLING"): "always waited for",
    ("runner/lsp/framing.py", "_WINDOW"): "window of a rate",
    ("runner/mcp/package_digest.py", "_SETTLED"): "age of a file",
    ("runner/mcp/servers.py", "_PAUSES"): "interval",
    ("runner/resident/client.py", "PATIENCE"): "a deadline that may import nothing of `policy`",
    ("runner/resident/control.py", "_LOOK"): "interval",
    ("runner/secrets/broker/injector.py", "AGAIN"): "interval",
    ("runner/secrets/keyring_store.py", "_PAUSES"): "interval",
    ("runner/state/json_file.py", "_RACY"): "age of a file",
    ("runner/jobs/store.py", "_LOOK"): "interval",
    ("sandbox/container/container.py", "EARLY"): "interval",
    ("sandbox/container/container.py", "LOOKS"): "interval",
    ("sandbox/container/processes.py", "PAUSE"): "interval",
    ("sandbox/egress/proxy.py", "_RETRY"): "interval",
    ("sandbox/inside/command_server.py", "AWAKE"): "time of polling",
    ("sandbox/inside/command_server.py", "TAKEN"): "length of a system call",
    ("sandbox/inside/dial.py", "PATIENCE"): "a deadline of a program of its own; the kernel answers for a port of the loopback",
    ("sandbox/inside/disk_space.py", "_CLOCK"): "difference of two clocks",
    ("sandbox/linux/helper_request.py", "_LOOK"): "interval",
    ("sandbox/linux/helper_request.py", "_TAKEN"): "length of a system call",
    ("sandbox/linux/launch.py", "_RECENT"): "age of a scan",
    ("sandbox/linux/process.py", "_AT_ONCE"): "time of polling",
    ("sandbox/linux/process_watch.py", "_TURN"): "turn of a task",
    ("sandbox/linux/supervised_process.py", "LOOK"): "interval",
    ("sandbox/macos/backend.py", "_TICK"): "interval",
    ("sandbox/workspace/autorun_watch.py", "_SETTLED"): "age of a file",
    ("sandbox/workspace/autorun_watch.py", "_TURN"): "turn of a task",
    ("sandbox/workspace/folder_cache.py", "MARGIN"): "age of a file",
    ("sandbox/workspace/folder_watch.py", "_FRESH"): "age of a file",
}
# fmt: on
# A constant of a module whose comment begins with a unit of time.
TIME = re.compile(r"^(\w+(?:, \w+)*) = ([^#\n]+?)  # (nano|micro|milli)?seconds\b", re.MULTILINE)
FACTORS = {"nano": 1e9, "micro": 1e6, "milli": 1e3, "": 1.0}


def short_times(text: str) -> Iterator[str]:
    """Yield the names of the constants of a module that are times below `LONG`, but no deadlines."""
    for names, value, unit in TIME.findall(text):
        if "deadline(" not in value:
            numbers = eval(value, {"__builtins__": {}})
            least = min(numbers) if isinstance(numbers, tuple) else numbers
            if least / FACTORS[unit] < LONG:
                yield from names.split(", ")


def test_every_short_time_is_a_deadline_or_is_listed_as_another_kind_of_time() -> None:
    paths = [path for part in ("runner", "sandbox", "tools") for path in (ROOT / part).rglob("*.py")]
    found = {(path.relative_to(ROOT).as_posix(), name) for path in paths for name in short_times(path.read_text())}
    assert not (new := found - OTHER_TIMES.keys()), f"{new}: write `deadline(SECONDS)`, or add the kind of time here"
    assert not (gone := OTHER_TIMES.keys() - found), gone


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("_WAIT = 2.0  # seconds for a server", ["_WAIT"]),
        ("_WAIT = deadline(2.0)  # seconds for a server", []),
        ("_WAIT = 20.0  # seconds for a server", []),
        ("_CONNECT, _WRITE = 10.0, 60.0  # seconds", ["_CONNECT", "_WRITE"]),
        ("_RACY = 20_000_000_000  # nanoseconds", []),
        ("_STEP = 100  # milliseconds between two looks", ["_STEP"]),
        ("_FRAME = 1 / 30  # seconds between two drawings", ["_FRAME"]),
        ("    wait = 2.0  # seconds of a local name", []),
    ],
)
def test_the_short_times_of_a_line(line: str, names: list[str]) -> None:
    assert list(short_times(line)) == names
