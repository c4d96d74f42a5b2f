"""Tests of machines that lack a mechanism: the lack is reported, the next best mechanism is used, and nothing runs
half confined.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.agent_program import AGENT
from tests.support.sandbox_bench import USERS, make

# A filter around everything that follows: this call gives this error (with `BIT`, only where its first word has it).
REFUSING = """
import errno, os, sys
import pyseccomp
_, call, error, bit, *argv = sys.argv
told = pyseccomp.SyscallFilter(defaction=pyseccomp.ALLOW)
words = (pyseccomp.Arg(0, pyseccomp.MASKED_EQ, int(bit, 16), int(bit, 16)),) if bit != "-" else ()
number = int(call) if call.isdigit() else call
told.add_rule(pyseccomp.ERRNO(getattr(errno, error)), number, *words)
told.load()
os.execvp(argv[0], argv)
"""
PYTHON = "/usr/bin/python3"
NO_LANDLOCK = (PYTHON, "-c", REFUSING, "444", "EOPNOTSUPP", "-")
OLD_KERNEL = (PYTHON, "-c", REFUSING, "444", "ENOSYS", "-")
# Our helper makes its namespaces by unshare(2), bubblewrap by clone(2).
NO_UNSHARE = (PYTHON, "-c", REFUSING, "unshare", "EPERM", "20000000")
MOUNTED = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")
NO_BWRAP = (*MOUNTED, 'mount --bind /dev/null "$(readlink -f /usr/bin/bwrap)" && exec "$@"', "sh")
NO_LIBSECCOMP = (
    *MOUNTED,
    'for f in /usr/lib/*/libseccomp.so.2.*; do mount --bind /dev/null "$f" || exit 9; done; exec "$@"',
    "sh",
)
NO_SHM = (
    *MOUNTED,
    "d=$(mktemp -d) && mount -t tmpfs none $d && for n in null zero full random urandom tty ptmx; do touch $d/$n;"
    ' mount --bind /dev/$n $d/$n; done && mount --rbind $d /dev && rmdir $d 2>/dev/null; exec "$@"',
    "sh",
)
# Mounts as container runtimes make them: /proc/sys is read-only and parts of /proc are covered, so that no new /proc
# may be mounted.
SEALED = (
    *MOUNTED,
    "mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys && mount -t tmpfs -o ro none /proc/bus"
    # One namespace further in the covers cannot be taken off, and the kernel knows it (mount_namespaces(7)).
    ' && exec unshare --user --map-root-user --mount "$@"',
    "sh",
)

# fmt: off
LACKING: list[tuple[tuple[str, ...], str, str, str]] = [
    # wrap, tier, a part of the problem (empty: it works all the same), why
    (NO_LANDLOCK,   "T1", "Landlock",   "switched off at boot"),
    (NO_LANDLOCK,   "T2", "Landlock",   "switched off at boot"),
    (NO_LANDLOCK,   "T3", "Landlock",   "switched off at boot"),
    (OLD_KERNEL,    "T1", "Landlock",   "a kernel before 5.13"),
    (NO_LIBSECCOMP, "T1", "libseccomp", "the library does not load"),
    (NO_LIBSECCOMP, "T3", "libseccomp", "the library does not load"),
    (NO_UNSHARE,    "T1", "namespaces", "our namespaces are refused"),
    (NO_UNSHARE,    "T2", "",           "bubblewrap's are not"),
    (NO_BWRAP,      "T2", "bubblewrap", "it is not there"),
    (NO_SHM,        "T1", "",           "a private one is made"),
    (NO_SHM,        "T2", "",           "a private one is made"),
    (SEALED,        "T1", "proc",       "a fresh /proc would show what is covered"),
    (SEALED,        "T2", "proc",       "a fresh /proc would show what is covered"),
]
# fmt: on


@pytest.mark.threat("T19")
@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize(("wrap", "tier", "problem", "why"), LACKING, ids=[f"{r[1]}-{r[2]}-{r[3]}" for r in LACKING])
def test_what_is_lacking_is_said_and_nothing_runs(
    user: str, wrap: tuple[str, ...], tier: str, problem: str, why: str
) -> None:
    for bench in make(user, wrap, tier=tier):
        answer = bench.run("echo ran > ran.txt; cat ran.txt")
        if problem:
            assert problem in " ".join(answer["unavailable"]), (why, answer)
            assert not (bench.workspace / "ran.txt").exists()
        else:
            assert (answer["level"], answer["out"]) == ("FULL", "ran\n"), (why, answer)


def agent(wrap: tuple[str, ...], tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    work, home = tmp_path / "work", tmp_path / "home"
    for folder in (work, home):
        folder.mkdir(exist_ok=True)
    import pyseccomp

    environ = {"PATH": "/usr/bin:/bin", "HOME": str(home), "PYTHONPATH": str(Path(pyseccomp.__file__).parent)}
    argv = [*wrap, "env", "-u", "PYTHONPATH", AGENT, *words]
    return subprocess.run(argv, env=environ, cwd=work, capture_output=True, text=True, timeout=120)


RUN = ("exec", "--mode", "trust-project", "--unattended", "--json")


@pytest.mark.threat("T61")
def test_bubblewrap_is_taken_where_our_namespaces_are_refused(tmp_path: Path) -> None:
    done = agent(NO_UNSHARE, tmp_path, *RUN, "--require", "full", "echo ran > ran.txt")
    assert done.returncode == 0, done.stderr
    assert '"backend": "T2"' in done.stdout or '"T2"' in done.stdout, done.stdout
    assert (tmp_path / "work" / "ran.txt").read_text() == "ran\n"


@pytest.mark.threat("T19")
@pytest.mark.parametrize(
    ("wrap", "words", "named"),
    [
        (NO_LANDLOCK, (), "Landlock"),
        (NO_LANDLOCK, ("--accept-partial",), "Landlock"),
        (NO_LIBSECCOMP, (), "libseccomp"),
        (SEALED, ("--require", "full"), "proc"),
    ],
)
def test_the_command_line_ends_with_four(
    tmp_path: Path, wrap: tuple[str, ...], words: tuple[str, ...], named: str
) -> None:
    done = agent(wrap, tmp_path, *RUN[:-1], *words, "echo ran > ran.txt")
    assert (done.returncode, done.stdout) == (4, ""), done.stderr
    assert named in done.stderr
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.thorough
def test_full_can_be_required_where_the_configuration_accepts_less(tmp_path: Path) -> None:
    (tmp_path / "home" / ".config" / "ringfence").mkdir(parents=True)
    (tmp_path / "home" / ".config" / "ringfence" / "config.toml").write_text('[sandbox]\nminimum = "partial"\n')
    partial = agent(SEALED, tmp_path, *RUN[:-1], "echo ran")
    full = agent(SEALED, tmp_path, *RUN[:-1], "--require", "full", "echo ran")
    assert (partial.returncode, partial.stdout) == (0, "ran\n"), partial.stderr
    assert (full.returncode, full.stdout) == (4, ""), full.stderr
    assert agent(SEALED, tmp_path, "doctor").returncode == 0
    assert agent(SEALED, tmp_path, "doctor", "--require", "full").returncode == 4


# fmt: off
SAID = [
    # wrap, finding, a part of its line, a part of what to do
    (NO_LANDLOCK,   "landlock",   "switched off at boot", "lsm=landlock"),
    (OLD_KERNEL,    "landlock",   "does not support it",     "5.13"),
    (NO_LIBSECCOMP, "libseccomp", "",                     "libseccomp"),
    (NO_BWRAP,      "bwrap",      "not found",            "bubblewrap"),
    (SEALED,        "inside",     "contain",              ""),
    (NO_SHM,        "/dev/shm",   "none",                 ""),
]
# fmt: on


@pytest.mark.parametrize(("wrap", "name", "detail", "fix"), SAID, ids=[row[1] + row[2] for row in SAID])
def test_doctor_names_it_and_says_what_to_do(
    tmp_path: Path, wrap: tuple[str, ...], name: str, detail: str, fix: str
) -> None:
    done = agent(wrap, tmp_path, "doctor", "--json")
    findings = {each["name"]: each for each in json.loads(done.stdout)["findings"]}
    assert detail in findings[name]["detail"], findings[name]
    assert fix in findings[name]["fix"]
    assert done.returncode == json.loads(done.stdout)["exit"]
    assert os.path.exists(AGENT)
