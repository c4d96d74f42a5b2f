"""Tests of undo on real files: the previous contents are restored, and changes of other programs are kept."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.sandbox_bench import USERS
from tests.support.undo_workspace import Picture, UndoWorkspace, as_nobody

GIT = """git init -q -b main .; git config user.name a; git config user.email a@example.org
echo one > a; mkdir src; echo code > src/m.py; git add -A; git commit -qm one
"""
FILES = "echo one > a; mkdir -p src/deep empty; echo code > src/m.py; echo more > src/deep/n.py; ln -s a link; touch z"

# what there was, what an action did, why
# fmt: off
ACTIONS: list[tuple[str, str, str]] = [
    (FILES, "echo two > a",                                             "a file is changed"),
    (FILES, "echo two >> a; echo 3 > new",                              "and one is made"),
    (FILES, "rm -rf src",                                               "a folder with all that is in it"),
    (FILES, "rm -rf ./*",                                               "everything"),
    (FILES, "rmdir empty",                                              "an empty folder"),
    (FILES, "mkdir -p x/y/z",                                           "empty folders are made"),
    (FILES, "mv src lib",                                               "a folder gets another name"),
    (FILES, "mv a b; mv z a",                                           "two names are shifted"),
    (FILES, "mv a t; mv z a; mv t z",                                   "two files are swapped"),
    (FILES, "sed -i s/code/data/ src/m.py",                             "in place, which is a new file"),
    (FILES, ": > a",                                                    "emptied"),
    (FILES, "chmod 600 a; chmod 755 src/m.py; chmod 700 src",           "modes alone"),
    (FILES, "rm a; mkdir a; echo x > a/b",                              "a file becomes a folder"),
    (FILES, "rm -rf src; echo x > src",                                 "a folder becomes a file"),
    (FILES, "rm -rf src; ln -s empty src",                              "a folder becomes a link"),
    (FILES, "rm link; echo x > link",                                   "a link becomes a file"),
    (FILES, "rm link; mkdir link",                                      "a link becomes a folder"),
    (FILES, "ln -sfn src link; ln -s nowhere loose",                    "links lead elsewhere, or nowhere"),
    (FILES, "ln a other; echo both > a",                                "another name of the same file"),
    (f"{FILES}; ln a twin", "echo both > a",                            "one file with two names is changed"),
    (FILES, "chmod 555 src; rm a",                                      "a folder is write-protected"),
    (f"{FILES}; chmod 555 src", "chmod 755 src; rm src/m.py; chmod 555 src", "in a folder that was"),
    (f"{FILES}; chmod 444 a", "rm -f a",                                "a write-protected file"),
    (FILES, "mkdir A; mv a A/a",                                        "upper and lower case are two names"),
    (FILES, "mv a 'a b'; touch $'new\\nline' $'\\377\\376' -- -n",      "names of any bytes"),
    (f"{FILES}; touch $'\\377\\376'; echo x > $'\\377\\376'", "rm $'\\377\\376'", "a name that is no UTF-8"),
    (FILES, "head -c 3000000 /dev/urandom > big; truncate -s 2000000 sparse", "large ones"),
    (f"{FILES}; head -c 3000000 /dev/zero > big", "echo x >> big",      "a large one is changed"),
    (f"{FILES}; head -c 3000000 /dev/zero > big; cp big big2", "rm big big2", "two of one content"),
    (FILES, "d=.; for i in $(seq 60); do d=$d/$(printf 'n%.0s' $(seq 60)); mkdir $d; done; echo x > $d/f", "a path of 3,700 bytes"),
    (FILES, "for i in $(seq 200); do mkdir d; cd d; done; echo x > f",  "200 folders deep"),
    (GIT,   "echo two > a; git commit -qam two",                        "a commit: refs, index and logs"),
    (GIT,   "git rm -q a; git commit -qm gone; git tag v1",             "a commit that removes, and a tag"),
    (f"{GIT} echo two > a; git commit -qam two", "git reset -q --hard HEAD~1", "commits are dropped"),
    (f"{GIT} echo dirty > a", "git reset -q --hard; git clean -qfd",    "work that was never committed"),
    (f"{GIT} echo dirty > a; echo new > b", "git stash -qu",            "work that was stashed"),
    (GIT,   "git checkout -qb side; echo x > a; git commit -qam side; git checkout -q main; git merge -q side", "a branch, a merge"),
    (GIT,   "git pack-refs --all; git branch -m main trunk",            "packed refs, a branch renamed"),
    (GIT,   "rm -rf .git/refs/heads/main .git/index",                   "parts of the repository"),
]
# fmt: on


@pytest.fixture
def base() -> Iterator[Path]:
    """Short, and open to every user: paths below are long enough."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="u"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
    os.system(f"rm -rf {folder}")  # paths longer than Python's rmtree can name


def there_and_back(base: Path, before: str, action: str) -> None:
    world = UndoWorkspace(base)
    world.sh(before)
    first = world.picture()
    assert world.act(action) is not None
    second = world.picture()
    assert untimed(first) != untimed(second), "the action does something"
    taken = world.undo()
    assert [item for item in taken.items if item.problem] == []
    assert taken.whole
    alike(world.picture(), first, second)
    again = world.undo(redo=True)
    assert again.whole, again
    alike(world.picture(), second, first)
    assert world.undo().whole
    alike(world.picture(), first, second)
    world.keeper.close()


def alike(now: Picture, wanted: Picture, other: Picture) -> None:
    """Everything is as wanted; files with another content meanwhile have their time again, too."""
    assert untimed(now) == untimed(wanted)
    meanwhile = untimed(other)
    assert [
        path for path, entry in untimed(wanted).items() if meanwhile.get(path) != entry and now[path] != wanted[path]
    ] == []


def untimed(found: Picture) -> Picture:
    """Without times. Git's objects stay: nothing names them any more."""
    return {path: entry[:3] for path, entry in found.items() if not path.startswith(b"/.git/objects/")}


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize(("before", "action", "why"), ACTIONS, ids=[row[2] for row in ACTIONS])
def test_what_an_action_did_is_taken_back_and_brought_again(
    base: Path, before: str, action: str, why: str, user: str
) -> None:
    if user == "nobody":
        as_nobody(lambda: there_and_back(base, before, action))
    else:
        there_and_back(base, before, action)


def test_a_commit_in_a_linked_worktree_is_taken_back(base: Path) -> None:
    world = UndoWorkspace(base)
    world.sh(f"mkdir ../m; cd ../m; {GIT} git worktree add -q ../w")
    world.sh("git rev-parse HEAD > ../before")
    assert world.act("echo two > a; git commit -qam two") is not None
    world.sh("test $(git rev-parse HEAD) != $(cat ../before)")
    assert world.undo().whole
    world.sh('test $(git rev-parse HEAD) = $(cat ../before) && test -z "$(git status --porcelain)"')
    world.keeper.close()
