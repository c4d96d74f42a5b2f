"""Tests of commands that run without an event loop: the results are those of a run in one, and every interrupt ends the
command. With real helpers.
"""

import asyncio
import contextlib
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from policy.model.action import RunScript
from policy.model.frozen import replace
from policy.model.verdict import _MINT, Limits, Permit, Rights, Terms
from runner.frontends.exec.confined import run_without_loop
from sandbox.backend import Listener, Outcome, SandboxUnavailable
from sandbox.linux.backend import Linux
from sandbox.linux.helper_request import Interrupted, PollWait

SYSTEM = ("/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache")


@pytest.fixture
def terms(tmp_path: Path) -> Terms:
    (tmp_path / "w").mkdir()
    return Terms(Rights.READ_ONLY, str(tmp_path / "w"), "/nonexistent", system=SYSTEM, env=(("PATH", "/usr/bin:/bin"),))


def permit(terms: Terms, script: str) -> Permit:
    return Permit(RunScript(script, terms.workspace), terms, _MINT)


async def _run(
    backend: Linux, wanted: Permit, stdin: int | None, listen: Listener | None, times: int = 1
) -> list[Outcome]:
    try:
        await backend.probe(wanted.terms)
        return [await backend.run(wanted, stdin=stdin, listen=listen) for _ in range(times)]
    finally:
        await backend.close()


def run(wanted: Permit, cache: Path, stdin: int | None = None, listen: Listener | None = None) -> Outcome:
    with PollWait() as waits:
        backend = Linux("T1", cache=cache, files=False, waits=waits)
        (outcome,) = run_without_loop(waits, _run(backend, wanted, stdin, listen))
    assert not backend.pool.all
    return outcome


def told(outcome: Outcome) -> tuple[object, ...]:
    violations = tuple(each.what for each in outcome.violations)
    return outcome.status, outcome.stdout, outcome.stderr, outcome.ended_by, outcome.truncated, violations


# script, limits, standard input, what is tested
ROWS = [
    ("true", {}, None, "nothing"),
    ("exit 3", {}, None, "a status"),
    ("echo out; echo err >&2", {}, None, "both streams"),
    ("exec >&-; echo rest >&2; exit 3", {}, None, "one stream ends before the other"),
    ("exec >&- 2>&-; sleep 0.01; exit 4", {}, None, "both end before the command"),
    ("exec >&- 2>&-; exit 5", {}, None, "both end, and the command at once"),
    ("(sleep 60; echo late) & echo now", {}, None, "a child holds both open: it is ended"),
    ("(trap '' TERM HUP INT; setsid sleep 60) & disown; echo now", {}, None, "so is one that hides"),
    ("kill -9 $$", {}, None, "it ends itself"),
    ("printf 'a%.0s' $(seq 70000)", {}, None, "more than a pipe holds"),
    ("sleep 0.3; echo late", {}, None, "longer than the first wait"),
    ("echo first; sleep 60", {"wall": 3.0}, None, "the wall time"),
    ("sleep 60", {"wall": 0.001}, None, "a wall time below that of the first wait"),
    ("while :; do echo 0123456789; done", {"output": 5000}, None, "the output limit"),
    ("yes | head -c 300000", {"output": 300000}, None, "exactly the output limit"),
    ("cat", {}, b"given", "an input"),
    ("wc -c", {}, b"x" * 300_000, "an input larger than a pipe"),
    ("exit 7", {}, b"x" * 300_000, "an input that nothing reads"),
    ("/no/such/program", {}, None, "a missing program"),
    ("cat /etc/shadow", {}, None, "a refused file"),
]


def _source(data: bytes | None) -> int | None:
    if data is None:
        return None
    reading, writing = os.pipe()

    def feed() -> None:
        with open(writing, "wb", buffering=0) as file, contextlib.suppress(BrokenPipeError):
            file.write(data)

    threading.Thread(target=feed, daemon=True).start()
    return reading


@pytest.mark.parametrize(("script", "limits", "given", "why"), ROWS, ids=[row[-1] for row in ROWS])
def test_the_outcome_is_that_of_a_run_in_a_loop(
    script: str, limits: dict[str, float], given: bytes | None, why: str, terms: Terms, tmp_path: Path
) -> None:
    wanted = permit(replace(terms, limits=replace(Limits(), **limits)), script)
    found = []
    for waits in (True, False):
        pieces: list[tuple[int, bytes]] = []
        listen: Listener = lambda stream, chunk, kept=pieces: kept.append((stream, chunk))  # noqa: E731
        source = _source(given)
        if waits:
            outcome = run(wanted, tmp_path, source, listen)
        else:
            backend = Linux("T1", cache=tmp_path, files=False)
            (outcome,) = asyncio.run(_run(backend, wanted, source, listen))
        if source is not None:
            os.close(source)
        heard = tuple(b"".join(chunk for each, chunk in pieces if each == stream) for stream in (1, 2))
        assert heard == (outcome.stdout, outcome.stderr)
        if "output" in limits and outcome.truncated:
            outcome = replace(outcome, stderr=b"")
        found.append(told(outcome))
    assert found[0] == found[1], why


def test_a_helper_serves_several_commands(terms: Terms, tmp_path: Path) -> None:
    with PollWait() as waits:
        backend = Linux("T1", cache=tmp_path, files=False, waits=waits)
        done = run_without_loop(waits, _run(backend, permit(terms, "echo a"), None, None, times=20))
    assert [(each.status, each.stdout) for each in done] == [(0, b"a\n")] * 20


@contextlib.contextmanager
def hearing(number: int, act: Callable[[], object]) -> Iterator[Callable[[float], None]]:
    """Handle a signal by `act`. Yield a function that sends it to this process after some seconds. All of them have
    come when the former handler is in force again, which may end the process.
    """
    before = signal.signal(number, lambda *_: act())
    timers: list[threading.Timer] = []

    def send_after(seconds: float) -> None:
        timers.append(threading.Timer(seconds, os.kill, (os.getpid(), number)))
        timers[-1].start()

    try:
        yield send_after
    finally:
        for each in timers:
            each.join()
        signal.signal(number, before)


@pytest.mark.parametrize(
    "script",
    ["sleep 6000", "echo 1; exec sleep 6000", "yes", "exec >&- 2>&-; sleep 6000", "trap '' TERM INT HUP; sleep 6000"],
)
@pytest.mark.parametrize("after", [0.0, 0.05, 0.2, 0.5])
def test_an_interrupt_ends_the_command(script: str, after: float, terms: Terms, tmp_path: Path) -> None:
    """An endless output must not keep the interrupt back until the wall time, and no process may be left."""
    wanted = permit(replace(terms, limits=replace(Limits(), output=1 << 40, wall=6000.0)), script)
    with PollWait() as waits, hearing(signal.SIGUSR1, waits.interrupt) as send_after:
        backend = Linux("T1", cache=tmp_path, files=False, waits=waits)
        helpers: list[int] = []

        async def work() -> None:
            try:
                await backend.probe(terms)
                helpers.extend(each.process.pid for each in backend.pool.all)
                send_after(after)
                await backend.run(wanted, listen=lambda stream, chunk: None)
            finally:
                await backend.close()

        with pytest.raises((KeyboardInterrupt, Interrupted)):
            run_without_loop(waits, work())
    assert helpers
    assert not backend.pool.all
    for pid in helpers:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_an_interrupt_before_the_helper_is_ready_ends_it(terms: Terms, tmp_path: Path) -> None:
    with PollWait() as waits:
        backend = Linux("T1", cache=tmp_path, files=False, waits=waits)
        waits.interrupt()
        with pytest.raises(KeyboardInterrupt):
            run_without_loop(waits, _run(backend, permit(terms, "true"), None, None))
    assert not backend.pool.all


def test_ctrl_c_is_raised_at_the_end_and_a_second_one_at_once(terms: Terms, tmp_path: Path) -> None:
    with PollWait() as waits:
        backend = Linux("T1", cache=tmp_path, files=False, waits=waits)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        press = threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            run_without_loop(
                waits,
                _run(backend, permit(terms, "echo begun; sleep 6000"), None, lambda stream, chunk: press.start()),
            )
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert not backend.pool.all

    async def twice() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("the second one is not held back")

    with PollWait() as waits, pytest.raises(KeyboardInterrupt):
        run_without_loop(waits, twice())


def test_an_interrupt_is_for_one_wait_only() -> None:
    """The next waits, such as that for the answer of a helper that ends its command, are the usual ones."""
    reading, writing = os.pipe()
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    with PollWait() as waits:
        waits.interrupt()
        with pytest.raises(Interrupted):
            waits.ready(poll, 60)
        assert waits.ready(poll, 0) == []
        os.write(writing, b"x")
        assert waits.ready(poll, 60) == [(reading, select.POLLIN)]
        with hearing(signal.SIGUSR1, waits.interrupt):
            os.kill(os.getpid(), signal.SIGUSR1)
            with pytest.raises(Interrupted):  # also when there is something to read
                waits.ready(poll, 60)
    os.close(reading)
    os.close(writing)


def test_a_signal_that_interrupts_nothing_does_not_end_a_wait_as_an_event(terms: Terms, tmp_path: Path) -> None:
    with hearing(signal.SIGUSR1, lambda: None) as send_after:
        for delay in (0.1, 0.3, 0.35):
            send_after(delay)
        outcome = run(permit(terms, "sleep 0.6; echo done"), tmp_path)
    assert (outcome.status, outcome.stdout) == (0, b"done\n")


def test_an_error_of_the_listener_ends_the_command(terms: Terms, tmp_path: Path) -> None:
    def listen(stream: int, chunk: bytes) -> None:
        raise OSError("full")

    with PollWait() as waits:
        backend = Linux("T1", cache=tmp_path, files=False, waits=waits)
        with pytest.raises(OSError, match="full"):
            run_without_loop(waits, _run(backend, permit(terms, "echo a; sleep 60"), None, listen))
    assert not backend.pool.all


@pytest.mark.parametrize("moment", ["before the command", "while it runs"])
def test_a_helper_that_dies_is_reported(moment: str, terms: Terms, tmp_path: Path) -> None:
    with PollWait() as waits:
        backend = Linux("T1", cache=tmp_path, files=False, waits=waits)

        async def work() -> Outcome:
            try:
                await backend.probe(terms)
                (helper,) = backend.pool.all

                def kill(stream: int = 0, chunk: bytes = b"") -> None:
                    os.kill(helper.process.pid, signal.SIGKILL)
                    os.waitid(os.P_PID, helper.process.pid, os.WEXITED | os.WNOWAIT)

                if moment == "while it runs":
                    return await backend.run(permit(terms, "echo a; sleep 60"), listen=kill)
                kill()
                return await backend.run(permit(terms, "echo a"))
            finally:
                await backend.close()

        outcome = run_without_loop(waits, work())
    if moment == "before the command":  # another helper is started
        assert (outcome.status, outcome.stdout) == (0, b"a\n")
    else:
        assert outcome.problem is not None
        assert (outcome.status, outcome.ended_by) == (125, "helper")


def test_a_helper_that_dies_before_it_is_ready_is_reported(terms: Terms, tmp_path: Path) -> None:
    with PollWait() as waits:
        backend = Linux("T1", cache=tmp_path, files=False, waits=waits)
        usual = backend.pool._launch

        def killed(terms: Terms) -> object:
            helper = usual(terms)
            os.kill(helper.process.pid, signal.SIGKILL)
            return helper

        backend.pool._launch = killed  # type: ignore[assignment]  # the same helper, ended
        with pytest.raises(SandboxUnavailable):
            run_without_loop(waits, _run(backend, permit(terms, "true"), None, None))


def test_a_wait_of_another_kind_is_an_error() -> None:
    with PollWait() as waits, pytest.raises(RuntimeError, match="waited for something else"):
        run_without_loop(waits, asyncio.sleep(0))
