"""A helper that is prepared before its command is known: it is the helper of the command's Terms, or it is not used."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from policy.model.verdict import Rights, Terms
from sandbox.linux.launch import LaunchRequest
from sandbox.linux.prepared_helper import foreseeable
from tests.sandbox.test_prepared_root import CHANGING, LOOK
from tests.support.resident_process import until
from tests.support.sandbox_bench import SECRET, SYSTEM, USERS, Bench, make

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")
READS: dict[str, Any] = {"rights": "read-only", "hidden": [".env", "*.pem"], "locked": [".git/hooks"]}


@pytest.fixture(scope="module", params=USERS)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    yield from make(request.param)


@pytest.fixture
def project(bench: Bench) -> Iterator[Path]:
    """Yield the workspace with a repository, a secret file and a folder of its own for each test."""
    work = bench.workspace
    (work / ".git" / "hooks").mkdir(parents=True)
    (work / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    for name in ("sub", "other"):
        (work / name).mkdir()
    (work / "file.txt").write_text("hello\n")
    (work / "one.pem").write_text(SECRET)
    bench.own(work)
    yield work
    moved = work.with_name("moved")
    if moved.exists():
        shutil.rmtree(work)
        moved.rename(work)
    for each in work.iterdir():
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        else:
            each.unlink()


def seen(bench: Bench, script: str, **told: Any) -> dict[str, Any]:
    answer = bench.run(script, **told)
    assert "unavailable" not in answer, answer
    answer["lines"] = [CHANGING.sub("#", line) for line in (answer["out"] + answer["err"]).splitlines()]
    return answer


@pytest.mark.threat("T312")
def test_a_command_sees_and_gets_what_it_would_in_a_new_helper(bench: Bench, project: Path) -> None:
    new = seen(bench, LOOK, **READS)
    bench.run("true", foreseen="make", **READS)
    early = seen(bench, LOOK, foreseen="use", **READS)
    assert early["used"]
    assert len(new["lines"]) > 100
    assert early["lines"] == new["lines"]
    assert early["checks"] == new["checks"]
    assert all(early["checks"].values())
    assert early["limits"] == new["limits"]


def renamed_over(path: Path, text: str) -> None:
    """Replace a file as an editor does."""
    beside = path.with_name(path.name + ".new")
    beside.write_text(text)
    beside.rename(path)


def replaced_workspace(work: Path) -> None:
    work.rename(work.with_name("moved"))
    work.mkdir()
    (work / "file.txt").write_text("another\n")


# fmt: off
CHANGES: list[tuple[str, Callable[[Path], object], bool | None]] = [
    # what happens to the workspace after the helper was prepared, whether the helper is used (None: both are right)
    ("nothing",                          lambda work: None,                                                  True),
    ("a file has another content",       lambda work: (work / "file.txt").write_text("changed\n"),           True),
    ("a new file",                       lambda work: (work / "new.txt").write_text("new\n"),                True),
    ("a new secret file",                lambda work: (work / ".env").write_text(SECRET),                    False),
    ("a secret file in a folder",        lambda work: (work / "sub" / "a.pem").write_text(SECRET),           False),
    ("a secret file was replaced",       lambda work: renamed_over(work / "one.pem", SECRET),                False),
    ("a secret file was moved",          lambda work: (work / "one.pem").rename(work / "sub" / "one.pem"),   False),
    ("a secret file is gone",            lambda work: (work / "one.pem").unlink(),                           False),
    ("a second name of a secret file",   lambda work: os.link(work / "one.pem", work / "plain.txt"),         False),
    ("a link in place of a secret file", lambda work: (work / ".env").symlink_to("file.txt"),                False),
    ("a protected path",                 lambda work: (work / ".git" / "hooks" / "pre-commit").write_text("x"), None),
    ("the protected folder is a link",   lambda work: ((work / ".git" / "hooks").rmdir(), (work / ".git" / "hooks").symlink_to("../sub")), False),
    ("a repository in the workspace",    lambda work: (work / "sub" / ".git").mkdir(),                       False),
    ("the workspace was replaced",       replaced_workspace,                                                 False),
]
# fmt: on


@pytest.mark.threat("T312")
@pytest.mark.parametrize(("what", "change", "fits"), CHANGES, ids=[row[0] for row in CHANGES])
def test_a_change_of_the_workspace_is_seen(
    bench: Bench, project: Path, what: str, change: Callable[[Path], object], fits: bool | None
) -> None:
    """And no secret file can be read, whichever helper runs the command."""
    script = (
        "ls -laR . | grep -v ^total; cat file.txt new.txt .env *.pem sub/*.pem plain.txt .git/hooks/pre-commit 2>&1"
    )
    bench.run("true", foreseen="make", **READS)
    change(project)
    bench.own(project)
    early = seen(bench, script, foreseen="use", **READS)
    new = seen(bench, script, **READS)
    assert SECRET not in early["out"] + early["err"]
    assert early["lines"] == new["lines"]
    assert fits is None or early["used"] is fits


# fmt: off
OTHER: list[tuple[dict[str, Any], str]] = [
    ({"env": {"PATH": "/usr/bin:/bin", "TOKEN": "other"}},  "another environment"),
    ({"limits": {"memory": 1 << 28}},                       "other limits"),
    ({"system": SYSTEM[:-1]},                               "fewer system files"),
    ({"hidden": [".env", "*.pem", "file.txt"]},             "another secret file"),
    ({"hidden": []},                                        "no secret file"),
    ({"home": "/nonexistent"},                              "another home"),
    ({"read": ["{outside}"]},                               "another folder to read"),
    ({"rights": "workspace-write"},                         "the right to write"),
    ({"workspace": "{work}/sub"},                           "another workspace"),
    ({"tier": "T3"},                                        "another tier"),
]
# fmt: on


@pytest.mark.threat("T312")
@pytest.mark.parametrize(("told", "what"), OTHER, ids=[row[1] for row in OTHER])
def test_other_terms_get_another_helper(bench: Bench, project: Path, told: dict[str, Any], what: str) -> None:
    places = {"outside": bench.outside, "work": project}

    def filled(value: Any) -> Any:
        if isinstance(value, str):
            return value.format(**places)
        return [each.format(**places) for each in value] if isinstance(value, list) else value

    wanted = {**READS, **{name: filled(value) for name, value in told.items()}}
    script = "env | sort; pwd; cat file.txt one.pem 2>&1; ls / /etc; touch made 2>&1; rm -f made; ulimit -a"
    bench.run("true", foreseen="make", **READS)
    early = seen(bench, script, foreseen="use", **wanted)
    assert not early["used"]
    assert early["lines"] == seen(bench, script, **wanted)["lines"]


@pytest.mark.threat("T312")
def test_a_helper_that_has_ended_is_not_used(bench: Bench, project: Path) -> None:
    made = bench.run("true", foreseen="make", **READS)
    os.kill(made["pid"], signal.SIGKILL)
    stat = Path(f"/proc/{made['pid']}/stat")
    until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z", "the end of the helper")
    early = seen(bench, "cat file.txt", foreseen="use", **READS)
    assert (early["used"], early["out"]) == (False, "hello\n")


@pytest.mark.threat("T312")
def test_a_system_file_that_was_replaced_is_the_new_one(bench: Bench, project: Path) -> None:
    tools = bench.base / "tools"
    shutil.rmtree(tools, ignore_errors=True)
    tools.mkdir()
    (tools / "one").write_text("old\n")
    bench.own(tools)
    told = {**READS, "system": [*SYSTEM, str(tools / "one")]}
    bench.run("true", foreseen="make", **told)
    renamed_over(tools / "one", "new\n")
    early = seen(bench, f"cat {tools}/one", foreseen="use", **told)
    assert (early["used"], early["out"]) == (False, "new\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
@pytest.mark.threat("T312")
def test_a_mount_that_came_later_is_seen(bench: Bench, project: Path) -> None:
    bench.run("true", foreseen="make", **READS)
    subprocess.run(["mount", "-t", "tmpfs", "none", str(project / "sub")], check=True)
    try:
        (project / "sub" / "mounted").write_text("mounted\n")
        (project / "sub" / "mounted").chmod(0o644)
        (project / "sub").chmod(0o755)
        early = seen(bench, "cat sub/mounted", foreseen="use", **READS)
    finally:
        subprocess.run(["umount", str(project / "sub")], check=True)
    assert (early["used"], early["out"]) == (False, "mounted\n")


FORESEEABLE: list[tuple[Rights, dict[str, tuple[str, ...]], bool]] = [
    (Rights.READ_ONLY, {}, True),
    (Rights.READ_ONLY, {"read": ("/opt",)}, True),
    (Rights.WORKSPACE_WRITE, {}, False),
    (Rights.ISOLATED, {}, False),
    (Rights.READ_ONLY, {"write": ("/opt",)}, False),
    (Rights.READ_ONLY, {"repository": ("/r", "/r/worktrees/a")}, False),
    (Rights.READ_ONLY, {"hosts": ("example.org",)}, False),
    (Rights.READ_ONLY, {"credentials": ("token",)}, False),
]


@pytest.mark.threat("T312")
@pytest.mark.parametrize(("rights", "told", "expected"), FORESEEABLE)
def test_only_commands_that_change_nothing_are_foreseen(
    rights: Rights, told: dict[str, tuple[str, ...]], expected: bool
) -> None:
    terms = Terms(rights, "/w", "/h", **told)  # type: ignore[arg-type]  # fields that are tuples of texts
    assert foreseeable(LaunchRequest("T1", terms, Path("/c"))) is expected
    assert not foreseeable(LaunchRequest("T2", terms, Path("/c")))
