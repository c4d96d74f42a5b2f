"""Tests of a linked worktree as workspace: Git works as without a sandbox, and cannot change what other worktrees obey."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.sandbox_bench import NOBODY, SYSTEM, USERS, Bench, make

WHO = {
    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z",
    "GIT_COMMITTER_NAME": "c", "GIT_COMMITTER_EMAIL": "c@example.org", "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
    "GIT_CONFIG_NOSYSTEM": "1", "LANG": "C.UTF-8", "PATH": "/usr/local/bin:/usr/bin:/bin",
}  # fmt: skip
# As `child_environment` sets them for such a workspace.
KEEP = ("gc.reflogExpire", "gc.reflogExpireUnreachable", "gc.worktreePruneExpire")
SETTINGS = {"GIT_CONFIG_COUNT": str(len(KEEP))}
for number, key in enumerate(KEEP):
    SETTINGS |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": "never"}

# Every kind of everyday work. The dates are fixed, so the hashes are those of Git without a sandbox.
WORK = """set -e
echo one >> a; git commit -qam one; git log --format='%h %s'
echo two >> a; git stash -q; git stash list; git stash pop -q; git commit -qam two
git branch side HEAD~1; git tag light; git tag -a -m note heavy
git checkout -q side; echo s > s; git add s; git commit -qm s
git checkout -q wt; git merge -q --no-edit side; git log --format='%h %s'
git checkout -q side; echo t > t; git add t; git commit -qm t; git rebase -q wt; git log --format='%h %s'
git cherry-pick heavy~1 >/dev/null 2>&1 || git cherry-pick --skip
git bisect start HEAD HEAD~3 >/dev/null; git bisect run sh -c '! test -e t' | grep 'first bad'; git bisect reset 2>/dev/null
git checkout -q wt; git branch -q -D side; git gc -q; git pack-refs --all; git tag -d light
git worktree add -q inside 2>&1; (cd inside; echo i > i; git add i; git commit -qm i); git worktree remove inside
git fsck 2>&1; git reflog --format='%h %gs'; git for-each-ref
"""


@pytest.fixture(scope="module", params=[(user, tier) for user in USERS for tier in ("T1", "T2")], ids="-".join)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    user, tier = request.param
    yield from make(user, tier=tier)


def outside(bench: Bench, folder: Path, script: str, **more: str) -> str:
    """Return the output of a script without a sandbox, as the user of the bench."""
    other: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if bench.user == "nobody" else {}
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=WHO | {"HOME": "/nonexistent"} | more, capture_output=True, text=True,
        check=True, **other,
    )  # fmt: skip
    return done.stdout


def repositories(bench: Bench, name: str) -> tuple[Path, Path]:
    """Make a repository with the worktrees `wt` and `other`, and return the paths of its Git folder and of `wt`."""
    top = bench.base / name
    top.mkdir()
    bench.own(top)
    outside(
        bench, top,
        "git init -q -b main main; cd main; echo 0 > a; git add a; git commit -qm zero;"
        " git worktree add -q ../wt; git worktree add -q ../other",
    )  # fmt: skip
    return top / "main/.git", top / "wt"


def run(bench: Bench, shared: Path, workspace: Path, script: str) -> dict[str, Any]:
    return bench.run(
        script,
        workspace=str(workspace),
        repository=[str(shared), f"{shared}/worktrees/wt"],
        system=[*SYSTEM, str(shared)],
        locked=[".git/hooks", ".git/config", ".git/config.worktree", ".git/info/attributes", ".git/commondir"],
        env=WHO | SETTINGS | {"HOME": str(bench.home), "TMPDIR": "/tmp"},
    )


def test_git_works_as_without_a_sandbox(bench: Bench) -> None:
    _, plain = repositories(bench, "plain")
    shared, workspace = repositories(bench, "confined")
    expected = outside(bench, plain, WORK, **SETTINGS)
    answer = run(bench, shared, workspace, WORK)
    assert (answer["status"], answer["out"]) == (0, expected), answer["err"]
    assert outside(bench, workspace, "git log --format=%h --all") == outside(bench, plain, "git log --format=%h --all")
    assert outside(bench, workspace.parent / "other", "git status --short; git fsck --no-dangling 2>&1") == ""


def test_a_worktree_beside_the_workspace_can_be_made_where_its_folder_is_granted(bench: Bench) -> None:
    shared, _ = repositories(bench, "beside")
    script = "git worktree add -q ../new && cd ../new && echo n > n && git add n && git commit -qm new"
    answer = bench.run(
        script, workspace=str(shared.parent), write=[str(shared.parent.parent)], locked=[".git/hooks", ".git/config"],
        env=WHO | {"HOME": str(bench.home), "TMPDIR": "/tmp"},
    )  # fmt: skip
    assert (answer["status"], answer["violations"]) == (0, []), answer["err"]
    assert outside(bench, shared.parent.parent / "new", "git log --format=%s -1; git status --short") == "new\n"


def state(shared: Path) -> dict[str, bytes]:
    """Return the content of all files that only the user and other worktrees may change."""
    names = ("hooks", "config", "HEAD", "index", "worktrees/other", "worktrees/wt/gitdir", "worktrees/wt/commondir")
    files: list[Path] = []
    for name in names:
        files += [file for file in (shared / name).rglob("*") if file.is_file()] if (shared / name).is_dir() else []
        files += [shared / name] if (shared / name).is_file() else []
    return {str(file.relative_to(shared)): file.read_bytes() for file in files}


ATTACKS = """cd ../main/.git
for file in hooks/pre-commit hooks/post-checkout config HEAD index worktrees/other/HEAD worktrees/other/config.worktree \
    worktrees/other/commondir worktrees/wt/gitdir worktrees/wt/commondir; do
    echo evil >> $file; rm -f $file; cp a $file; ln -sf /etc/passwd $file; mv -f $file moved
done 2>/dev/null
rm -rf hooks worktrees/other 2>/dev/null
for folder in hooks worktrees worktrees/other worktrees/wt ../.git; do
    mv $folder $folder.old && mkdir $folder
done 2>/dev/null
git config core.fsmonitor evil; git -C . worktree prune --expire=now 2>/dev/null
mkdir -p refs/heads && touch reached
"""


@pytest.mark.threat("T138")
def test_what_other_worktrees_obey_is_read_only(bench: Bench) -> None:
    shared, workspace = repositories(bench, "attacked")
    before = state(shared)
    assert {"config", "HEAD", "worktrees/other/HEAD", "worktrees/wt/gitdir"} <= {*before}
    run(bench, shared, workspace, ATTACKS)
    assert (shared / "reached").exists(), "the script did not reach its end"
    assert state(shared) == before
    assert sorted(os.listdir(shared / "worktrees")) == ["other", "wt"]


@pytest.mark.threat("T138")
@pytest.mark.parametrize("file", ["config.worktree", "info/attributes"])
def test_settings_that_appear_in_the_repository_are_set_aside(bench: Bench, file: str) -> None:
    shared, workspace = repositories(bench, f"appeared-{file.replace('/', '-')}")
    answer = run(bench, shared, workspace, f"printf '[core]\\nfsmonitor = evil\\n' > ../main/.git/{file}; sleep 0.1")
    assert [path for _, path, *_ in answer["violations"]] == [f"{shared}/{file}"]
    assert not (shared / file).exists()
