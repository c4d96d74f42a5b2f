"""Tests of T2: the options of bubblewrap, the resulting sandbox, and the location of the interpreter."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from policy.model.verdict import Rights
from sandbox.inside import mount_check, syscalls
from sandbox.inside.plan import Plan
from sandbox.linux import bwrap, interpreter_paths
from tests.support.places import ROOT
from tests.support.plans import plan, terms
from tests.support.sandbox_bench import NO_NAMESPACES, SECRET, USERS, make

EMPTY = {"file": "/e/file", "dir": "/e/dir"}


def holds(words: list[str], *part: str) -> bool:
    return any(tuple(words[n : n + len(part)]) == part for n in range(len(words)))


# fmt: off
OPTIONS: list[tuple[Rights, bool, tuple[str, ...], bool, str]] = [
    # rights, admin, words, whether they are there, why
    (Rights.WORKSPACE_WRITE, True,  ("--unshare-user",),                                          False, "root needs no user namespace, and has none in T1"),
    (Rights.WORKSPACE_WRITE, False, ("--unshare-user",),                                          True,  "everybody else does"),
    (Rights.WORKSPACE_WRITE, True,  ("--cap-drop", "ALL"),                                        True,  "root keeps what it is not told to drop"),
    (Rights.WORKSPACE_WRITE, True,  ("--as-pid-1",),                                              True,  "the helper ends what commands leave by kill(-1)"),
    (Rights.WORKSPACE_WRITE, True,  ("--die-with-parent",),                                       True,  "nothing outlives the runner"),
    (Rights.WORKSPACE_WRITE, True,  ("--ro-bind", "/proc/sys", "/proc/sys"),                      True,  "by its own check it would leave it writable for root"),
    (Rights.WORKSPACE_WRITE, True,  ("--remount-ro", "/proc"),                                    True,  "and as a whole"),
    (Rights.WORKSPACE_WRITE, True,  ("--bind", "/home/u/p", "/home/u/p"),                         True,  "the workspace, writable under workspace-write"),
    (Rights.READ_ONLY, True,  ("--ro-bind", "/home/u/p", "/home/u/p"),                      True,  "read-only under read-only"),
    (Rights.WORKSPACE_WRITE, True,  ("--bind", "/home/u/p/.git", "/home/u/p/.git"),               True,  "pinned: it cannot be renamed away"),
    (Rights.WORKSPACE_WRITE, True,  ("--ro-bind", "/home/u/p/.git/config", "/home/u/p/.git/config"), True, "locked"),
    (Rights.WORKSPACE_WRITE, True,  ("--ro-bind", "/e/file", "/home/u/p/.env"),                   True,  "masked"),
    (Rights.WORKSPACE_WRITE, True,  ("--symlink", "usr/bin", "/bin"),                             True,  "a link stays one"),
    (Rights.READ_ONLY, True,  ("--bind", "/var/scratch", "/tmp"),                           False, "the session's /tmp is read-only under read-only"),
    (Rights.WORKSPACE_WRITE, True,  ("--bind", "/dev/null", "/dev/null"),                         False, "--dev provides the devices"),
]
# fmt: on


@pytest.mark.threat("T61")
@pytest.mark.parametrize(("rights", "admin", "words", "there", "why"), OPTIONS)
def test_options(rights: Rights, admin: bool, words: tuple[str, ...], there: bool, why: str) -> None:
    told = bwrap.options(plan(terms(rights), tier="T2"), EMPTY, admin=admin)
    assert holds(told, *words) is there, why
    assert told[-6:] == ["--remount-ro", "/dev", "--remount-ro", "/proc", "--remount-ro", "/"], "after all was made"


@pytest.mark.threat("T61")
def test_what_was_built_is_looked_at(tmp_path: Path) -> None:
    """The check by itself, on mounts that are there: any other file, a place that is no mount, a writable one."""
    proc, sys_ = os.stat("/proc"), os.stat("/proc/sys")
    here = os.stat(tmp_path)
    good = ("/proc", proc.st_dev, proc.st_ino, False)
    mount_check.check((good,), ())
    for wrong in (
        ("/proc", proc.st_dev, proc.st_ino + 1, False),
        ("/proc", proc.st_dev + 1, proc.st_ino, False),
        (str(tmp_path), here.st_dev, here.st_ino, True),
    ):
        with pytest.raises(syscalls.KernelError):
            mount_check.check((wrong,), ())
    with pytest.raises(syscalls.KernelError):  # the same mount twice: one of them is none of its own
        mount_check.check((good, ("/proc/sys", sys_.st_dev, sys_.st_ino, False)), ())
    link = tmp_path / "link"
    link.symlink_to("/proc")
    with pytest.raises(syscalls.KernelError):
        mount_check.check(((str(link), proc.st_dev, proc.st_ino, False),), (str(tmp_path),))


@pytest.mark.threat("T61")
def test_nothing_is_made_in_a_folder_of_the_host(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for name, made in (("there", True), ("missing", False)):
        steps = (("rw", str(tmp_path), "/w"), ("ro", "/usr", f"/w/{name}"))
        told = Plan(mounts=steps, real=("/w", str(tmp_path)))
        if made:
            assert [each[0] for each in mount_check.expect(told, EMPTY)] == ["/w", "/w/there"]
        else:
            with pytest.raises(syscalls.KernelError):
                mount_check.expect(told, EMPTY)


def test_only_what_is_not_shown_already_is_added() -> None:
    assert interpreter_paths.steps(("/",)) == (("ro", str(ROOT / "sandbox"), "/run/ringfence/sandbox"),)
    shown = {target for _, _, target in interpreter_paths.steps(())}
    assert os.path.realpath(sys.executable) in shown
    assert os.path.realpath(sysconfig.get_path("stdlib")) in shown


@pytest.mark.threat("T61")
@pytest.mark.parametrize("user", USERS)
def test_an_interpreter_below_the_home_works_and_opens_nothing_else(user: str, tmp_path: Path) -> None:
    """An interpreter installed by pyenv: its own files are inside the sandbox, the files beside them are not."""
    library = Path(os.__file__).parent
    if not Path("/usr/bin/python3").exists():
        pytest.fail("no system Python to copy: `apt-get install python3`")
    real = Path(os.path.realpath("/usr/bin/python3"))
    library = Path("/usr/lib") / real.name
    skipped = shutil.ignore_patterns(
        "test", "tests", "idlelib", "__pycache__", "dist-packages", "site-packages", "config-*"
    )

    def moved(base: Path) -> str:
        tool = base / "home" / ".pyenv" / "versions" / "own"
        (tool / "bin").mkdir(parents=True)
        shutil.copy(real, tool / "bin" / real.name)
        shutil.copytree(library, tool / "lib" / real.name, ignore=skipped, symlinks=True)
        (tool.parent / "secret").write_text(SECRET)
        return str(tool / "bin" / real.name)

    for bench in make(user, tier="T2", python=moved):
        beside = bench.home / ".pyenv" / "versions"
        answer = bench.run(
            f"echo in; ls {beside}; cat {beside}/secret {bench.home}/.ssh/id_rsa; echo x > {beside}/own/new"
        )
        assert answer["level"] == "FULL", answer
        assert answer["out"] == "in\nown\n", answer
        assert SECRET not in answer["err"]


@pytest.mark.whole_matrix("which namespaces a user may make is the subject")
@pytest.mark.threat("T19")
@pytest.mark.parametrize("user", USERS)
def test_where_bubblewrap_may_not_either_nothing_runs_and_it_is_quoted(user: str) -> None:
    for bench in make("nobody" if user == "root" else user, NO_NAMESPACES, tier="T2"):
        answer = bench.run("echo ran > ran.txt")
        assert "bwrap: " in answer["unavailable"][1], answer
        assert not (bench.workspace / "ran.txt").exists()


def test_its_version_is_one_that_we_know() -> None:
    """bubblewrap 0.8 is the oldest: Debian 12 has it."""
    said = subprocess.run(["bwrap", "--version"], capture_output=True, text=True, check=True).stdout
    version = tuple(int(part) for part in said.split()[-1].split(".")[:2])
    assert version >= (0, 8)
