"""Tests of the escape attempts: the table is sound, the page lists it, and the best sandbox of this machine contains
them.

All backends, all users, and the unconfined controls: `make tables`, which writes the results into docs/security/escapes.md.
"""

import json
import os
import subprocess
import sys
from dataclasses import asdict
from typing import Any

import pytest

from tests.escapes import run
from tests.support.places import ROOT, TESTS

RUN = TESTS / "escapes" / "run.py"
PAGE = (ROOT / "docs/security/escapes.md").read_text("utf-8")
KINDS = {
    "read", "metadata", "write", "network", "services", "kernel", "privileges", "settings", "terminal", "processes",
    "leftovers", "limits", "auto-run", "persistence",
}  # fmt: skip


PLACES = {"home": "h", "outside": "o", "secret": "s", "target": "t", "key": "k", "nap": "9"}
ATTEMPTS: list[dict[str, Any]] = [{**asdict(each), "source": each.source(PLACES)} for each in run.ATTEMPTS]


def test_the_table_is_sound() -> None:
    assert len(ATTEMPTS) >= 100
    assert len({each["name"] for each in ATTEMPTS}) == len(ATTEMPTS)
    assert {each["kind"] for each in ATTEMPTS} == KINDS
    assert [each["name"] for each in ATTEMPTS if not each["why"]] == []


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda each: each["name"])
def test_a_program_can_run_and_proves_nothing_by_its_own_text(attempt: dict[str, Any]) -> None:
    source = attempt["source"]
    if attempt["language"] == "py":
        compile(source, attempt["name"], "exec")
    elif attempt["language"] == "sh":
        subprocess.run(["/bin/sh", "-n", "-c", source], check=True)
    assert "PLAN" + "TED" not in source, "the mark would be found in the program itself"
    assert source.count("STARTED") == 1


def test_the_document_lists_every_attempt() -> None:
    """The rows, not the results: those are `make tables`'s to write."""
    told = PAGE.partition("<!-- escapes: begin -->")[2].partition("<!-- escapes: end -->")[0]
    rows = [line.split("|")[1:4] for line in told.splitlines() if line.startswith("| `")]
    assert [[part.strip() for part in row] for row in rows] == [
        [f"`{each['name']}`", each["kind"], each["why"]] for each in ATTEMPTS
    ], "run `make tables`"


@pytest.mark.skipif(sys.platform != "linux", reason="the attempts are about Linux")
def test_t1_contains_the_attempts_at_the_terminal() -> None:
    """The short run has these, and the long run all kinds."""
    user = "root" if os.geteuid() == 0 else "self"
    words = [sys.executable, RUN, "--backend", "T1", "--user", user, "--no-control", "--json", "--kind", "terminal"]
    answers = json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=False).stdout)
    assert answers
    assert [each for each in answers if each["verdict"] not in ("CONTAINED", "NA")] == []


SLOW = ("limits", "leftovers")  # test_sandbox has those, and waiting is all that they do
PARTS = ("1/4", "2/4", "3/4", "4/4")  # each has a process of its own with the modules of the product


@pytest.mark.thorough
@pytest.mark.threat("T03")
@pytest.mark.threat("T05")
@pytest.mark.threat("T06")
@pytest.mark.threat("T07")
@pytest.mark.threat("T10")
@pytest.mark.threat("T16")
@pytest.mark.skipif(sys.platform != "linux", reason="the attempts are about Linux")
@pytest.mark.slow("a sandbox and a command for each of sixty attempts")
@pytest.mark.parametrize("part", PARTS)
def test_t1_contains_them(part: str) -> None:
    """Through the product itself. Without the controls: what an attempt proves is told when the tables are made.

    Each command is forked from a process that has the environment of a careless launcher. The attempts at the terminal
    and those of `make tables` start it by execve(2).
    """
    user = "root" if os.geteuid() == 0 else "self"
    kinds = [part for kind in sorted(KINDS - {*SLOW}) for part in ("--kind", kind)]
    words = [sys.executable, RUN, "--backend", "T1", "--user", user, "--no-control", "--json", "--fork", "--part", part]
    done = subprocess.run([*words, *kinds], capture_output=True, check=False)
    assert done.stdout, done.stderr.decode("utf-8", "replace")[-2000:]
    answers = json.loads(done.stdout)
    number, _, count = part.partition("/")
    names = [each["name"] for each in ATTEMPTS if each["kind"] not in SLOW][int(number) - 1 :: int(count)]
    assert [each["name"] for each in answers] == names
    assert [each for each in answers if each["verdict"] not in ("CONTAINED", "NA")] == []


@pytest.mark.thorough
@pytest.mark.slow("a resident process and forty commands")
@pytest.mark.threat("T274")
@pytest.mark.skipif(sys.platform != "linux", reason="the attempts are about Linux")
def test_the_resident_process_contains_them_too() -> None:
    """Every sixth attempt here; `python tests/escapes/run.py --warm` tries all of them."""
    user = "root" if os.geteuid() == 0 else "self"
    kinds = [part for kind in sorted(KINDS - {*SLOW}) for part in ("--kind", kind)]
    words = [
        sys.executable,
        RUN,
        "--backend",
        "T1",
        "--user",
        user,
        "--no-control",
        "--json",
        "--warm",
        "--part",
        "1/6",
    ]
    done = subprocess.run([*words, *kinds], capture_output=True, check=False)
    answers = json.loads(done.stdout)
    assert [each for each in answers if each["verdict"] not in ("CONTAINED", "NA")] == []
    count = int(done.stderr.split(b" commands were warm")[0].split()[-1])
    assert count > len(answers) * 0.8, "attempts with a descriptor of their caller run cold"
