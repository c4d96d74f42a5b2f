"""The rule of this folder, enforced by an audit hook: a unit test starts no process and uses no network."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.loop_harness import stage

__all__ = ["stage"]  # fixtures

PROCESSES = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec"}
NETWORK = {"socket.bind", "socket.connect"}
seen: list[str] | None = None  # None while no unit test runs: the hook stays for the life of the process


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    if seen is None or event not in PROCESSES | NETWORK:
        return
    if event in PROCESSES or isinstance(arguments[1], tuple):  # a socket file has no host and port
        seen.append(f"{event} {arguments[:2]}")


sys.addaudithook(watch)


@pytest.fixture(autouse=True)
def nothing_but_this_process() -> Iterator[None]:
    """Fail a test that starts a process or opens a connection; such a test belongs into tests/process."""
    global seen
    seen = []
    yield
    found, seen = seen, None
    assert found == [], "a test that needs more than this process belongs into another folder"
