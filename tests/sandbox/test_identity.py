"""Tests of a user without an entry in the user database: it has a name and a home in the sandbox."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.linux import etc_files
from tests.support import sandbox_bench
from tests.support.sandbox_bench import Bench, make

STRANGER = 12345


@pytest.fixture(scope="module")
def stranger() -> Iterator[Bench]:
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sandbox_bench, "NOBODY", STRANGER)
        yield from make("nobody")


def test_a_user_without_an_entry_has_one_inside(stranger: Bench) -> None:
    rows = [
        ("whoami; id -un; id -gn", f"user{STRANGER}\nuser{STRANGER}\ngroup{STRANGER}\n", "names"),
        ("echo ~", f"{stranger.home}\n", "the home"),
        ("env -u HOME bash -c 'cd ~ && pwd'", f"{stranger.home}\n", "without the variable"),
        ("/usr/bin/python3 -c 'import getpass; print(getpass.getuser())'", f"user{STRANGER}\n", "Python's"),
        (
            "git init -q r && git -C r -c user.email=a@b commit -q --allow-empty -m m && git -C r log --format=%an",
            f"user{STRANGER}\n",
            "Git's",
        ),
        ("grep -c ^root: /etc/passwd", "1\n", "the others are there as well"),
    ]
    for script, out, why in rows:
        answer = stranger.run(script)
        assert answer["out"] == out, (why, answer)


def test_who_has_an_entry_gets_no_other(tmp_path: Path) -> None:
    assert set(etc_files.files(tmp_path, "/home/x")) <= {"/etc/passwd", "/etc/group"}
    known = f":{os.geteuid()}:" in Path("/etc/passwd").read_text()
    assert ("/etc/passwd" in etc_files.files(tmp_path, "/home/x")) is not known
    assert etc_files.files(None, "/home/x") == {}
