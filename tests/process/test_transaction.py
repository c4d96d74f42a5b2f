"""Tests of transactions: the changes in a real layer are judged, applied as a whole, and can be undone."""

import contextlib
import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from policy.model.action import RunScript
from runner.changes.transaction import apply
from runner.changes.transaction.apply import ApplyError
from runner.changes.transaction.judge import HeldReason
from runner.changes.transaction.place import MadeAhead, folder_of
from runner.changes.transaction.transaction import Transaction, complete_abandoned
from runner.changes.undo.plan import Obstacle
from sandbox.linux import launch
from sandbox.linux.helper_layers import finish_removals, several_layers
from sandbox.workspace.layer import read_layer
from tests.process.test_undo import ACTIONS
from tests.support.file_clock import next_tick
from tests.support.layers import TransactionWorkspace, overlays_work
from tests.support.undo_workspace import WORK, Picture, UndoWorkspace, as_nobody, picture

pytestmark = pytest.mark.skipif(not overlays_work(), reason="this user cannot mount an overlay")
FILES = (
    "echo one > a; mkdir -p src/deep old; echo code > src/m.py; echo more > src/deep/n.py; echo 1 > old/x; ln -s a l"
)
# Each kind of step: a new file and folder, a changed file, a removed file and folder, a replaced folder, a mode.
ALL_STEPS = (
    "echo 2 > a; echo n > new; mkdir -p d/e; echo f > d/e/f; rm src/m.py; rm -r old; mkdir old; echo y > old/y; "
    "chmod 700 src; ln -sfn src l; rm -r src/deep; echo file > src/deep"
)


@pytest.fixture
def base() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="t"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
    os.system(f"rm -rf {folder}")  # paths longer than Python's rmtree can name


def refusing(read: Callable[..., str], refused: str) -> Callable[..., str]:
    """Return os.readlink for a user who may not read one link."""

    def readlink(path: "str | os.PathLike[str]", **more: Any) -> str:
        if os.fspath(path) == refused:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return read(path, **more)

    return readlink


def without_times(picture: Picture) -> Picture:
    return {path: entry[:3] for path, entry in picture.items()}


def kept(picture: Picture) -> Picture:
    """Return what undo restores: everything but Git's objects."""
    return {path: entry for path, entry in without_times(picture).items() if b"/objects/" not in path + b"/"}


# ---- the same tree, undo and redo

# A second name of a file of the workspace keeps the old content (docs/guide/transactions.md), and `git branch -m` writes
# `.git/config`, which the sandbox makes read-only.
OTHERWISE = ("one file with two names is changed", "packed refs, a branch renamed")
ROWS = [row for row in ACTIONS if row[2] not in OTHERWISE]


def same_as_plain(base: Path, before: str, action: str) -> None:
    world, plain = TransactionWorkspace(base), UndoWorkspace(base / "plain")
    world.sh(before)
    first = world.picture()
    recorded = world.transact(action)
    assert not recorded.result.left
    second = world.picture()
    if "git " not in before and "urandom" not in action:  # commits have times
        plain.sh(f"{before}\n{action}")
        assert without_times(second) == without_times(plain.picture())
    assert world.traces() == []
    undone = world.undo()
    assert [item for item in undone.items if item.problem] == []
    assert kept(world.picture()) == kept(first)
    world.undo(redo=True)
    assert kept(world.picture()) == kept(second)


@pytest.mark.parametrize(("before", "action", "why"), ROWS, ids=[why for *_, why in ROWS])
def test_the_tree_is_the_same_and_undo_restores_it(base: Path, before: str, action: str, why: str) -> None:
    (base / "plain").mkdir()
    same_as_plain(base, before, action)


@pytest.mark.skipif(os.geteuid() != 0, reason="root becomes another user")
@pytest.mark.parametrize(
    "why", ["a folder is write-protected", "in a folder that was", "modes alone", "two names are shifted"]
)
def test_another_user_can_do_the_same(base: Path, why: str) -> None:
    before, action = next((row[0], row[1]) for row in ACTIONS if row[2] == why)

    def work() -> None:
        (base / "plain").mkdir()
        same_as_plain(base, before, action)

    as_nobody(work)


@pytest.mark.skipif(os.geteuid() != 0, reason="root becomes another user")
def test_write_protected_folders_are_moved_and_keep_their_modes(base: Path) -> None:
    def work() -> None:
        world = TransactionWorkspace(base)
        world.sh("mkdir -p a/b c; echo 1 > a/b/f; echo 2 > c/f; chmod 555 a/b a c")
        world.transact("chmod 755 a; mkdir n; echo x > n/f; chmod 555 n; rm a/b/f 2>/dev/null || true; chmod 755 c; rm c/f; "
                       "chmod 555 c a; mkdir m; chmod 500 m")  # fmt: skip
        modes = {path: entry[1] for path, entry in world.picture().items() if entry[0] == "folder"}
        assert modes == {b"/a": 0o555, b"/a/b": 0o555, b"/c": 0o555, b"/n": 0o555, b"/m": 0o500}
        assert world.undo().whole

    as_nobody(work)


@pytest.mark.skipif(os.geteuid() != 0, reason="root becomes another user")
def test_closed_folders_of_the_layer_are_applied(base: Path) -> None:
    def work() -> None:
        world = TransactionWorkspace(base)
        world.sh("mkdir p; echo 1 > p/f; chmod 555 p")
        world.transact(
            "mkdir -p m/k; echo 1 > m/k/f; chmod 0 m/k; chmod 300 m; chmod 755 p; echo 2 > p/g; chmod 555 p; chmod 500 ."
        )
        assert stat.S_IMODE((world.w / "m").stat().st_mode) == 0o300
        assert stat.S_IMODE((world.w / "m/k").stat().st_mode) == 0
        assert stat.S_IMODE((world.w / "p").stat().st_mode) == 0o555
        assert stat.S_IMODE(world.w.stat().st_mode) == 0o500
        assert (world.w / "p/g").read_text() == "2\n"
        assert world.traces() == []

    as_nobody(work)


def test_a_discarded_transaction_leaves_no_trace(base: Path) -> None:
    world = TransactionWorkspace(base)
    world.sh(FILES)
    before = world.picture()
    world.begin(ALL_STEPS).transaction.discard()
    assert world.picture() == before
    assert world.traces() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="root mounts another file system")
def test_another_file_system_gets_copies(base: Path) -> None:
    world = TransactionWorkspace(base)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(world.w)], check=True)
    try:
        world.sh(FILES)
        first = without_times(world.picture())
        world.transact(ALL_STEPS)
        assert (world.w / "d/e/f").read_text() == "f\n"
        assert sorted(os.listdir(world.w)) == ["a", "d", "l", "new", "old", "src"]
        assert world.undo().whole
        assert without_times(world.picture()) == first
    finally:
        subprocess.run(["umount", str(world.w)], check=True)


@pytest.mark.threat("T306")
def test_marks_of_the_overlay_do_not_stay(base: Path) -> None:
    world = TransactionWorkspace(base)
    world.sh(f"{FILES}; chmod 444 a")
    world.transact("mv a b; rm -r old; mkdir old; echo y > old/y; mv src/m.py src/k.py; mkdir new; mv src/k.py new/")
    for folder, folders, files in os.walk(world.w):
        for name in (*folders, *files):
            path = f"{folder}/{name}"
            if not os.path.islink(path):
                assert [each for each in os.listxattr(path) if "overlay" in each] == []
    assert stat.S_IMODE((world.w / "b").stat().st_mode) == 0o444


# ---- judgement

HOOKED = "git init -q -b main .; echo 1 > a; mkdir sub"
# before, script, the path that is held back (empty: none), the kind of reason
# fmt: off
JUDGED: list[tuple[str, str, str, HeldReason | None]] = [
    (FILES,  "mkdir .vscode; echo '{}' > .vscode/settings.json",            ".vscode",              HeldReason.AUTO_RUN),
    (FILES,  "mkdir -p p/.vscode; echo '{}' > p/.vscode/settings.json",     "",                     None),
    (FILES,  "git init -q p; mkdir p/.vscode; echo 1 > p/.vscode/tasks.json", "p/.vscode",          HeldReason.AUTO_RUN),
    (FILES,  "git init -q p",                                               "",                     None),
    (FILES,  "git init -q p; printf 'x' > p/.git/hooks/pre-commit",         "p/.git/hooks",         HeldReason.AUTO_RUN),
    (FILES,  "git init -q p; git -C p config core.fsmonitor evil",          "p/.git/config",        HeldReason.AUTO_RUN),
    (FILES,  "git init -q --bare p.git; git -C p.git config core.fsmonitor evil", "p.git/config",   HeldReason.AUTO_RUN),
    (FILES,  "mkdir -p p/objects p/refs; echo 'ref: refs/heads/m' > p/HEAD; printf '[core]\\nfsmonitor = evil\\n' > p/config", "p/config", HeldReason.AUTO_RUN),
    (f"{FILES}; mkdir -p p/objects p/refs; printf '[core]\\nfsmonitor = evil\\n' > p/config", "echo 'ref: refs/heads/m' > p/HEAD", "p/HEAD", HeldReason.AUTO_RUN),
    (FILES,  "mkdir evil; ln -s evil .vscode",                              ".vscode",              HeldReason.AUTO_RUN),
    (FILES,  "echo x > .envrc",                                             ".envrc",               HeldReason.AUTO_RUN),
    (HOOKED, "echo x > .git/hooks/post-checkout",                           ".git/hooks/post-checkout", HeldReason.AUTO_RUN),
    (HOOKED, "mv .git .old",                                                ".git",                 HeldReason.PROTECTED),
    (f"{HOOKED}; git add a; git -c user.name=a -c user.email=a@example.org commit -qm 1", "git worktree add -q wt", "", None),
    (FILES,  "ln -s /etc/passwd p",                                         "",                     None),
    (FILES,  "ln -s /root/.ssh/authorized_keys p",                          "p",                    HeldReason.LINK),
    (FILES,  "ln -s ../../outside p",                                       "p",                    HeldReason.LINK),
    (FILES,  "mkdir n; ln -s ../../outside n/p",                            "n/p",                  HeldReason.LINK),
    (FILES,  "ln -s old/../../outside p",                                   "p",                    HeldReason.LINK),
    (FILES,  "ln -s ../m.py src/p; ln -s /usr/bin/python3 python; ln -s /dev/null z", "",           None),
    (FILES,  "cp /bin/true p; chmod u+s p",                                 "p",                    HeldReason.SET_ID),
    (FILES,  "mkdir n; cp /bin/true n/p; chmod 2755 n/p; echo 1 > n/q",     "n/p",                  HeldReason.SET_ID),
    (FILES,  "mkfifo p",                                                    "p",                    HeldReason.SPECIAL),
    (f"{FILES}; echo TOKEN=0123456789 > .env", "cp .env p",                 "p",                    HeldReason.SECRET),
    (f"{FILES}; echo TOKEN=0123456789 > .env", "mkdir n; cp .env n/p",      "n/p",                  HeldReason.SECRET),
    (f"{FILES}; echo TOKEN=0123456789 > .env", "cp .env .envrc",            ".envrc",               HeldReason.SECRET),
    (f"{FILES}; echo TOKEN=0123456789 > .env", "echo TOKEN=1 > .env",       ".env",                 HeldReason.PROTECTED),
    (f"{FILES}; echo TOKEN=0123456789 > .env", "echo TOKEN=1234567890 > p", "",                     None),
    (f"{FILES}; mkdir -p p/.vscode; echo 1 > p/.vscode/tasks.json", "git init -q p", "p/.git",      HeldReason.AUTO_RUN),
    (f"{FILES}; mkdir p", "git init -q p",                                  "",                     None),
    (f"{HOOKED}; mkdir -p .git/modules evil; ln -s ../../evil .git/modules/x", "mkdir p; echo 'gitdir: ../.git/modules/x' > p/.git", "p/.git", HeldReason.AUTO_RUN),
    (FILES,  "python3 -m venv --without-pip .venv",                         "",                     None),
]
# fmt: on


@pytest.mark.threat("T303")
@pytest.mark.threat("T307")
@pytest.mark.threat("T308")
@pytest.mark.parametrize(("before", "script", "path", "reason"), JUDGED, ids=[row[1][:60] for row in JUDGED])
def test_held_back_and_the_rest_applied(
    base: Path, before: str, script: str, path: str, reason: HeldReason | None
) -> None:
    world = TransactionWorkspace(base)
    world.sh(before)
    there = os.path.lexists(world.w / path) if path else False
    old = (world.w / path).read_bytes() if there and (world.w / path).is_file() else b""
    left = world.transact(f"{script}; echo applied > rest").result.left
    assert [(each.path, each.held.reason) for each in left if each.held] == ([(path, reason)] if path else [])
    assert (world.w / "rest").read_text() == "applied\n"
    assert os.path.lexists(world.w / path) is there or not path
    if path and (world.w / path).is_file() and there:
        assert (world.w / path).read_bytes() == old
    if path and left[0].held and left[0].held.change.kind is not None:
        assert os.path.lexists(left[0].kept) is (reason is not HeldReason.SECRET), "no secret is kept"


@pytest.mark.threat("T307")
def test_only_the_survey_of_the_same_command_is_used_again(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret file that appeared before the command is found, also right after another command."""
    monkeypatch.setattr(launch, "_RECENT", 600.0)
    world = TransactionWorkspace(base)
    terms, other = world.permit(RunScript(WORK, str(world.w))).terms, world.permit(RunScript("ls", str(world.w))).terms
    assert terms != other
    since = time.monotonic()
    first = launch.survey(terms, "")
    world.sh("echo TOKEN=0123456789 > .env")
    assert launch.recent_survey(terms, None, since) is first
    secret = str(world.w / ".env")
    assert secret in launch.recent_survey(terms, None, time.monotonic()).masked
    launch.survey(other, "")
    assert launch.recent_survey(terms, None, since) is not first, "another command has other rights"
    monkeypatch.setattr(launch, "_RECENT", 0.0)
    before = launch._latest
    launch.recent_survey(terms, None, since)
    assert launch._latest is not before, "the last survey is too old"


@pytest.mark.threat("T309")
def test_too_many_deletions_are_held_back(base: Path) -> None:
    world = TransactionWorkspace(base)
    world.sh(f"{FILES}; mkdir -p many/node_modules; touch many/{{1..30}} many/node_modules/{{1..99}}")
    opened = world.begin("rm -r many; rm a; echo 1 > new")
    left = opened.apply(opened.judged(most_deleted=30)).result.left
    assert {(each.path, each.held and each.held.reason) for each in left} == {
        ("a", HeldReason.DELETIONS), ("many", HeldReason.DELETIONS)
    }  # fmt: skip
    assert (world.w / "many/30").exists()
    assert (world.w / "new").exists()
    opened = world.begin("rm -r many; echo 1 > many")
    left = opened.apply(opened.judged(most_deleted=29)).result.left
    assert [each.path for each in left] == ["many"], "a file that replaces a folder"
    opened = world.begin("rm -r many; mkdir many; touch many/{1..25}")
    assert not opened.apply(opened.judged(most_deleted=29)).result.left, "a folder that is made again"
    world.undo()
    opened = world.begin("rm -r many")
    assert not opened.apply(opened.judged(most_deleted=30)).result.left, "what tools can make again does not count"


def test_the_caller_can_hold_back_trusted_files(base: Path) -> None:
    world = TransactionWorkspace(base)
    world.sh(f"{FILES}; echo a > requirements.txt")
    opened = world.begin("echo evil >> requirements.txt; echo 1 > new")
    judged = opened.judged(later=lambda path: "a list of dependencies" if path.endswith("/requirements.txt") else "")
    (left,) = opened.apply(judged).result.left
    assert left.held is not None
    assert left.held.reason is HeldReason.TRUSTED_LATER
    assert Path(left.kept).read_text() == "a\nevil\n"
    assert (world.w / "requirements.txt").read_text() == "a\n"


# ---- changes of others

# what another program does while the command runs, the path in conflict, what is there afterwards
CONFLICTS: list[tuple[str, str, dict[str, str]]] = [
    ("echo mine > a",                 "a",        {"a": "mine\n", "new": "n\n"}),
    ("echo mine > new",               "new",      {"a": "2\n", "new": "mine\n"}),
    ("echo mine > src/m.py",          "src/m.py", {"src/m.py": "mine\n", "a": "2\n"}),
    ("echo mine > src/deep/n.py",     "src/deep", {"src/deep/n.py": "mine\n", "a": "2\n"}),
    ("echo mine > old/more",          "old",      {"old/more": "mine\n", "old/x": "1\n", "a": "2\n"}),
    ("mkdir d; echo mine > d/own",    "d",        {"d/own": "mine\n", "a": "2\n"}),
    ("ln -sfn /nowhere l",            "l",        {"a": "2\n"}),
]  # fmt: skip


@pytest.mark.threat("T304")
@pytest.mark.parametrize(("outside", "path", "there"), CONFLICTS, ids=[row[0] for row in CONFLICTS])
def test_changes_of_others_are_not_overwritten(base: Path, outside: str, path: str, there: dict[str, str]) -> None:
    world = TransactionWorkspace(base)
    world.sh(FILES)
    opened = world.begin(ALL_STEPS)
    world.sh(outside)
    recorded = opened.apply()
    assert [each.path for each in recorded.result.left] == [path]
    assert {name: (world.w / name).read_text() for name in there} == there
    kept_version = recorded.result.left[0].kept
    assert bool(kept_version) == (path != "src/m.py"), "the version of the command is kept, and a deletion has none"
    assert not kept_version or os.path.lexists(kept_version)
    assert path not in {change.path for change in recorded.changes}


@pytest.mark.threat("T304")
def test_a_folder_replaced_by_a_link_is_not_followed(base: Path) -> None:
    world = TransactionWorkspace(base)
    world.sh(FILES)
    opened = world.begin("echo 2 > src/m.py; echo n > src/new; echo 3 > a")
    (base / "victim").mkdir()
    world.sh(f"mv src moved; ln -s {base}/victim src")
    recorded = opened.apply()
    assert sorted(each.path for each in recorded.result.left) == ["src/m.py", "src/new"]
    assert os.listdir(base / "victim") == []
    assert (world.w / "a").read_text() == "3\n"


class Reached:
    """Does `act` at the step with this number, and counts the steps."""

    def __init__(self, at: int, act: Callable[[], None]) -> None:
        self.count, self._at, self._act = 0, at, act

    def __call__(self) -> None:
        self.count += 1
        if self.count == self._at:
            self._act()


def prepared(place: Path) -> Picture:
    """Make the files in a new workspace at `place`, and return its picture."""
    (place / "w").mkdir(parents=True)
    subprocess.run(["bash", "-ec", FILES], cwd=place / "w", check=True)
    return tree(place)


def tree(place: Path) -> Picture:
    return without_times(picture(os.fsencode(place / "w")))


def apply_all(place: Path, reached: Callable[[], None]) -> None:
    """Apply ALL_STEPS to the workspace at `place`, calling `reached` at each step."""
    run = apply.run
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(apply, "run", lambda folder, steps: run(folder, steps, reached))
        TransactionWorkspace(place).transact(ALL_STEPS)


def count_steps(base: Path) -> tuple[int, Picture]:
    """Return the number of steps, and the picture after them."""
    prepared(base / "count")
    counter = Reached(0, lambda: None)
    apply_all(base / "count", counter)
    return counter.count, tree(base / "count")


@pytest.mark.threat("T304")
def test_a_change_between_two_steps_is_not_overwritten(base: Path) -> None:
    total, _ = count_steps(base)
    for at in range(1, total + 1):
        place = base / str(at)
        prepared(place)
        files = dict.fromkeys(("a", "new", "src/deep/n.py", "old/x", "src/m.py"), f"mine {at}\n")
        written = list[str]()

        def outside(place: Path = place, files: dict[str, str] = files, written: list[str] = written) -> None:
            for name, text in files.items():
                if (place / "w" / name).parent.is_dir():
                    (place / "w" / name).write_text(text)
                    written.append(name)

        apply_all(place, Reached(at, outside))
        for name in written:
            found = subprocess.run(["grep", "-rlF", files[name].strip(), place / "w", place / "state/aside"],
                                   capture_output=True, check=False)  # fmt: skip
            assert found.stdout, f"step {at}: what another program wrote to {name} is not lost"


# ---- crashes


def killed(place: Path, reached: Callable[[], None]) -> bool:
    """Apply ALL_STEPS in another process. Return True if it was killed."""
    child = os.fork()
    if child == 0:
        try:
            apply_all(place, reached)
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def end_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.threat("T305")
def test_a_runner_killed_at_any_step_loses_nothing(base: Path) -> None:
    total, after = count_steps(base)
    assert total > 10
    for at in range(1, total + 1):
        place = base / str(at)
        before = prepared(place)
        assert killed(place, Reached(at, end_process)), f"step {at} of {total}"
        world = TransactionWorkspace(place)
        world.write("later", "1")  # the next action of any session completes the steps
        now = without_times(world.picture())
        now.pop(b"/later")
        assert now in (before, after), f"step {at}"
        assert (now == after) == (at > 1), f"step {at}: the journal was on the disk"
        assert world.traces() == []
        if now == after:
            assert world.undo(2, force=True).whole, f"step {at}"
            assert without_times(world.picture()) == before


@pytest.mark.threat("T304")
@pytest.mark.threat("T305")
def test_what_a_killed_runner_could_not_apply_is_kept(base: Path) -> None:
    """A program that has a file open writes to its previous version, and another one makes a file, before the steps are
    completed.
    """
    place = base / "one"
    prepared(place)
    with open(place / "w/a", "a") as editor:
        assert killed(place, Reached(4, end_process)), "after the first step, which replaces `a`"
        editor.write("by the user\n")
    (place / "w/new").write_text("by the user")
    (above,) = (place / "state/transactions").glob("*")
    reports = complete_abandoned(above)
    kept = [Path(each.rpartition(" ")[2]) for each in reports if "the other version is in" in each]
    assert sorted(each.read_text() for each in kept) == ["2\n", "n\n"], reports
    assert [(place / "w" / name).read_text() for name in ("a", "new")] == ["one\nby the user\n", "by the user"]


@pytest.mark.threat("T305")
def test_undo_completes_the_steps_as_well(base: Path) -> None:
    before = prepared(base / "one")
    assert killed(base / "one", Reached(6, end_process))
    world = TransactionWorkspace(base / "one")
    undone = world.undo(force=True)
    assert undone.whole
    assert [step.killed for step in undone.steps] == [True]
    assert without_times(world.picture()) == before


@pytest.mark.threat("T305")
def test_a_failure_takes_all_steps_back(base: Path) -> None:
    total, _ = count_steps(base)
    for at in range(3, total - 1):
        place = base / str(at)
        before = prepared(place)
        with pytest.raises(ApplyError) as error:
            apply_all(place, Reached(at, fail))
        assert "no space left" in error.value.problem.why
        assert tree(place) == before, f"step {at}"
        (layer,) = (place / "state/aside").iterdir()
        assert (layer / "new").read_text() == "n\n", "the changes are kept"


@pytest.mark.threat("T305")
def test_a_runner_killed_while_it_takes_steps_back(base: Path) -> None:
    total, after = count_steps(base)
    failing = total - 3
    for at in range(failing + 1, failing + total):
        place = base / str(at)
        before = prepared(place)
        first, second = Reached(failing, fail), Reached(at, end_process)

        def reached(first: Reached = first, second: Reached = second) -> None:
            second()
            first()

        if not killed(place, reached):
            assert at > total
            break
        (above,) = (place / "state/transactions").glob("*")
        (report,) = complete_abandoned(above)
        back = at > failing + 1  # before that, nothing says that the steps are to be taken back
        assert ("not applied" in report) == back
        assert tree(place) == (before if back else after), f"step {at}"


def test_a_transaction_in_progress_is_left_alone(base: Path) -> None:
    world = TransactionWorkspace(base)
    world.sh(FILES)
    opened = world.begin("echo 2 > a")
    other = TransactionWorkspace(base)
    other.write("b", "1")
    assert len(world.traces()) == 1
    opened.apply()
    assert (world.w / "a").read_text() == "2\n"


def test_undo_after_another_change_needs_force(base: Path) -> None:
    world = TransactionWorkspace(base)
    world.sh(FILES)
    world.transact("echo 2 > a; echo n > new")
    next_tick(base)
    world.sh("echo mine > a")
    undone = world.undo()
    assert [(item.path, item.obstacle) for item in undone.items if item.obstacle] == [("a", Obstacle.CHANGED)]
    assert not (world.w / "new").exists()


def test_one_command_after_the_other_is_no_conflict(base: Path) -> None:
    world = TransactionWorkspace(base)
    world.sh(FILES)
    for count in range(8):
        assert not world.transact(f"echo {count} >> a; mkdir -p d; echo {count} > d/f").result.left
    assert (world.w / "a").read_text() == "one\n" + "".join(f"{count}\n" for count in range(8))


@pytest.mark.threat("T307")
def test_no_secret_is_kept_in_a_folder_that_is_held_back(base: Path) -> None:
    world = TransactionWorkspace(base)
    world.sh("echo TOKEN=0123456789 > .env")
    opened = world.begin("mkdir .vscode; cp .env .vscode/copy; echo {} > .vscode/tasks.json")
    judged = opened.judged()
    assert judged.or_secret(lambda path: False)(".vscode/copy"), "no patch shows it"
    left = {each.path: each for each in opened.apply(judged).result.left}
    assert left.keys() == {".vscode", ".vscode/copy"}
    assert os.listdir(left[".vscode"].kept) == ["tasks.json"]
    assert not (world.w / ".vscode").exists()


@pytest.mark.threat("T303")
def test_the_files_behind_a_link_that_is_held_back_stay_as_they_are(base: Path) -> None:
    world = TransactionWorkspace(base)
    outside = base / "outside"
    outside.mkdir()
    (outside / "target").write_text("original")
    os.link(outside / "target", base / "other-name")
    opened = world.begin(f"ln -s {outside} way; mkdir .vscode; ln -s {outside} .vscode/way")
    assert {each.path for each in opened.apply().result.left} == {"way", ".vscode"}
    assert (outside / "target").stat().st_ino == (base / "other-name").stat().st_ino


@pytest.mark.threat("T303")
def test_a_file_that_is_held_back_has_no_other_name_in_the_workspace(base: Path) -> None:
    """A command on the workspace itself would change what the user examines, and the link count would make the file in
    the workspace one with names elsewhere, which is read-only for such commands.
    """
    world = TransactionWorkspace(base)
    left = world.transact("echo 1 > a; ln a .envrc; mkdir .vscode; ln a .vscode/tasks.json").result.left
    kept = {each.path: Path(each.kept) for each in left}
    (world.w / "a").write_text("2")
    assert kept[".envrc"].read_text() == (kept[".vscode"] / "tasks.json").read_text() == "1\n"
    assert [(each.stat().st_nlink) for each in (world.w / "a", kept[".envrc"])] == [1, 1]


@pytest.mark.threat("T304")
@pytest.mark.parametrize("instead", ["", "ln -s keep d", "echo > d"])
def test_a_folder_that_another_program_removes_while_a_command_changes_it(base: Path, instead: str) -> None:
    """The folder stays removed, and no marks of deleted files appear in its place."""
    world = TransactionWorkspace(base)
    world.sh("mkdir -p d/e keep; touch d/f d/g d/e/h")
    opened = world.begin("rm d/f; echo 1 > d/g; rm d/e/h; echo 1 > d/e/n; mkdir d/new; echo 1 > keep/k")
    world.sh(f"rm -r d; {instead or 'true'}")
    before = world.picture()
    opened.changes = read_layer(opened.transaction.layer)
    left = opened.apply().result.left
    assert [each.path for each in left] == ["d/e/n", "d/g", "d/new"]
    assert all(os.path.lexists(each.kept) for each in left)
    (world.w / "keep/k").unlink()
    assert without_times(world.picture()) == without_times(before)


@pytest.mark.threat("T304")
def test_a_clock_that_is_set_back_hides_no_change_of_the_user(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = TransactionWorkspace(base)
    world.sh(FILES)
    opened = world.begin("echo command >> a; echo command > b")
    (world.w / "a").write_text("user")
    opened.transaction.began += 3600 * 10**9  # the command began before the clock was set back by an hour
    monkeypatch.setattr(opened.transaction, "_clock", opened.transaction._clock + 3600 * 10**9)
    assert [each.path for each in opened.apply().result.left] == ["a"]
    assert ((world.w / "a").read_text(), (world.w / "b").read_text()) == ("user", "command\n")


@pytest.mark.threat("T301")
def test_a_link_whose_target_cannot_be_read(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is judged as any other link: nothing else that the command made is lost."""
    world = TransactionWorkspace(base)
    opened = world.begin("ln -s /proc/1/cwd/x l; ln -s unread u; echo 1 > a")
    monkeypatch.setattr(os, "readlink", refusing(os.readlink, "/proc/1/cwd"))
    assert [each.path for each in opened.apply().result.left] == ["l"]
    assert (world.w / "a").read_text() == "1\n"


def test_folders_that_are_made_before_a_transaction(tmp_path: Path) -> None:
    """A change before the start of the command is no conflict with it. Folders that were not taken are removed."""
    (workspace := tmp_path / "w").mkdir()
    (state := tmp_path / "state").mkdir()
    with contextlib.closing(MadeAhead(state, str(workspace))) as made:
        next_tick(tmp_path)
        (workspace / "edited").write_text("by the user")
        transaction = Transaction(state, str(workspace), made)
        assert transaction.layer == made.layer
        assert transaction.began >= (workspace / "edited").stat().st_ctime_ns
    assert os.path.isdir(transaction.layer.upper), "a folder that was taken belongs to its transaction"
    transaction.discard()
    with contextlib.closing(MadeAhead(state, str(workspace))):
        assert list(state.glob("transactions/*/*"))
    assert not list(state.glob("transactions/*"))


def test_the_layers_of_a_session_that_was_killed_are_removed_and_those_of_others_stay(tmp_path: Path) -> None:
    (workspace := tmp_path / "w").mkdir()
    above = folder_of(tmp_path / "state", str(workspace))
    above.mkdir(parents=True)
    make = "import os, sys; from sandbox.linux.helper_layers import several_layers as make; make(*sys.argv[1:])"
    killed = [sys.executable, "-c", f"{make}; os.kill(os.getpid(), 9)", str(workspace), str(above)]
    assert subprocess.run(killed, cwd=Path(__file__).parents[2], check=False).returncode == -signal.SIGKILL
    (left,) = above.iterdir()
    own = several_layers(str(workspace), str(above))
    assert complete_abandoned(above) == ()
    assert not left.exists()
    assert all(os.path.isdir(each.upper) for each in own.layers)
    own.close()
    finish_removals()
    assert not above.exists()
