"""Tests of a helper that is started early: its inputs, and its removal when the starting process ends."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from policy.model.verdict import Rights, Terms
from sandbox.backend import SandboxUnavailable
from sandbox.linux.backend import Linux
from sandbox.linux.canary_probe import make_decoys
from sandbox.linux.helper_process import SpareHelper, end, send
from sandbox.linux.launch import PrelaunchedHelper, launched_ahead
from sandbox.linux.session_tmp import Scratch
from tests.support.places import ROOT
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the helper is Linux's")
AGENT = Path(sys.executable).with_name("agent")


def gone(pid: int) -> bool:
    """Not even a zombie is left."""
    return not os.path.exists(f"/proc/{pid}")


def children() -> set[int]:
    return {int(pid) for pid in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()}


def terms(workspace: Path) -> Terms:
    return Terms(Rights.READ_ONLY, str(workspace), "/nonexistent", system=("/usr", "/bin", "/lib", "/lib64"))


def test_a_spare_that_nobody_took_is_ended_and_reaped() -> None:
    before = children()
    with SpareHelper():
        (pid,) = children() - before
    assert gone(pid)


def test_a_spare_is_ended_when_something_fails_meanwhile() -> None:
    before = children()
    with contextlib.suppress(LookupError), SpareHelper():
        (pid,) = children() - before
        raise LookupError
    assert gone(pid)


def test_a_spare_is_taken_once_and_then_belongs_to_the_taker() -> None:
    with SpareHelper() as spare:
        taken = spare.take()
        assert spare.take() is None
    assert taken is not None
    process, control, group = taken
    assert process.poll() is None  # leaving the context did not end it
    control.close()
    assert process.wait() == 0  # the end of its socket is the end of it
    group.remove()


def test_a_spare_has_no_environment_no_descriptors_and_no_session_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAK", "decoy")
    ours, theirs = os.pipe()
    os.set_inheritable(theirs, True)  # as if our own caller had left one open for its children
    before = children()
    with SpareHelper():
        (pid,) = children() - before
        proc = Path(f"/proc/{pid}")
        looks: list[dict[int, str]] = []

        def has_one_socket() -> bool:
            """Return True if it has nothing open but a socket. While it starts, it reads modules and libraries."""
            links = {}
            for entry in (proc / "fd").iterdir():
                with contextlib.suppress(FileNotFoundError):  # what it was reading is read
                    links[int(entry.name)] = os.readlink(entry)
            looks.append(links)
            return [link.partition(":")[0] for number, link in links.items() if number > 2] == ["socket"]

        assert (proc / "environ").read_bytes() == b""
        assert os.readlink(proc / "cwd") == "/"
        assert os.getsid(pid) == pid
        until(has_one_socket, of=pid, what=lambda: f"one open socket: {looks[-1]}")
        assert {looks[-1][number] for number in (0, 1, 2)} == {"/dev/null"}
        assert not [link for links in looks for link in links.values() if link.startswith("pipe:")], "never ours"
    os.close(ours)
    os.close(theirs)


def test_a_spare_ends_when_its_maker_dies_without_a_word() -> None:
    code = (
        "import os, signal\nfrom sandbox.linux.helper_process import SpareHelper\nwith SpareHelper() as spare:\n"
        "    print(spare.take()[0].pid, flush=True)\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    until(lambda: gone(int(done.stdout)))


def test_a_launch_that_nobody_took_is_ended_and_its_folders_are_removed(tmp_path: Path) -> None:
    before, (work, scratch) = children(), (tmp_path / "work", tmp_path / "scratch")
    work.mkdir()
    scratch.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(scratch))
        with SpareHelper() as spare, launched_ahead(None, terms(work), cache=tmp_path, spare=spare):
            (pid,) = children() - before  # the spare itself was sent the plan: no second helper
            names = sorted(path.name.rpartition("-")[0] for path in scratch.iterdir())
            assert names == ["ringfence-decoys", "ringfence-tmp"]
    assert gone(pid)
    assert not list(scratch.iterdir())


def test_decoys_of_a_killed_session_are_swept_up_and_living_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    granted = Terms(Rights.READ_ONLY, "/w", "/h")
    living, killed = make_decoys(granted), make_decoys(granted)
    os.close(killed.lock)
    Scratch().remove()
    assert [path.name for path in tmp_path.iterdir()] == [living.folder]
    assert not living.touched
    living.remove()
    assert not list(tmp_path.iterdir())
    for each in (killed.listener, killed.named):
        each.close()


def test_terms_that_cannot_be_granted_leave_nothing_behind(tmp_path: Path) -> None:
    before = children()
    with (
        pytest.raises(SandboxUnavailable),
        SpareHelper() as spare,
        launched_ahead(None, terms(tmp_path / "missing"), cache=tmp_path, spare=spare),
    ):
        pytest.fail("a helper was launched for a workspace that is not there")
    assert children() == before


@pytest.mark.parametrize("tier", ["T1", "T3"])
def test_a_helper_that_ended_before_its_plan_came_is_a_refusal(tmp_path: Path, tier: str) -> None:
    """And no broken pipe of ours, which would say that nobody reads what we print."""

    async def main(spare: SpareHelper) -> None:
        (pid,) = children() - before
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # it ended, and the one who will wait for it can
        with launched_ahead(tier, terms(tmp_path), cache=tmp_path, spare=spare) as ahead:
            backend = Linux(tier, cache=tmp_path, files=False, ahead=ahead)
            try:
                with pytest.raises(SandboxUnavailable):
                    await backend.probe(terms(tmp_path))
            finally:
                await backend.close()

    before = children()
    with SpareHelper() as spare:
        asyncio.run(main(spare))
    assert children() == before


def test_a_launch_is_only_given_to_the_tier_and_the_terms_it_was_made_for(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with SpareHelper() as spare, launched_ahead("T1", terms(tmp_path), cache=tmp_path, spare=spare) as ahead:
        assert isinstance(ahead, PrelaunchedHelper)
        assert ahead.take("T3", terms(tmp_path)) is None
        assert ahead.take("T1", terms(other)) is None


def test_no_helper_is_launched_ahead_for_a_backend_that_is_not_ours(tmp_path: Path) -> None:
    with SpareHelper() as spare, launched_ahead("nonsense", terms(tmp_path), cache=tmp_path, spare=spare) as ahead:
        assert ahead is None


def test_a_helper_that_died_early_is_an_error_and_no_hang() -> None:
    with SpareHelper() as spare:
        taken = spare.take()
        assert taken is not None
        process, control, group = taken
        process.kill()
        process.wait()
        with pytest.raises(OSError, match="pipe"):
            send(control, {"tier": "T1"}, [])
        end(process, control, group)


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (("--no-such-option", "exec", "curl example.org"), 2, "an unknown command line starts no helper"),
        (("exec", "--unattended", "touch /etc/x"), 3, "a denial ends the helper that was started for it"),
        (("exec", "--", "/bin/true"), 0, "an allowed command uses it"),
    ],
)
def test_nothing_of_agent_exec_is_left_running(words: tuple[str, ...], code: int, why: str, tmp_path: Path) -> None:
    """The helpers of the agent run in sessions of their own. The test process adopts every process left behind."""
    script = (
        "import ctypes, os, subprocess, sys\n"
        "ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)\n"  # PR_SET_CHILD_SUBREAPER
        "code = subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, capture_output=True).returncode\n"
        "try:\n    while True: os.wait()\nexcept ChildProcessError:\n    print(code, 'none')\n"
    )
    home = tmp_path / "home"
    (home / "work").mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-c", script, str(AGENT), *words],
        cwd=home / "work",
        env={"HOME": str(home), "PATH": "/usr/bin:/bin", "RINGFENCE_STATE_DIR": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split(maxsplit=1) == [str(code), "none\n"], why


def test_the_event_loop_of_exec_is_loaded_without_tls_and_tls_stays_importable() -> None:
    code = (
        "from runner.frontends.exec.command import _load_event_loop\nimport sys\n_load_event_loop()\n"
        "assert 'asyncio' in sys.modules and 'ssl' not in sys.modules\nimport ssl\nprint(ssl.OPENSSL_VERSION)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("OpenSSL")
