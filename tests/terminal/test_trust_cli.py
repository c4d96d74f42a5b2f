"""Tests of `agent trust` and its question, with real processes and a real terminal."""

import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import forked_agent
from tests.support.agent_program import AGENT
from tests.support.terminal_screen import ScreenTerminal

WIDENS = 'mode = "trust-project"\n\n[[rule]]\nverdict = "allow"\nrun = ["npm", "test"]\nwhy = "ours"\n'
SCRIPT = '[[turn]]\ncalls = [{ name = "bash", arguments = { command = "python3 -c \'print(6 * 7)\'" } }]\n[[turn]]\ntext = "done"\n'


@dataclass(frozen=True, slots=True)
class Harness:
    """A workspace, a home and a state folder: nothing of the user's."""

    base: Path

    @property
    def work(self) -> Path:
        return self.base / "w"

    @property
    def trust(self) -> Path:
        return self.base / "state/trust.json"

    @property
    def environ(self) -> dict[str, str]:
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        state = str(self.base / "state")
        return {"HOME": str(self.base / "home"), "PATH": path, "LANG": "C.UTF-8", "RINGFENCE_STATE_DIR": state}

    def file(self, path: str, text: str | bytes) -> None:
        (self.work / path).parent.mkdir(parents=True, exist_ok=True)
        (self.work / path).write_bytes(text.encode() if isinstance(text, str) else text)

    def agent(self, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run `agent` without a terminal, so that no user can answer."""
        return forked_agent.run(
            [AGENT, *words], cwd=cwd or self.work, env=self.environ, stdin=subprocess.DEVNULL,
            capture_output=True, text=True,
        )  # fmt: skip

    def shown(self, *words: str) -> dict[str, object]:
        done = self.agent("trust", "show", "--json", *words)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert isinstance(found, dict)
        return found


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    made = Harness(Path(os.path.realpath(tmp_path)))
    made.work.mkdir()
    (made.base / "home").mkdir()
    (made.base / "script.toml").write_text(SCRIPT)
    return made


# Without a terminal


def test_nothing_is_said_where_there_is_nothing(harness: Harness) -> None:
    done = harness.agent("trust")
    assert (done.returncode, done.stderr) == (0, "")
    assert "contains no files" in done.stdout
    assert harness.shown()["state"] == "nothing to decide"
    assert harness.agent("trust", "list").stdout == "there are no answers\n"
    assert harness.agent("trust", "list", "--json").stdout == ""


def test_the_life_of_an_answer(harness: Harness) -> None:
    harness.file(".ringfence/config.toml", WIDENS)
    harness.file("AGENTS.md", "Use tabs.\n")
    first = harness.shown()
    assert first["state"] == "not asked"
    assert first["counts"] == [".ringfence/config.toml", "AGENTS.md"]
    assert harness.agent("trust").returncode == 0, "there is no user, so it only shows"
    assert not harness.trust.exists()
    done = harness.agent("trust", "accept", "--sha256", str(first["sha256"]))
    assert (done.returncode, done.stdout) == (0, f"trusted: {first['sha256']}\n"), done.stderr
    assert harness.shown()["state"] == "trusted"
    row = json.loads(harness.agent("trust", "list", "--json").stdout)
    assert (row["workspace"], row["answer"], row["sha256"]) == (str(harness.work), "yes", first["sha256"])
    assert row["state"] == "same"
    harness.file("AGENTS.md", "Use tabs. \n")
    changed = harness.shown()
    assert (changed["state"], changed["changed"]) == ("not asked", [{"path": "AGENTS.md", "how": "has changed"}])
    assert "has changed" in harness.agent("trust", "list").stdout
    harness.work.rename(harness.base / "gone")
    assert "does not exist" in harness.agent("trust", "list", cwd=harness.base).stdout
    done = harness.agent("trust", "revoke", str(harness.work), cwd=harness.base)
    assert (done.returncode, done.stdout) == (0, f"revoked: 1 answer for {harness.work}\n"), done.stderr
    assert harness.agent("trust", "list", cwd=harness.base).stdout == "there are no answers\n"


REFUSED: list[tuple[tuple[str, ...], str, str]] = [
    (("trust", "accept"), "needs --sha256", "an approval to whatever is there"),
    (("trust", "accept", "--sha256", "abc"), "is not a hash", "half a hash"),
    (("trust", "accept", "--sha256", "0" * 64), "does not contain the trusted content", "another content"),
    (("trust", "accept", "--sha256", "0" * 64, "/nowhere"), "cannot be the working folder", "no repository"),
    (("trust", "revoke"), "there is no answer", "nothing to take back"),
    (("trust", "revoke", "--all", "."), "a path and --all", "two ways to say it"),
    (("trust", "--json", "list"), "must follow", "an option in the wrong place"),
    (("trust", "show", "/nowhere"), "cannot be the working folder", "no repository"),
    (("run", "--trust-config", "0" * 64, "x"), "does not contain the trusted content", "another content"),
    (("run", "--trust-config", "yes", "x"), "is not a hash", "a word"),
    (("--trust-config", "0" * 64, "trust"), "must follow", "not for this command"),
]


@pytest.mark.parametrize(
    ("words", "said", "why"), REFUSED, ids=[" ".join(row[0])[:50] + ": " + row[2] for row in REFUSED]
)
def test_what_cannot_be_meant_is_a_usage_error(harness: Harness, words: tuple[str, ...], said: str, why: str) -> None:
    harness.file("AGENTS.md", "Use tabs.\n")
    done = harness.agent(*words)
    assert done.returncode == 2, (why, done)
    assert said in done.stderr
    assert not harness.trust.exists()


def test_a_wrong_hash_is_answered_with_the_right_one(harness: Harness) -> None:
    harness.file("AGENTS.md", "Use tabs.\n")
    done = harness.agent("run", "--model", "scripted:x", "--trust-config", "0" * 64, "x")
    assert f"--trust-config {harness.shown()['sha256']}" in done.stderr


@pytest.mark.threat("T71")
def test_an_unattended_run_uses_it_only_with_its_hash(harness: Harness) -> None:
    harness.file(".ringfence/config.toml", WIDENS)
    harness.file("AGENTS.md", "Use tabs.\n")
    run = ("run", "--json", "--model", f"scripted:{harness.base}/script.toml", "go")
    done = harness.agent(*run)
    assert done.returncode == 3, "code of the project needs an approval in the usual mode"
    assert "not used without trust" in done.stdout
    sha256 = str(harness.shown()["sha256"])
    assert harness.agent("trust", "accept", "--sha256", sha256).returncode == 0
    assert harness.agent(*run).returncode == 3, "an approval of a person is not one for a run without anybody"
    done = harness.agent(run[0], "--trust-config", sha256, *run[1:])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the model gets `AGENTS.md`" in done.stdout
    done = harness.agent(run[0], "--trust-config", sha256, "--no-instructions", *run[1:])
    assert done.returncode == 0
    assert "the model gets" not in done.stdout


def test_exec_and_why_never_ask_and_say_it_in_a_line(harness: Harness) -> None:
    harness.file(".ringfence/config.toml", "max_turns = 900\n" + WIDENS)
    for words in (("exec", "true"), ("why", "true")):
        lines = harness.agent(*words).stderr.splitlines()
        assert len(lines) == 1, lines
        assert "`mode`" in lines[0]
        assert "`agent trust`" in lines[0]
    harness.file(".ringfence/config.toml", "max_turns = 3\n")
    harness.file("AGENTS.md", "Use tabs.\n")
    assert harness.agent("exec", "true").stderr == "", "it would not widen"


def test_a_broken_list_of_answers_is_set_aside_and_said(harness: Harness) -> None:
    harness.file(".ringfence/config.toml", WIDENS)
    harness.agent("trust", "accept", "--sha256", str(harness.shown()["sha256"]))
    harness.trust.write_text('{"version": 1, "workspaces": ')
    done = harness.agent("trust", "show")
    assert done.returncode == 0
    assert "trust.json.corrupt-1" in done.stderr
    assert "you have not trusted this content" in done.stdout


def test_configuration_that_cannot_be_read_is_told_and_widens_nothing(harness: Harness) -> None:
    harness.file(".ringfence/config.toml", 'mode = "trust-projec"\n')
    done = harness.agent("trust", "show")
    assert done.returncode == 0
    assert "there is no mode" in done.stderr
    assert "would change your settings" not in done.stdout


def test_a_pipe_in_the_place_of_a_text_does_not_hold_anything_up(harness: Harness) -> None:
    os.mkfifo(harness.work / "AGENTS.md")
    (harness.work / ".ringfence").mkdir()
    os.mkfifo(harness.work / ".ringfence/config.toml")
    assert "is a pipe and no plain file" in harness.agent("trust", "show").stdout
    assert harness.agent("exec", "true").returncode == 0


def test_a_workspace_that_nobody_can_write_is_like_any_other(harness: Harness) -> None:
    harness.file(".ringfence/config.toml", WIDENS)
    harness.file("AGENTS.md", "Use tabs.\n")
    sha256 = str(harness.shown()["sha256"])
    script = (
        f"mount --bind {harness.work} {harness.work} && mount -o remount,ro,bind {harness.work} && cd {harness.work} && "
        f"! touch x 2> /dev/null && {AGENT} trust accept --sha256 {sha256} && {AGENT} trust show"
    )
    who = [] if os.geteuid() == 0 else ["-r"]
    done = subprocess.run(
        ["unshare", "-m", *who, "sh", "-c", script], env=harness.environ, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "you have trusted this content since" in done.stdout


# Attempts of the agent itself to obtain trust


@pytest.mark.threat("T71")
def test_no_command_of_the_agent_gives_itself_trust(harness: Harness) -> None:
    subprocess.run(["git", "init", "-q", str(harness.work)], check=True, env=harness.environ)
    harness.file(".ringfence/config.toml", "max_turns = 3\n")
    harness.file("AGENTS.md", "Use tabs.\n")
    harness.file(".mcp.json", "{}")
    sha256 = str(harness.shown()["sha256"])
    harness.agent("trust", "accept", "--sha256", sha256)
    before = harness.trust.read_bytes()
    state = shlex.quote(str(harness.trust))
    tries = [
        f"echo x >> {state}",
        f"python3 -c 'open({str(harness.trust)!r}, \"w\")'",
        f"rm -rf {shlex.quote(str(harness.base / 'state'))}",
        "echo 'mode = \"dangerously\"' >> .ringfence/config.toml",
        "mv .ringfence old && mkdir .ringfence && echo 'mode = \"dangerously\"' > .ringfence/config.toml",
        'python3 -c \'import os; os.makedirs(".ringfence/hooks"); open(".ringfence/hooks/x", "w")\'',
        'python3 -c \'open(".ringfence/config.local.toml", "w").write("max_turns = 900")\'',
        "echo '{\"mcpServers\": {}}' > .mcp.json",
        f"{AGENT} trust revoke",
        f"{AGENT} trust accept --sha256 {sha256}",
    ]
    for line in tries:
        harness.agent("exec", "--mode", "dont-ask", line)
        assert harness.trust.read_bytes() == before, line
        assert harness.shown()["sha256"] == sha256, line
        assert harness.shown()["state"] == "trusted", line
    done = harness.agent("exec", "--mode", "trust-project", "echo 'Use spaces.' >> AGENTS.md")
    assert done.returncode == 0, "a text of the project is the project's"
    assert harness.shown()["state"] == "not asked", "but it counts only after another yes"


# At a terminal


class Seat:
    """A user who runs commands, each at a new terminal. `window` is that of the last one."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self._windows: list[ScreenTerminal] = []

    @property
    def window(self) -> ScreenTerminal:
        return self._windows[-1]

    def run(self, *words: str) -> None:
        """Run `agent`; `LEFT N` comes when it has ended."""
        self.start(AGENT, *words)

    def start(self, *command: str) -> None:
        environ = {**self._harness.environ, "PROMPT_TOOLKIT_NO_CPR": "1"}
        self._windows.append(ScreenTerminal(self._harness.work, environ, *command, size=(150, 100)))

    def type(self, text: str) -> None:
        self.window.type(text, "Enter")

    def text(self) -> str:
        return self.window.look(joined=True, history=False)

    def until(self, *texts: str) -> str:
        self.window.wait_for(lambda: all(text in self.text() for text in texts), f"{texts}")
        return self.text()

    def asked(self, *texts: str) -> str:
        """Once it shows them and waits for an answer; what is typed before that is thrown away."""
        self.window.wait_for(lambda: all(text in self.text() for text in texts) and self._waits(), f"{texts}")
        return self.text()

    def _waits(self) -> bool:
        return self.text().rstrip().endswith(QUESTION)

    def close(self) -> None:
        for window in self._windows:
            window.close()


@pytest.fixture
def screen(harness: Harness) -> Iterator[Seat]:
    made = Seat(harness)
    yield made
    made.close()


QUESTION = "trust these files exactly as they are now? [yes / no / show / quit]"


@pytest.mark.threat("T71")
def test_the_first_start_asks_and_a_change_asks_again(harness: Harness, screen: Seat) -> None:
    run = ("run", "--model", f"scripted:{harness.base}/script.toml", "go")
    harness.file(".ringfence/config.toml", WIDENS)
    harness.file("AGENTS.md", "# Shop\n" + "line\n" * 30 + "the last line of it\n")
    harness.file(".ringfence/hooks/before", "#!/bin/sh\n")
    screen.run(*run)
    seen = screen.until(QUESTION)
    for line in (
        '.ringfence/config.toml:1  mode: "default" -> "trust-project"',
        '.ringfence/config.toml:3  [[rule]]: verdict = "allow", run = ["npm", "test"], why = "ours"',
        "| # Shop",
        "files that hooks may run; a change of one of them ends your trust",
        ".ringfence/hooks/before  10 bytes",
    ):
        assert line in seen
    screen.type("")
    screen.asked("use the listed files until they change")
    assert not harness.trust.exists(), "Enter is no answer"
    assert "the last line of it" not in screen.text()
    screen.type("show")
    screen.asked("the last line of it")
    screen.type("yes")
    seen = screen.until("LEFT 0")
    assert "the model gets `AGENTS.md`" in seen
    assert "mode       trust-project" in seen
    assert "42" in seen
    screen.run(*run)
    seen = screen.until("LEFT 0")
    assert QUESTION not in seen, "asked once"
    assert "mode       trust-project" in seen
    harness.file("AGENTS.md", "# Shop!\n")
    screen.run(*run)
    screen.asked("changed since your approval o", "AGENTS.md  has changed")
    screen.type("no")
    seen = screen.until("allow once?")
    assert "mode       default" in seen, "what it would widen, it does not"
    assert "the model gets" not in seen
    screen.window.type("C-c")
    screen.until("LEFT")
    screen.run(*run)
    seen = screen.until("not used, as you answered: `.ringfence/config.toml` and `AGENTS.md`", "allow once?")
    assert QUESTION not in seen, "a no is remembered, too"
    screen.window.type("C-c")
    screen.until("LEFT")
    screen.run("trust", "revoke")
    screen.until("revoked: 2 answers", "LEFT 0")
    screen.run(*run)
    screen.until(QUESTION)
    assert "changed since" not in screen.text(), "nothing is known any more"
    screen.type("quit")
    screen.until("LEFT 130")
    assert json.loads(harness.trust.read_text())["workspaces"] == {}


@pytest.mark.parametrize(("key", "status"), [("C-c", 130), ("C-d", 130)])
def test_leaving_remembers_nothing(harness: Harness, screen: Seat, key: str, status: int) -> None:
    harness.file("AGENTS.md", "x\n")
    screen.run("run", "--model", f"scripted:{harness.base}/script.toml", "go")
    screen.until(QUESTION)
    screen.window.type(key)
    screen.until(f"LEFT {status}")
    assert not harness.trust.exists()


def test_yes_and_no_show_the_files_and_remember_the_answer(harness: Harness, screen: Seat) -> None:
    harness.file("AGENTS.md", "Use tabs.\n")
    screen.run("trust", "yes")
    screen.until("AGENTS.md", "stored: the files are used until they change", "LEFT 0")
    assert harness.shown()["state"] == "trusted"
    done = harness.agent("trust", "no")
    assert (done.returncode, "stored: the files are not used" in done.stderr) == (0, True), (
        "a refusal needs no terminal"
    )
    assert harness.shown()["state"] == "refused"
    harness.file("AGENTS.md", "Use blanks.\n")
    assert harness.shown()["state"] == "not asked", "the answer was about the content"


def test_a_plain_conversation_asks_before_it_begins(harness: Harness, screen: Seat) -> None:
    harness.file("AGENTS.md", "x\n")
    screen.run("--plain", "--model", f"scripted:{harness.base}/script.toml")
    assert "/help" not in screen.until(QUESTION)
    screen.type("y")
    screen.until("the model gets `AGENTS.md`", "type /help for help")
    screen.window.type("C-d")
    screen.until("LEFT 0")


def test_a_conversation_asks_before_it_begins(harness: Harness, screen: Seat) -> None:
    harness.file("AGENTS.md", "x\n")
    screen.run("--model", f"scripted:{harness.base}/script.toml")
    seen = screen.until("trust these files exactly as they are now?", "q  leave")
    assert "the model gets" not in seen
    assert not harness.trust.exists(), "there are no answers"
    # What comes with the question, or right after it, is no answer to it.
    screen.window.insist("y", holds=lambda shown: harness.trust.exists())
    screen.until("the model gets `AGENTS.md`", "? help")
    screen.window.type("C-u")
    screen.window.type("C-d")
    screen.until("LEFT 0")


def test_agent_trust_asks_and_exec_goes_by_it(harness: Harness, screen: Seat) -> None:
    harness.file(".ringfence/config.toml", WIDENS)
    screen.run("trust")
    screen.until(QUESTION)
    screen.type("yes")
    screen.until("stored: the files are used until they change", "LEFT 0")
    screen.run("exec", "python3 -c 'print(6 * 7)'")
    assert "of the repository may only tighten" not in screen.until("42", "LEFT 0")
    screen.run("trust")
    screen.until("you have trusted this content since", QUESTION)
    screen.type("no")
    screen.until("stored: the files are not used", "LEFT 0")
    screen.run("exec", "python3 -c 'print(6 * 7)'")
    screen.until("of the repository may only tighten", "allow once?")
    screen.type("n")
    screen.until("LEFT")


@pytest.mark.parametrize("first", ["yes", "no"])
def test_two_who_are_asked_at_once(harness: Harness, screen: Seat, first: str) -> None:
    """Each goes by its own answer; the last one is remembered, and nothing is lost of the file."""
    harness.file("AGENTS.md", "x\n")
    second = {"yes": "no", "no": "yes"}[first]
    other = Seat(harness)
    try:
        run = ("run", "--model", f"scripted:{harness.base}/script.toml", "--mode", "trust-project", "go")
        screen.run(*run)
        other.run(*run)
        screen.until(QUESTION)
        other.until(QUESTION)
        screen.type(first)
        one = screen.until("LEFT 0")
        other.type(second)
        two = other.until("LEFT 0")
    finally:
        other.close()
    assert ("the model gets" in one, "the model gets" in two) == (first == "yes", second == "yes")
    row = json.loads(harness.agent("trust", "list", "--json").stdout)
    assert row["answer"] == second


def test_what_was_typed_ahead_answers_nothing(harness: Harness, screen: Seat) -> None:
    harness.file("AGENTS.md", "x\n")
    screen.start("sh")
    line = shlex.join([AGENT, "run", "--model", f"scripted:{harness.base}/script.toml", "go"])
    ready = shlex.quote(str(harness.base / "ready"))
    screen.type(f'clear; echo wai""ting; until [ -e {ready} ]; do sleep 0.1; done; {line}; echo "le""ft with" $?')
    screen.until("waiting")
    screen.type("yes")
    screen.until("waiting\nyes")  # it lies there, and nobody has read it
    (harness.base / "ready").touch()
    screen.asked()
    screen.type("quit")
    screen.until("left with 130")  # the question was open, because it took this answer
    assert not harness.trust.exists()


@pytest.mark.threat("T28")
def test_no_text_of_the_repository_drives_the_terminal(harness: Harness, screen: Seat) -> None:
    harness.file("AGENTS.md", b"fine\x1b[2J\x1b[Hgone\n\xe2\x80\xaetxt.exe\n\r\x1b]0;title\x07\n" + b"\x1b[?1049h\n")
    harness.file(".ringfence/config.toml", 'model = "openai:\\u001b[2Jx\\u202e"\n')
    harness.file(".mcp.json", '{"mcpServers": {"a\\u001b[2J\\n": {"command": "x\\u0007\\ny"}}}')
    screen.run("trust")
    seen = screen.until(QUESTION, "this repository contains files")
    assert "fine␛[2J␛[Hgone" in seen
    assert "<U+202E>txt.exe" in seen
    screen.type("show")
    seen = screen.asked("␛[?1049h", f"{QUESTION} show")
    assert "this repository contains files" in seen, "the screen was not cleared"
    screen.type("quit")
    screen.until("LEFT 0")
