"""Tests of sandbox plans without a kernel: the mounts and Landlock rules for given terms, and refused terms."""

import json
import os
from pathlib import Path

import pytest

from policy.model.verdict import READ_ONLY_TMP, Rights
from sandbox.inside import syscalls
from sandbox.linux import landlock
from sandbox.linux.plan_builder import helper_key
from sandbox.linux.seccomp import programs
from sandbox.workspace.protected_paths import scan
from tests.support.places import TESTS
from tests.support.plans import plan, terms

GOLDEN = TESTS / "golden" / "plans.json"


CASES = {
    "read-only": plan(terms(Rights.READ_ONLY)),
    "workspace-write": plan(terms()),
    "workspace-write with named paths": plan(terms(read=("/srv/data",), write=("/srv/out.txt",))),
    "workspace-write with a cache": plan(terms(cache="/var/cache/own", read=("/home/u/.cache/shown",))),
    "T3 read-only": plan(terms(Rights.READ_ONLY), tier="T3"),
    "T3 workspace-write, old kernel": plan(terms(), tier="T3", abi=1),
}


@pytest.mark.parametrize("name", CASES)
def test_plans_are_as_reviewed(name: str) -> None:
    golden = json.loads(GOLDEN.read_text())
    told = CASES[name]
    assert json.loads(json.dumps([told.mounts, told.landlock, told.handled, told.loopback])) == golden[name]


def test_t2_plans_what_t1_plans() -> None:
    one, other = plan(terms()), plan(terms(), tier="T2")
    assert {**one.dump(), "tier": "T2"} == other.dump()


@pytest.mark.threat("T02")
def test_look_has_nothing_writable() -> None:
    told = CASES["read-only"]
    writable = [step for step in told.mounts if step[0] in ("rw", "tmpfs") and not step[2].startswith("/dev/")]
    assert writable == [("tmpfs", str(512 << 20), READ_ONLY_TMP)], "memory of its own, which nobody else sees"
    assert told.vanishing == READ_ONLY_TMP
    writing = landlock.WRITE & ~landlock.READ
    granted = [path for path, access in told.landlock if access & writing and not path.startswith("/dev/")]
    assert granted == [READ_ONLY_TMP]
    assert not told.loopback


@pytest.mark.parametrize("abi", landlock.ABIS)
def test_no_right_is_asked_for_that_an_abi_does_not_know(abi: int) -> None:
    known = landlock.known(abi)
    for tier in ("T1", "T3"):
        told = plan(terms(), tier=tier, abi=abi)
        assert told.handled[0] == known.fs
        assert all(access & ~known.fs == 0 for _, access in told.landlock)
        assert told.handled[3:] == (known.size, known.flags)
    assert (landlock.missing(abi) == ()) == (abi >= 7), "what 8 and 9 add is enforced by something else"


# fmt: off
ABI_TABLE = [  # what landlock(7) says that each ABI brought
    (1, landlock.MAKE_SYM,     landlock.REFER,        0, 0, 0),
    (2, landlock.REFER,        landlock.TRUNCATE,     0, 0, 0),
    (3, landlock.TRUNCATE,     landlock.IOCTL_DEV,    0, 0, 0),
    (4, landlock.TRUNCATE,     landlock.IOCTL_DEV,    3, 0, 0),
    (5, landlock.IOCTL_DEV,    landlock.RESOLVE_UNIX, 3, 0, 0),
    (6, landlock.IOCTL_DEV,    landlock.RESOLVE_UNIX, 3, 3, 0),
    (7, landlock.IOCTL_DEV,    landlock.RESOLVE_UNIX, 3, 3, 3),
    (8, landlock.IOCTL_DEV,    landlock.RESOLVE_UNIX, 3, 3, 3),
    (9, landlock.RESOLVE_UNIX, 1 << 17,               3, 3, 3),
]
# fmt: on


@pytest.mark.parametrize(("abi", "newest", "unknown", "net", "scoped", "flags"), ABI_TABLE)
def test_each_abi_handles_what_it_brought(
    abi: int, newest: int, unknown: int, net: int, scoped: int, flags: int
) -> None:
    known = landlock.known(abi)
    assert known.fs & newest
    assert not known.fs & unknown
    assert (known.net, known.scoped, known.flags) == (net, scoped, flags)
    nobody = landlock.MAKE_CHAR | landlock.MAKE_BLOCK | landlock.RESOLVE_UNIX
    assert not (landlock.READ | landlock.WRITE | landlock.DEVICE) & nobody


def test_the_running_kernel_takes_every_abi_up_to_its_own(tmp_path: Path) -> None:
    """Each table entry is entered for real, and holds."""
    running = syscalls.landlock_abi()
    assert running >= 1, "this machine has no Landlock: boot with lsm=landlock,..."
    (tmp_path / "in").mkdir()
    for abi in range(1, min(running, max(landlock.ABIS)) + 1):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                known = landlock.known(abi)
                syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
                rules = [("/", landlock.READ & known.fs), (str(tmp_path / "in"), landlock.WRITE & known.fs)]
                syscalls.landlock(known.fs, known.net, known.scoped, rules, known.size, known.flags)
                os.close(os.open(tmp_path / "in" / f"{abi}", os.O_CREAT | os.O_WRONLY))
                try:
                    os.close(os.open(tmp_path / "out", os.O_CREAT | os.O_WRONLY))
                except PermissionError:
                    status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, abi
    assert not (tmp_path / "out").exists()


def test_a_newer_abi_than_the_table_is_used_as_the_newest_known() -> None:
    assert landlock.known(99) == landlock.known(max(landlock.ABIS))


def test_a_helper_serves_all_terms_that_differ_only_in_what_the_runner_enforces() -> None:
    from policy.model.verdict import Limits

    assert helper_key(terms(limits=Limits(wall=1, output=5))) == helper_key(terms(limits=Limits(wall=9, output=7)))
    assert helper_key(terms(limits=Limits(pids=9))) != helper_key(terms())
    assert helper_key(terms(read=("/srv/data",))) != helper_key(terms())


# ---- the scan


def make(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)


def test_the_scan_finds_secrets_repositories_and_links(tmp_path: Path) -> None:
    outside, work = tmp_path / "outside", tmp_path / "workspace-write"
    make(outside, "shared.txt")
    make(
        work, ".git/config", ".git/hooks/", "sub/.git/config", "a/.env", "a/.env.example", "b/key.pem", "sm/.git", "one"
    )
    (work / "linked").hardlink_to(outside / "shared.txt")
    (work / "twin").hardlink_to(work / "one")
    (work / "to-secret").symlink_to("a/.env")
    (work / ".vscode").symlink_to(outside)
    found = scan(
        str(work), (".env", ".env.*", "*.pem"), (".env.example",), (".git/config", ".git/hooks", ".vscode", ".git")
    )
    relative = [
        {path.removeprefix(f"{work}/") for path in group} for group in (found.masked, found.pinned, found.shared)
    ]
    assert relative == [{"a/.env", "b/key.pem"}, {".git", "sub/.git"}, {"linked"}]
    locked = {path.removeprefix(f"{work}/") for path in found.locked}
    assert locked == {".git", ".git/config", ".git/hooks", "sub/.git", "sub/.git/config", "sm/.git"}


def test_a_hidden_place_is_one_place_and_a_hidden_name_any(tmp_path: Path) -> None:
    outside, work = tmp_path / "outside", tmp_path / "workspace-write"
    make(outside, "x")
    make(work, "private/a", "src/private/b", "x/1.sql", "x/2.txt", "src/3.sql", "real/c")
    (work / "linked").symlink_to("real")
    (work / "away").symlink_to(outside)
    places = ("/private", "/x/*.sql", "/linked", "/away", "/not/there")
    found = scan(str(work), places, (), ())
    assert {path.removeprefix(f"{work}/") for path in found.masked} == {"private", "x/1.sql", "real"}
    found = scan(str(work), ("private", "*.sql"), (), ())
    masked = {path.removeprefix(f"{work}/") for path in found.masked}
    assert masked == {"private", "src/private", "x/1.sql", "src/3.sql"}


def test_nothing_is_mounted_through_a_link(tmp_path: Path) -> None:
    outside, work = tmp_path / "outside", tmp_path / "workspace-write"
    make(outside, "git/config", "git/hooks/")
    make(work, "nested/x", "real/.git/config")
    for link in (work / ".git", work / "nested" / ".git"):
        link.symlink_to(outside / "git")
    found = scan(str(work), (), (), (".git", ".git/config", ".git/hooks"))
    assert found.pinned == (str(work / "real" / ".git"),)
    assert found.locked == (str(work / "real" / ".git"), str(work / "real" / ".git" / "config"))


def test_the_scan_survives_odd_names(tmp_path: Path) -> None:

    folder = os.fsencode(tmp_path)
    for name in (b"new\nline", b"\xff\xfe", b"-rf", b"$(id)", b" "):
        os.mkdir(folder + b"/" + name)
    assert scan(str(tmp_path), (".env",), (), (".git/hooks",)).masked == ()


# ---- seccomp programs


def test_programs_are_kept_whole_or_built_again(tmp_path: Path) -> None:
    built = programs(Rights.READ_ONLY, unix=False, trace=False, cache=tmp_path)
    (kept,) = tmp_path.iterdir()
    assert programs(Rights.READ_ONLY, unix=False, trace=False, cache=tmp_path) == built
    for damage in (b"", kept.read_bytes()[:-8], kept.read_bytes()[:40] + b"\0" * (kept.stat().st_size - 40)):
        kept.write_bytes(damage)
        assert programs(Rights.READ_ONLY, unix=False, trace=False, cache=tmp_path) == built, (
            "a damaged cache must never weaken a filter"
        )


def test_the_right_sets_have_different_programs(tmp_path: Path) -> None:
    found = {rights: programs(rights, unix=False, trace=False, cache=None)[1] for rights in Rights}
    assert found[Rights.ISOLATED] == found[Rights.READ_ONLY] != found[Rights.WORKSPACE_WRITE]
    assert all(
        len(program) % 8 == 0
        for pair in (programs(r, unix=True, trace=True, cache=None) for r in Rights)
        for program in pair
    )
