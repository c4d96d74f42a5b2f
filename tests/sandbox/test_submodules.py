"""Tests of submodules in the sandbox: adding, updating and committing work once the settings of the repository are open."""

import subprocess
from collections.abc import Iterator

import pytest

from tests.support.sandbox_bench import NOBODY, USERS, Bench, make

WHO = {
    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_COMMITTER_NAME": "c",
    "GIT_COMMITTER_EMAIL": "c@example.org", "GIT_CONFIG_NOSYSTEM": "1", "PATH": "/usr/local/bin:/usr/bin:/bin",
}  # fmt: skip
LOCKED = [".git/hooks", ".git/config", ".gitmodules", ".git/modules/*/config", ".git/modules/*/hooks"]
WORK = """set -e
git -c protocol.file.allow=always submodule add -q ./source sm
git commit -qm added
git submodule -q deinit -f sm; rm -rf .git/modules/sm
git -c protocol.file.allow=always submodule update -q --init
cd sm; echo more > more; git add more; git commit -qm inner; cd ..
git stash list; git add sm; git commit -qm outer
git submodule foreach -q 'git log --format=%s'; git config user.name someone; git config user.name
"""


@pytest.fixture(params=[(user, tier) for user in USERS for tier in ("T1", "T2")], ids="-".join)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    user, tier = request.param
    yield from make(user, tier=tier)


@pytest.mark.threat("T140")
def test_submodules_work_once_the_settings_are_open(bench: Bench) -> None:
    setup = "git init -q -b main . && git commit -q --allow-empty -m zero && git init -q -b main source"
    setup += " && git -C source commit -q --allow-empty -m first && printf source > .git/info/exclude"
    number = NOBODY if bench.user == "nobody" else None
    subprocess.run(
        ["sh", "-c", setup], cwd=bench.workspace, env=WHO | {"HOME": "/nonexistent"}, user=number, group=number,
        check=True,
    )  # fmt: skip
    answer = bench.run(
        WORK, write=[f"{bench.workspace}/.git/config"], locked=LOCKED,
        env=WHO | {"HOME": str(bench.home), "TMPDIR": "/tmp"},
    )  # fmt: skip
    assert (answer["status"], answer["out"]) == (0, "inner\nfirst\nsomeone\n"), answer["err"]
    assert answer["violations"] == []
    assert (bench.workspace / "sm/more").exists()
    locked = bench.run("git config user.name other", locked=LOCKED, env=WHO | {"HOME": str(bench.home)})
    assert locked["status"] != 0, "without the right the settings stay read-only"
