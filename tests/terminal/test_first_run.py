"""Tests of the first minutes of a new user at a terminal: from `agent` to the first answer, by what the screen shows."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.frontends.tui.panel import GUARD
from tests.support.model_machine import ANSWER, machine
from tests.support.places import ROOT
from tests.support.terminal_screen import ScreenTerminal

BIN = Path(sys.executable).parent
KEY = "sk-Zq81mVxT04Wr9dLkwrong"
pytestmark = pytest.mark.thorough
Start = Callable[..., ScreenTerminal]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that runs words in a terminal, in a new project on a machine with these model servers only."""
    windows: list[ScreenTerminal] = []
    (work := tmp_path / "project").mkdir()
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    (home := tmp_path / "home").mkdir()

    def begin(*words: str, servers: str = "none", **more: str) -> ScreenTerminal:
        environ = {
            "PATH": f"{BIN}:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(home), "LANG": "C.UTF-8", "TERM": "xterm-256color",
            "SHELL": "/bin/bash", "PS1": "$ ", "SSL_CERT_FILE": str(tmp_path / "cert.pem"), **more,
        }  # fmt: skip
        window = ScreenTerminal(work, environ, *machine(tmp_path, servers), *words, size=(100, 30))
        windows.append(window)
        return window

    yield begin
    for window in windows:
        window.close()


def test_from_a_key_to_the_first_answer(start: Start) -> None:
    """With nothing else than `agent`, the prompt that it shows, and a key in the environment, without long computations."""
    window = start("agent", servers="anthropic", ANTHROPIC_API_KEY=KEY)
    window.until("\n>")
    window.type("hello", "Enter")
    screen = window.until("done (1 request")
    assert f"{ANSWER} claude-sonnet-5-5" in screen
    assert "model      anthropic:claude-sonnet-5-5, the default: a key for it is in `ANTHROPIC_API_KEY`" in screen
    assert "sandbox    full" in screen
    assert KEY[-8:] not in screen
    assert seconds(window) < 20


def test_from_a_local_server_to_the_first_answer(start: Start) -> None:
    """With only a model server on this machine: the list offers it, and Enter takes it, without long computations."""
    window = start("agent", servers="ollama")
    screen = window.until("Enter selects")
    assert "no model is set up yet" in screen
    assert "opening the session" not in window.screen(), "it waits for the user"
    assert re.search(r"> ollama +on this machine: qwen3:8b\n", screen), "without the model for embeddings"
    assert len(re.findall(r"^[> ] (?:ollama|set a key|demo)  ", screen, re.MULTILINE)) == 3
    window.press("Enter", "model      ollama:qwen3:8b")
    window.type("hello", "Enter")
    assert f"{ANSWER} qwen3:8b" in window.until("done (1 request")
    assert seconds(window) < 20


def seconds(window: ScreenTerminal) -> float:
    """Return the processor time of the program that leads the terminal, and of the children that it has waited for."""
    fields = Path(f"/proc/{window.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")  # SOURCE: proc(5): utime, stime, cutime, cstime


def test_the_readme_word_by_word(start: Start) -> None:
    """Every line of the two blocks with a model, typed as it stands there. Only `ollama pull` is left out."""
    section = (ROOT / "README.md").read_text("utf-8").partition("## First five minutes")[2].partition("\n## ")[0]
    with_key, local = re.findall(r"```sh\n(export .*?|ollama .*?)```", section, re.DOTALL)
    window = start("bash", "--norc", "-i", servers="anthropic,ollama")
    answers = 0

    def answered() -> None:
        nonlocal answers
        answers += 1
        window.until_whole(lambda screen: screen.count("done (1 request") == answers)

    for line in (*local.splitlines()[1:], *with_key.splitlines()):
        command = line.partition("  #")[0].strip()
        window.type(line, "Enter")
        if command == "agent" and line in local:
            window.until("no model is set up yet")
            window.press("Enter", "model      ollama:qwen3:8b")
        if command == "agent":
            window.until("? help")
            window.type("hello", "Enter")
        if command.startswith("agent"):
            answered()
        if command.startswith("agent") and " run " not in command:
            window.type("C-d")
            window.until_whole(lambda screen: screen.count("to continue: agent --resume") == min(answers, 3))
    screen = window.whole()
    assert screen.count(f"{ANSWER} qwen3:8b") == 1
    assert screen.count(f"{ANSWER} claude-sonnet-5-5") == 3
    assert "agent: " not in screen, "no error"


def test_without_anything_there_is_a_way_on(start: Start) -> None:
    window = start("agent")
    screen = window.until("Enter selects")
    assert "export ANTHROPIC_API_KEY=..." in screen, "there is no keyring, so no login is offered"
    assert "log in" not in screen
    window.type("x", "y", "Enter")  # typed for something else
    window.until("this key was ignored: it ")
    window.rest(GUARD)
    window.type("C-u", "d")
    for shown, letter in (("? d", "e"), ("? de", "m")):  # one letter after the other
        window.until_screen(lambda screen, shown=shown: f"{shown}\n" in screen)
        window.type(letter)
    window.until_whole(lambda screen: "? dem" in screen and "\n> demo" in screen)
    window.press("Enter", "Every promise held.")
    window.until("LEFT 0")


def test_no_choice_is_an_error_that_says_what_to_set(start: Start) -> None:
    window = start("agent")
    window.until("Enter selects")
    window.press("Escape", "LEFT 2")
    assert "set `ANTHROPIC_API_KEY`, `OPENAI_API_KEY`" in window.whole()
    assert max(map(len, window.screen().splitlines())) <= 100
    text = window.screen().partition("agent: ")[2]
    assert all(not word.endswith("-") for word in text.split("\n")), "wrapped at words"


def test_several_keys_are_a_list(start: Start) -> None:
    window = start("agent", "fix the bug", servers="anthropic", ANTHROPIC_API_KEY=KEY, OPENAI_API_KEY=KEY)
    screen = window.until("Enter selects")
    assert "waits: fix the bug" in screen
    assert "openai:gpt-6.2-sol" in screen
    window.press("Enter", f"{ANSWER} claude-sonnet-5-5")
    assert window.whole().count("> fix the bug") == 1
    assert KEY[-8:] not in window.whole()


@pytest.mark.parametrize("plain", [False, True])
def test_a_prompt_on_the_command_line_begins_a_conversation(start: Start, plain: bool) -> None:
    words = ("agent", "--plain", "say hello") if plain else ("agent", "say hello")
    window = start(*words, servers="anthropic", ANTHROPIC_API_KEY=KEY)
    screen = window.until("done (1 request")
    assert "> say hello" in screen
    window.type("and again", "Enter")
    window.until_whole(lambda screen: screen.count("done (1 request") == 2)
    if plain:
        window.leave()  # between two prompts the key would be nobody's
    else:
        window.type("C-d")
        window.until("LEFT 0")


def test_a_home_folder_is_refused_before_the_model_is_asked(start: Start, tmp_path: Path) -> None:
    window = start("bash", "-c", "cd && agent", servers="anthropic", ANTHROPIC_API_KEY=KEY)
    window.until("LEFT 2")
    screen = " ".join(window.whole().split())
    assert "cannot be the working folder" in screen
    assert "--cwd FOLDER" in screen
    assert ANSWER not in screen
    assert os.listdir(tmp_path / "home") == [] or ".local" in os.listdir(tmp_path / "home")


def test_the_hint_at_the_end_continues_the_session(start: Start) -> None:
    window = start("bash", "--norc", "-i", servers="ollama")
    window.type("agent --model ollama:qwen3:8b -- hello", "Enter")
    window.until("done (1 request")
    window.type("C-d")
    window.until_whole(lambda screen: "to continue: agent --resume" in screen and screen.rstrip()[-1:] in ("$", "#"))
    found = re.search(r"to continue: (agent --resume [0-9a-f]+)", window.whole())
    assert found is not None
    window.type(found[1], "Enter")
    window.until("resumed")
    window.type("again", "Enter")
    window.until_whole(lambda screen: screen.count("done (1 request") == 2)
    assert window.whole().count(f"{ANSWER} qwen3:8b") >= 2
