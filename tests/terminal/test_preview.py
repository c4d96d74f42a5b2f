"""Tests of `agent exec --preview`: what it shows, what an answer keeps, and that nothing else is left."""

import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.approval.approver import chosen_numbers
from runner.problems import Exit
from tests.support import forked_agent
from tests.support.cli_harness import AGENT, CliHarness
from tests.support.terminal import Terminal

SCRIPT = "echo more >> a; rm b; mkdir -p n/m; echo 1 > n/1; echo 2 > n/m/2; echo said"
HOSTILE = f"{SCRIPT}; mkdir .vscode; echo '{{}}' > .vscode/settings.json"
QUESTION = "keep these changes?"
PLAIN = {"a": "one\n", "b": "two\n"}
DONE = {"a": "one\nmore\n", "n/1": "1\n", "n/m/2": "2\n"}


@pytest.fixture
def user(tmp_path: Path) -> Iterator[CliHarness]:
    for name in ("work", "home", "state", "config/ringfence"):
        (tmp_path / name).mkdir(parents=True, mode=0o700)
    user = CliHarness(tmp_path)
    subprocess.run(["git", "init", "-q", str(user.work)], check=True)
    for name, text in PLAIN.items():
        (user.work / name).write_text(text)
    if user.agent("exec", "--preview", "true > c").returncode == Exit.SANDBOX:
        pytest.skip("this machine has no view of a workspace; `agent doctor` says why")
    yield user
    left = list((tmp_path / "state" / "transactions").rglob("*"))
    assert left == [], "a preview leaves no layer"


def files(user: CliHarness) -> dict[str, str]:
    found = {}
    for folder, folders, names in os.walk(user.work):
        folders[:] = [name for name in folders if name != ".git"]
        for name in names:
            path = Path(folder) / name
            found[str(path.relative_to(user.work))] = path.read_text()
    return found


def answered(user: CliHarness, script: str, *answers: str, code: int = 0) -> str:
    """Run a preview at a terminal, give the answers, and return what was shown."""
    shown = Terminal([AGENT, "exec", "--preview", script], user.work, {**user.environ, "TERM": "xterm"})
    try:
        for number, answer in enumerate(answers, 1):
            shown.until(QUESTION, number)
            shown.type(answer + "\n")
        assert shown.end() == code
    finally:
        shown.close()
    return shown.seen


def transaction(user: CliHarness) -> dict[str, object]:
    """Return the transaction in the newest record of an outcome."""
    number = next(row["id"] for row in user.audit() if row["kind"] == "decided")
    record = json.loads(user.agent("audit", "show", str(number), "--json").stdout)["outcome"]["transaction"]
    assert isinstance(record, dict)
    return record


@pytest.mark.threat("T310")
def test_without_a_user_there_is_a_patch_and_nothing_else(user: CliHarness) -> None:
    done = user.agent("exec", "--preview", f"{SCRIPT}; exit 7")
    assert done.returncode == 7
    assert "said" in done.stderr
    assert files(user) == PLAIN
    subprocess.run(["git", "apply"], cwd=user.work, input=done.stdout, text=True, check=True)
    assert files(user) == DONE


@pytest.mark.threat("T27")
def test_contents_and_names_cannot_drive_a_terminal_and_a_program_gets_them_exactly(user: CliHarness) -> None:
    name = "e\\033[2Jx"
    (user.work / "make.sh").write_text(
        f"printf '\\033]0;owned\\007\\r\\302\\233' > a; echo 1 > \"$(printf '{name}')\"\n"
    )
    words = ("exec", "--unattended", "--preview", "bash make.sh")
    piped = forked_agent.run(
        [AGENT, *words], cwd=user.work, env=user.environ, stdin=subprocess.DEVNULL, capture_output=True, check=True
    )
    assert b"+\x1b]0;owned\x07\r\xc2\x9b" in piped.stdout
    (user.work / "make.sh").unlink()
    assert subprocess.run(["git", "apply"], cwd=user.work, input=piped.stdout, check=True).returncode == 0
    assert (user.work / "a").read_bytes() == b"\x1b]0;owned\x07\r\xc2\x9b"
    (user.work / "a").write_text(PLAIN["a"])
    (user.work / "make.sh").write_text(
        f"printf '\\033]0;owned\\007\\r\\302\\233' > a; echo 1 > \"$(printf '{name}')\"\n"
    )
    shown = Terminal([AGENT, *words], user.work, {**user.environ, "TERM": "xterm", "NO_COLOR": "1"})
    try:
        assert shown.end() == 0
    finally:
        shown.close()
    assert "owned" in shown.seen
    assert "deleted file" not in shown.seen
    plain = shown.seen.replace("\r\n", "\n")
    assert all(char.isprintable() or char == "\n" for char in plain), plain


@pytest.mark.threat("T310")
def test_the_record_has_what_was_not_kept(user: CliHarness) -> None:
    def digest(text: str) -> str:
        return hashlib.sha256(text.encode()).hexdigest()

    def unapplied() -> dict[str, tuple[str, str, str]]:
        record = transaction(user)
        files = record["unapplied"]
        assert isinstance(files, list)
        assert record["unkept"] == len(files)
        return {
            each["path"].removeprefix(f"{user.work}/"): (each["how"], each["before"], each["after"]) for each in files
        }

    every = {
        "a": ("modified", digest("one\n"), digest("one\nmore\n")),
        "b": ("deleted", digest("two\n"), ""),
        "n": ("added", "", ""),
        "n/1": ("added", "", digest("1\n")),
        "n/m": ("added", "", ""),
        "n/m/2": ("added", "", digest("2\n")),
    }
    user.agent("exec", "--preview", SCRIPT)
    assert unapplied() == every
    assert transaction(user)["by"] == "gate", "there was no user"
    answered(user, SCRIPT, "none")
    assert unapplied() == every
    assert transaction(user)["by"] == "user"
    answered(user, SCRIPT, "1,2")
    assert unapplied() == {name: row for name, row in every.items() if name.startswith("n")}
    number = next(row["id"] for row in user.audit() if row["kind"] == "decided")
    told = user.agent("audit", "show", "--text", str(number)).stdout
    assert "not kept: 4 files" in told
    assert f"added {user.work}/n/m/2 (- to {digest('2' + chr(10))[:16]})" in told


@pytest.mark.threat("T310")
def test_a_change_that_would_be_held_back_is_an_exit_code(user: CliHarness) -> None:
    done = user.agent("exec", "--preview", HOSTILE)
    assert done.returncode == Exit.DENIED
    assert "held back: .vscode" in done.stderr
    assert ".vscode/settings.json" in done.stdout, "the patch shows it"
    assert files(user) == PLAIN


@pytest.mark.threat("T310")
def test_a_program_gets_an_event(user: CliHarness) -> None:
    done = user.agent("exec", "--preview", "--json", HOSTILE)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    types = [event["type"] for event in events if event["type"] != "output"]
    assert types == ["session_started", "verdict", "finished", "preview", "run_ended"]
    found = next(event for event in events if event["type"] == "preview")
    assert [(each["path"], each["how"]) for each in found["files"]][:2] == [
        (".vscode/settings.json", "added"),
        ("a", "modified"),
    ]
    assert [each["reason"] for each in found["held"]] == ["auto-run"]
    assert events[-1]["exit"] == Exit.DENIED
    assert files(user) == PLAIN


@pytest.mark.threat("T310")
@pytest.mark.parametrize("answers", [("none",), ("",), ("perhaps", "9", "n"), ("\x04",)], ids=repr)
def test_nothing_is_kept_without_a_clear_answer(user: CliHarness, answers: tuple[str, ...]) -> None:
    shown = answered(user, SCRIPT, *answers, *(("none",) if answers == ("",) else ()))
    assert "said" in shown
    assert "+more" in shown
    assert files(user) == PLAIN
    assert transaction(user)["count"] == 0


def test_everything_is_kept_and_can_be_undone(user: CliHarness) -> None:
    shown = answered(user, f"{SCRIPT}; exit 5", "diff", "all", code=5)
    assert shown.count("+more") == 2, "the difference is shown, and once more on request"
    assert files(user) == DONE
    record = transaction(user)
    assert (record["by"], record["left"]) == ("user", 0)
    kept = record["files"]
    assert isinstance(kept, list)
    assert {Path(each["path"]).name: each["how"] for each in kept}["b"] == "deleted"
    assert user.agent("undo").returncode == 0
    assert files(user) == PLAIN


def test_some_changes_are_kept(user: CliHarness) -> None:
    shown = answered(user, SCRIPT, "1,3")
    rows = [line.split()[1:] for line in shown.splitlines() if line.split()[:1] in (["1"], ["2"], ["3"])]
    assert [row[:2] for row in rows] == [["write", "a"], ["delete", "b"], ["create", "n/"]]
    assert files(user) == {**DONE, "b": "two\n"}


@pytest.mark.threat("T310")
def test_a_held_change_is_not_offered(user: CliHarness) -> None:
    shown = answered(user, HOSTILE, "all")
    assert "held back: .vscode" in shown
    assert files(user) == DONE
    record = transaction(user)
    held = record["held"]
    assert isinstance(held, list)
    assert [each["reason"] for each in held] == ["auto-run"]


@pytest.mark.threat("T310")
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--background",), "when the command has ended"),
        (("--host", "example.org"), "has no network"),
        (("--write", "/srv"), "only changes of the workspace"),
    ],
)
def test_options_that_do_not_fit_are_refused(user: CliHarness, words: tuple[str, ...], why: str) -> None:
    done = user.agent("exec", "--preview", *words, "true")
    assert done.returncode == Exit.USAGE
    assert why in done.stderr


@pytest.mark.threat("T310")
def test_what_the_policy_refuses_is_not_previewed(user: CliHarness) -> None:
    (user.base / "home" / ".ssh").mkdir()
    (user.base / "home" / ".ssh" / "id_rsa").write_text("the key\n")
    done = user.agent("exec", "--preview", "cat ~/.ssh/id_rsa > a")
    assert done.returncode == Exit.DENIED
    assert "the key" not in done.stdout + done.stderr
    assert files(user) == PLAIN


def test_a_command_that_only_reads_has_nothing_to_keep(user: CliHarness) -> None:
    done = user.agent("exec", "--preview", "cat a; exit 4")
    assert (done.returncode, done.stdout, done.stderr) == (4, "", "one\n")


@pytest.mark.parametrize(
    ("answer", "numbers"),
    [
        ("all", {1, 2, 3, 4}), ("y", {1, 2, 3, 4}), ("none", set()), ("n", set()), ("2", {2}), ("1,3-4", {1, 3, 4}),
        ("1 2", {1, 2}), ("", None), ("0", None), ("5", None), ("3-2", None), ("1-", None), ("-1", None), ("x", None),
        ("1,,2", {1, 2}), ("1-9", None), ("²", None),
    ],
)  # fmt: skip
def test_answers(answer: str, numbers: set[int] | None) -> None:
    found = chosen_numbers(answer, 4)
    assert found == (None if numbers is None else frozenset(numbers))
