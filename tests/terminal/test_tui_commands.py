"""Golden screens of the answers to /commands and of lists, at 80 columns, from the real program."""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import forked_agent
from tests.support.places import TESTS
from tests.support.screen_harness import AGENT, ScreenHarness, bash, leave
from tests.support.terminal_screen import Screen

GOLDEN = TESTS / "golden" / "screen" / "commands.txt"
ANSWER = "It **works**.\n\n| file | change |\n|---|---|\n| calc.py | `add` adds |\n"
TURNS: list[dict[str, object]] = [
    bash("cat /etc/shadow", "I look."),
    bash("touch empty; mkdir -p made; echo 1 > made/one"),
    {"text": ANSWER, "usage": {"input": 8000, "output": 40}},
]
# fmt: off
COMMANDS = [  # what is typed, the text that ends its answer
    ("/cost",      "cost "),
    ("/context",   "/context PART shows its text"),
    ("/diff",      "+1"),
    ("/why",       "shows the whole record"),
    ("/audit",     "exit 0"),
    ("/help",      "Ctrl+Z"),
    ("/sandbox",   "/sandbox COMMAND shows"),
]
LISTS = [("/mode", "the mode is "), ("/thinking", "the thinking level is "), ("/model", "the model is ")]
# fmt: on


@pytest.fixture
def short() -> Iterator[ScreenHarness]:
    """A harness whose path has the same length everywhere, since it decides where lines are wrapped."""
    base = Path(tempfile.mkdtemp(prefix="g-", dir="/var/tmp"))
    harness = ScreenHarness(base)
    yield harness
    for window in harness.windows:
        window.close()
    shutil.rmtree(base)


def masked(text: str, base: Path) -> str:
    """Return `text` with the values that differ from run to run replaced by others of the same width."""
    text = text.replace(str(base), "/var/tmp/g-00000000"[: len(str(base))])
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "2026-01-02 03:04", text)
    text = re.sub(r"(?<=  )\d\d-\d\d \d\d:\d\d", "01-02 03:04", text)
    text = re.sub(r"\b[0-9a-f]{8}(?=:?  ?|:)(?=.*(?:UTC|prompt))", "0123abcd", text)
    text = re.sub(r"(?<=to )\d\d:\d\d(?= UTC)", "03:05", text)
    text = re.sub(r"after \d\.\d\d s|\bok, \d+ ms", "TIME", text)
    text = re.sub(r"(?m)^(  \w+)( +[0-9,]+)(?=  \w)", lambda row: row[1] + "N".rjust(len(row[2])), text)
    text = re.sub(r"enforced by [^\n]+(\n {13,}\S[^\n]*)*", "enforced by LIMITS", text)
    return re.sub(r"~?\d+k(?= ·)", "8k", text)


@pytest.mark.thorough
def test_the_answers_of_commands_and_the_lists_are_golden(short: ScreenHarness) -> None:
    (short.work / "calc.py").write_text("def add(a, b):\n    return a + b\n")
    seen: list[str] = []
    window = short.start(TURNS, "--mode", "trust-project", size=(80, 24))
    window.until("trust-project ·")
    window.type("fix add", "Enter")
    window.until("done (3 requests, 1 denied")
    for line, end in COMMANDS:
        window.type(line, "Enter")
        answer = answered(window, line, end)
        seen.append(f"==== {line}\n{answer}")
    for line, end in LISTS:
        window.type(line, "Enter")
        window.until("Enter selects, Escape cancels, letters search")
        seen.append(f"==== {line}\n{lists(window)}")
        window.type("Escape")
        window.until(end)
        window.gone("Enter selects")
    window.type("/")
    window.until("1 of 39")
    seen.append(f"==== the menu\n{window.screen().rpartition('> /')[2].rstrip()}")
    window.type("Escape")
    leave(window)
    done = forked_agent.run([AGENT, "sessions"], cwd=short.work, env=short.environ, capture_output=True, text=True)
    seen.append(f"==== agent sessions\n{done.stdout.rstrip()}")
    window = short.start([{"text": "never"}], "--resume", size=(80, 24))
    window.until("Enter selects")
    assert "^[" not in window.screen(), "the terminal did not show its reply to the program's query"
    seen.append(f"==== --resume\n{lists(window)}")
    window.type("Enter")
    window.until("resumed ")
    window.until("default ·")
    recalled = "> " + window.until("").partition("\n> ")[2].rstrip()
    seen.append(f"==== the resumed session\n{recalled}")
    leave(window)
    text = masked("\n\n".join(seen) + "\n", short.base)
    text = "\n".join(line.rstrip() for line in text.split("\n"))
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(text, "utf-8")
    assert text == GOLDEN.read_text("utf-8"), f"UPDATE_GOLDEN=1 writes {GOLDEN.name} anew"


def answered(window: Screen, line: str, end: str) -> str:
    """Return the answer to the command `line`, once it contains `end`."""
    whole = window.until_whole(lambda screen: end in screen.rpartition(f"> {line}\n")[2])
    return whole.rpartition(f"> {line}\n")[2].partition("\n>\n")[0].strip("\n")


def lists(window: Screen) -> str:
    """Return the rows of the open list, without those of the scrollback."""
    rows = window.screen().rstrip().split("\n")
    query = max(at for at, row in enumerate(rows) if row.rstrip() == "?")
    return "\n".join(rows[query - 1 :])
