"""Tests of unusual terms and workspaces: each works exactly as stated, or nothing runs and a Problem states the
reason.
"""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from policy.model.secret_paths import inside
from policy.model.verdict import Rights, Terms
from sandbox.backend import SandboxUnavailable
from sandbox.linux.canary_probe import decoys_for
from tests.support.sandbox_bench import NOBODY, SECRET, USERS, Bench, only_on

# fmt: off
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"read": ["/no/such"]},             "does not exist",       "a path that is missing"),
    ({"read": ["{x}/f/y"]},              "does not exist",       "a file as a folder"),
    ({"read": ["{base}/link"]},          "is a link",            "a link to a folder"),
    ({"write": ["{base}/link"]},         "is a link",            "a link, to write"),
    ({"read": ["{base}/shadow"]},        "is a link",            "a link to a secret"),
    ({"read": ["x"]},                    "not a valid path",     "a path from nowhere"),
    ({"read": ["{base}/x/../x"]},        "not a valid path",     "a detour"),
    ({"read": [""]},                     "not a valid path",     "nothing"),
    ({"read": ["/tmp/a\0b"]},            "not a valid path",     "a NUL byte"),
    ({"workspace": "{x}/f"},             "not a folder",         "a workspace that is a file"),
    ({"workspace": "{base}/none"},       "not a folder",         "a workspace that is missing"),
    ({"workspace": "/dev/shm/../shm"},   "not a valid path",     "a workspace by a detour"),
    *(({kind: [place]}, "cannot be given", f"{kind} {place}")
      for kind in ("read", "write") for place in ("/", "/proc", "/proc/1", "/proc/sys/kernel", "/sys", "/dev", "/dev/pts", "/run")),
]
WORKS: list[tuple[dict[str, Any], str, str, str]] = [
    ({"read": ["{x}"], "hidden": [".env"]},                  "cat {x}/.env; cat {x}/f",                  "f",    "what is hidden wins inside what is read"),
    ({"read": ["{x}/.env"], "hidden": [".env"]},             "cat {x}/.env",                             SECRET, "a secret that was named is shown"),
    ({"read": ["{x}/sub"], "write": ["{x}"]},                "echo n > {x}/sub/g; cat {x}/sub/g",        "g",    "reading inside writing stays reading"),
    ({"read": ["{x}"], "write": ["{x}/sub"]},                "echo n > {x}/f; echo n > {x}/sub/h; cat {x}/f {x}/sub/h; rm {x}/sub/h", "fn\n", "writing inside reading"),
    ({"read": ["{x}", "{x}", "{x}/sub", "{x}/sub/g"]},       "cat {x}/f {x}/sub/g",                      "fg",   "the same several times"),
    ({"read": ["{base}"]},                                   "cat {base}/home/.ssh/id_rsa {x}/f",        "f",    "a parent of the home does not open it"),
    ({"read": ["{ws}"]},                                     "echo x > {ws}/new; cat {ws}/file.txt",     "hello\n", "the workspace, to read"),
    ({"read": ["/etc"]},                                     "test -d /etc/alternatives && echo yes",    "yes\n", "a folder that holds parts of the system"),
    ({"read": ["{odd}"]},                                    "cat {x}/odd*",                             "odd",  "a name that is no UTF-8"),
    ({"workspace": "{x}/new\nline"},                         "touch a && ls",                            "a\n",  "a newline in the workspace"),
    ({"read": ["/dev/null"]},                                "cat /dev/null",                            "",     "a device that is there anyway"),
]
# fmt: on


@pytest.fixture
def laid(bench: Bench) -> dict[str, str]:
    """Places to name, made once for each user."""
    x = bench.base / "x"
    odd = os.fsdecode(os.fsencode(x) + b"/odd\xff")
    if not x.exists():
        (x / "sub").mkdir(parents=True)
        (x / "new\nline").mkdir()
        for path, text in ((x / "f", "f"), (x / ".env", SECRET), (x / "sub" / "g", "g"), (Path(odd), "odd")):
            path.write_text(text)
        (bench.base / "link").symlink_to(x)
        (bench.base / "shadow").symlink_to("/etc/shadow")
        bench.own(x)
    return {"x": str(x), "base": str(bench.base), "ws": str(bench.workspace), "odd": odd}


def filled(told: dict[str, Any], laid: dict[str, str]) -> dict[str, Any]:
    def fill(value: Any) -> Any:
        return [item.format(**laid) for item in value] if isinstance(value, list) else value.format(**laid)

    return {name: value if name == "hidden" else fill(value) for name, value in told.items()}


@pytest.mark.threat("T19")
@pytest.mark.parametrize(("told", "words", "why"), REFUSED, ids=[row[2] for row in REFUSED])
def test_what_cannot_be_granted_runs_nothing(
    bench: Bench, laid: dict[str, str], told: dict[str, Any], words: str, why: str
) -> None:
    answer = bench.run("echo ran > ran.txt", cwd=str(bench.workspace), **filled(told, laid))
    assert words in answer["unavailable"][0], answer
    assert all(answer["unavailable"]), "what, why and how to mend it"
    assert not (bench.workspace / "ran.txt").exists()


@pytest.mark.threat("T02")
@pytest.mark.parametrize(("told", "script", "out", "why"), WORKS, ids=[row[3] for row in WORKS])
def test_what_can_be_granted_is_granted_exactly(
    bench: Bench, laid: dict[str, str], told: dict[str, Any], script: str, out: str, why: str
) -> None:
    answer = bench.run(script.format(**laid), **filled(told, laid))
    assert answer["out"] == out, answer


# fmt: off
GRANTED = [
    ({},                                            True,  "nothing"),
    ({"read": ("/tmp", "/var/tmp")},                True,  "two of the three"),
    ({"workspace": "/tmp", "write": ("/var/tmp",)}, True,  "two, to write"),
    ({"system": ("/tmp", "/var", "/dev")},          False, "each, or its parent"),
    ({"read": ("/",)},                              False, "everything"),
]
# fmt: on


@pytest.mark.threat("T19")
@pytest.mark.parametrize(("granted", "hidden", "why"), GRANTED, ids=[row[2] for row in GRANTED])
def test_decoys_lie_where_the_command_sees_nothing(granted: dict[str, Any], hidden: bool, why: str) -> None:
    terms = Terms(**{"rights": Rights.READ_ONLY, "workspace": "/w", "home": "/h", **granted})
    with contextlib.ExitStack() as stack:
        if not hidden:
            with pytest.raises(SandboxUnavailable) as caught:
                stack.enter_context(decoys_for(terms))
            assert "granted" in caught.value.problem.why
            return
        decoys = stack.enter_context(decoys_for(terms))
        named = (terms.workspace, *terms.system, *terms.read, *terms.write)
        assert not any(inside(path, root) for path in (decoys.secret, decoys.target) for root in named)


@pytest.mark.whole_matrix("how many mounts there may be differs between the backends")
@pytest.mark.slow("ten thousand mounts")
@only_on(users=USERS[-1:])
def test_thousands_of_named_paths(bench: Bench) -> None:
    """Each is a mount of its own. Ten thousand are either all there or nothing runs."""
    folder = bench.base / "many"
    folder.mkdir()
    paths = [folder / f"{number}" for number in range(10_000)]
    for path in paths:
        path.write_text("x")
    bench.own(folder)
    few = bench.run(f"cat {folder}/* | wc -c", read=[str(path) for path in paths[:800]])
    assert few["out"] == "800\n", few
    many = bench.run(f"cat {folder}/* | wc -c", read=list(map(str, paths)))
    assert many.get("out") == "10000\n" or many["unavailable"][0], many


# ---- file systems


@contextlib.contextmanager
def mounted(folder: Path, *words: str) -> Iterator[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", *words, str(folder)], check=True, capture_output=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


# fmt: off
FILE_SYSTEMS = [
    ("tmpfs",           ("-t", "tmpfs", "-o", "size=8m,mode=0777", "none"),           "echo x > a && cat a", 0, "x\n"),
    ("noexec",          ("-t", "tmpfs", "-o", "size=8m,mode=0777,noexec,nodev", "none"), "echo x > a && cat a && printf '#!/bin/sh\\n' > p && chmod +x p && ./p", 126, "x\n"),
    ("read-only",       ("-t", "tmpfs", "-o", "ro,mode=0777", "none"),                 "echo x > a; echo on", 0, "on\n"),
    ("overlay",         ("-t", "overlay", "-o", "lowerdir={b}/lower,upperdir={b}/upper,workdir={b}/work", "none"), "cat low && echo x > low && cat low", 0, "low\nx\n"),
    ("a full disk",     ("-t", "tmpfs", "-o", "size=64k,mode=0777", "none"),           "head -c 1000000 /dev/zero > a; stat -c %s a; rm a; echo on", 0, "65536\non\n"),
    ("another owner's", ("-t", "tmpfs", "-o", "size=8m,mode=0755,uid=12345", "none"),  "ls; echo on", 0, "on\n"),
]
# fmt: on


@pytest.mark.skipif(os.geteuid() != 0, reason="file systems can be mounted by root alone")
@pytest.mark.parametrize(
    ("kind", "mount", "script", "status", "out"), FILE_SYSTEMS, ids=[row[0] for row in FILE_SYSTEMS]
)
def test_a_workspace_on(bench: Bench, kind: str, mount: tuple[str, ...], script: str, status: int, out: str) -> None:
    base = bench.base / f"fs-{kind.replace(' ', '-')}"
    for name in ("lower", "upper", "work"):
        (base / name).mkdir(parents=True, exist_ok=True)
    (base / "lower" / "low").write_text("low\n")
    bench.own(base)
    with mounted(base / "on", *(word.replace("{b}", str(base)) for word in mount)) as folder:
        answer = bench.run(script, workspace=str(folder))
        assert (answer.get("status"), answer.get("out")) == (status, out), answer
        assert answer["level"] == "FULL"
        if kind == "tmpfs":
            bench.run("mkdir -p in && echo s > in/.env", workspace=str(folder))
            assert bench.run("cat in/.env", workspace=str(folder), hidden=[".env"])["out"] == "", (
                "secrets are seen there"
            )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
def test_a_workspace_that_cannot_be_entered(bench: Bench) -> None:
    """Root has no privileges inside, so it is anybody in another's closed folder."""
    folder = bench.base / "closed"
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, 12345)
    answer = bench.run("echo ran", workspace=str(folder))
    told = answer.get("unavailable") or answer["problem"]
    assert answer.get("out", "") == ""
    assert "permission denied" in told[1], answer
    assert "mode" in told[2] or "unavailable" in answer, answer


@pytest.mark.parametrize("place", ["/tmp", "/dev/shm"])
def test_a_workspace_below_a_place_that_the_sandbox_has_of_its_own(bench: Bench, place: str) -> None:
    folder = Path(place) / f"ringfence-odd-{os.getpid()}-{bench.user}"
    folder.mkdir()
    try:
        if bench.user == "nobody":
            os.chown(folder, NOBODY, NOBODY)
        answer = bench.run("echo x > a && cat a && ls -A ..", workspace=str(folder))
        if "unavailable" in answer:
            assert place in answer["unavailable"][0] + answer["unavailable"][1], answer
        else:
            assert answer["out"].splitlines()[0] == "x", answer
            assert (folder / "a").read_text() == "x\n"
    finally:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="file systems can be mounted by root alone")
def test_a_full_cache_costs_time_and_nothing_else(bench: Bench) -> None:
    with mounted(bench.base / "cache", "-t", "tmpfs", "-o", "size=16k,mode=0777", "none") as folder:
        (folder / "fill").write_bytes(b"x" * 12_000)
        bench.own(folder)
        answer = bench.run("echo on", limits={"memory": 5 << 30})
        assert answer["out"] == "on\n"
