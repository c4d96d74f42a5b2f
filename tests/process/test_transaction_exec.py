"""`agent exec` with transactions."""

import hashlib
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support import forked_agent
from tests.support.agent_program import AGENT
from tests.support.layers import overlays_work

pytestmark = pytest.mark.skipif(not overlays_work(), reason="this user cannot mount an overlay")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder, config = tmp_path / "w", tmp_path / "h/.config/ringfence"
    folder.mkdir()
    config.mkdir(parents=True)
    (config / "config.toml").write_text("[sandbox]\nmost_deleted = 5\n")
    (folder / "requirements.txt").write_text("requests\n")
    (folder / "run.sh").write_text("echo 1 > .envrc; mkdir d; echo x > d/f; echo two > a; ls -A\n")
    return folder


def agent(work: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {"HOME": str(work.parent / "h"), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "NO_COLOR": "1"}
    return forked_agent.run(
        [AGENT, *words], cwd=work, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip


def run(work: Path, script: str, *flags: str) -> subprocess.CompletedProcess[str]:
    return agent(work, "exec", "--unattended", "--mode", "trust-project", *flags, script)


def transaction(work: Path) -> dict[str, object]:
    lines = agent(work, "audit", "export", "--format", "jsonl").stdout.splitlines()
    found = [json.loads(line)["outcome"] for line in lines]
    return next(each["transaction"] for each in reversed(found) if each and "transaction" in each)


@pytest.mark.threat("T303")
def test_held_back_reported_and_recorded(work: Path) -> None:
    done = run(work, "bash run.sh")
    assert done.returncode == 0, done.stderr
    assert ".envrc" in done.stdout
    assert "is a new auto-run file" in done.stderr
    assert sorted(os.listdir(work)) == ["a", "d", "requirements.txt", "run.sh"]
    recorded = transaction(work)
    assert [(each["reason"], each["path"]) for each in recorded["held"]] == [("auto-run", f"{work}/.envrc")]  # type: ignore[index,attr-defined]
    assert agent(work, "audit", "verify").returncode == 0
    assert not list((work.parent / "h/.local/state/ringfence/transactions").glob("*/*"))
    assert "nothing to undo" in agent(work, "undo").stderr + agent(work, "undo").stdout


def test_the_record_has_the_hashes_of_changes_that_are_not_stored_for_undo(work: Path) -> None:
    (work / "old/below").mkdir(parents=True)
    (work / "old/below/f").write_text("gone\n")
    (work / "old/link").symlink_to("below")
    (work / "kept").write_text("one\n")
    done = run(work, "rm -r old; echo two > kept; ln -s kept link; mkdir new; echo 3 > new/f")
    assert done.returncode == 0, done.stderr

    def digest(text: str) -> str:
        return hashlib.sha256(text.encode()).hexdigest()

    recorded = transaction(work)
    files = recorded["files"]
    assert isinstance(files, list)
    rows = {each["path"].removeprefix(f"{work}/"): (each["how"], each["before"], each["after"]) for each in files}
    assert rows == {
        "kept": ("modified", digest("one\n"), digest("two\n")),
        "link": ("added", "", ""),
        "new": ("added", "", ""),
        "new/f": ("added", "", digest("3\n")),
        "old": ("deleted", "", ""),
        "old/below": ("deleted", "", ""),
        "old/below/f": ("deleted", digest("gone\n"), ""),
        "old/link": ("deleted", "", ""),
    }
    assert (recorded["count"], recorded["deleted"]) == (8, 2)


def test_a_path_that_the_system_takes_only_in_parts_is_applied_and_recorded(work: Path) -> None:
    made = (
        "import os\nfor _ in range(159):\n    os.mkdir('n' * 24)\n    os.chdir('n' * 24)\nopen('f', 'w').write('x')\n"
    )
    (work / "deep.py").write_text(made)
    done = run(work, "python3 deep.py")
    assert done.returncode == 0, done.stderr
    assert transaction(work)["count"] == 160
    assert sorted(os.listdir(work)) == ["deep.py", "n" * 24, "requirements.txt", "run.sh"]


@pytest.mark.threat("T303")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_what_an_interrupted_command_changed_is_judged_and_applied(work: Path, number: signal.Signals) -> None:
    """Without the runner nobody can judge: then nothing is applied, and the next command removes the layer."""
    (work / "run.sh").write_text("echo 1 > .envrc; echo x > new; echo begun; exec sleep 600\n")
    words = [AGENT, "exec", "--unattended", "--mode", "trust-project", "bash run.sh"]
    environ = {"HOME": str(work.parent / "h"), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    with subprocess.Popen(
        words, cwd=work, env=environ, stdin=subprocess.DEVNULL, stdout=-1, stderr=-1, restore_signals=True
    ) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == b"begun\n"
        assert sorted(os.listdir(work)) == ["requirements.txt", "run.sh"], "nothing is seen before the end"
        job.send_signal(number)
        _, told = job.communicate()
    if number is signal.SIGKILL:
        assert run(work, "touch next").returncode == 0
        assert sorted(os.listdir(work)) == ["next", "requirements.txt", "run.sh"]
    else:
        assert job.returncode == 128 + number, told
        assert sorted(os.listdir(work)) == ["new", "requirements.txt", "run.sh"]
        assert b"is a new auto-run file" in told
    assert not list((work.parent / "h/.local/state/ringfence/transactions").glob("*/*"))


@pytest.mark.threat("T304")
def test_a_folder_that_becomes_a_link_meanwhile_is_a_conflict_of_what_is_in_it_alone(work: Path) -> None:
    (work / "sub").mkdir()
    (work / "sub/f").write_text("one\n")
    outside = work.parent / "outside"
    outside.mkdir()
    (outside / "f").write_text("mine\n")
    (work / "run.sh").write_text("echo two > sub/f; rm requirements.txt; echo x > new; echo begun; read -r line\n")
    words = [AGENT, "exec", "--unattended", "--mode", "trust-project", "bash run.sh"]
    environ = {"HOME": str(work.parent / "h"), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    with subprocess.Popen(words, cwd=work, env=environ, stdin=-1, stdout=-1, stderr=-1) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == b"begun\n"
        (work / "sub").rename(work / "moved")
        (work / "sub").symlink_to(outside)
        _, told = job.communicate(b"\n")
    assert b"/w/sub/f` was not applied" in told, told
    assert sorted(os.listdir(work)) == ["moved", "new", "run.sh", "sub"]
    assert ((outside / "f").read_text(), (work / "moved/f").read_text()) == ("mine\n", "one\n")


def test_a_limit_loses_nothing_that_was_written(work: Path) -> None:
    done = run(work, "echo x > new; yes", "--limit", "output=100k")
    assert done.returncode == 5, done.stderr[-1000:]
    assert (work / "new").read_text() == "x\n"


def test_without_transactions_the_workspace_shows_what_a_command_writes(work: Path) -> None:
    (work.parent / "h/.config/ringfence/config.toml").write_text("[sandbox]\ntransactions = false\n")
    (work / "run.sh").write_text("echo x > new; echo begun; read -r line\n")
    words = [AGENT, "exec", "--unattended", "--mode", "trust-project", "bash run.sh"]
    environ = {"HOME": str(work.parent / "h"), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    with subprocess.Popen(words, cwd=work, env=environ, stdin=-1, stdout=-1, stderr=-1) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == b"begun\n"
        assert (work / "new").read_text() == "x\n"
        job.communicate(b"\n")
    assert job.returncode == 0


@pytest.mark.threat("T267")
def test_a_command_from_untrusted_text_changes_no_trusted_file_and_can_be_undone(work: Path) -> None:
    done = run(work, "echo evil >> requirements.txt; echo a > a.txt", "--untrusted", "issue 13")
    assert done.returncode == 3, done.stderr
    assert "requirements.txt" in done.stderr
    assert (work / "requirements.txt").read_text() == "requests\n"
    assert (work / "a.txt").read_text() == "a\n"
    assert agent(work, "undo").returncode == 0
    assert not (work / "a.txt").exists()


@pytest.mark.threat("T309")
def test_many_deletions_are_held_back(work: Path) -> None:
    assert run(work, "mkdir m; touch m/1 m/2 m/3 m/4 m/5 m/6").returncode == 0
    (work / "clean.sh").write_text("rm -r m; echo 1 > b\n")
    done = run(work, "bash clean.sh")
    assert "deleted more than 5 files" in done.stderr
    assert (work / "m/6").exists()
    assert (work / "b").exists()


def test_reading_commands_and_failures_change_nothing(work: Path) -> None:
    assert run(work, "cat requirements.txt").stdout == "requests\n"
    assert run(work, "echo 1 > b; exit 7").returncode == 7
    assert (work / "b").read_text() == "1\n"
