"""Tests of the question after a refused connection in a conversation: on the screen, in plain lines and as JSON."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support import forked_agent
from tests.support.cli_harness import PATH
from tests.support.package_registry import HOST, registry_for
from tests.support.screen_harness import AGENT, ScreenHarness, bash, leave
from tests.support.terminal import Terminal

TURNS = [bash("npx ringtool", "I fetch it."), {"text": "It is over."}]
MODE = ("--mode", "trust-project")


@pytest.fixture
def asked(harness: ScreenHarness) -> Iterator[list[str]]:
    """Return the list of the requests that reach the registry of the user's project."""
    harness.environ["PATH"] = PATH
    with registry_for(harness.work, harness.base / "home/.config/ringfence") as requests:
        yield requests


def command(harness: ScreenHarness, *words: str) -> list[str]:
    script = harness.base / "script.json"
    script.write_text(json.dumps({"turn": TURNS}))
    return [AGENT, *words, "--model", f"scripted:{script}", *MODE]


def runs(harness: ScreenHarness) -> list[tuple[str, list[str]]]:
    """Return the recorded decisions, oldest first: the verdict and the rights that answers added."""
    done = forked_agent.run(
        [AGENT, "audit", "--json"], cwd=harness.work, env=harness.environ, capture_output=True, text=True, check=True
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return [(row["verdict"], row["typed"]) for row in reversed(rows) if row["kind"] == "decided"]


@contextmanager
def plain(harness: ScreenHarness) -> Iterator[Terminal]:
    terminal = Terminal(command(harness, "--plain"), harness.work, {**harness.environ, "TERM": "xterm"})
    try:
        terminal.until(">")
        terminal.type("go\r")
        yield terminal
    finally:
        terminal.close()


TWICE = [("allow", []), ("allow", [f"--host GET {HOST}/ringtool"])]
REFUSED = [("allow", []), ("deny", [f"--host GET {HOST}/ringtool"])]


@pytest.mark.thorough
@pytest.mark.threat("T165")
def test_the_screen_asks_once_and_runs_it_again(harness: ScreenHarness, asked: list[str]) -> None:
    window = harness.start(TURNS, *MODE)
    window.type("go", "Enter")
    card = " ".join(window.until("y yes, once").split())
    for part in (HOST, "npx ringtool", "the action ran and was stopped", "reported by the sandbox"):
        assert part in card
    assert "in this session" not in card, "nothing is remembered"
    assert asked == [], "no request left the sandbox before the approval"
    window.press("y", "the action runs once more")
    assert "fetched and run" in window.until("It is over.")
    leave(window)
    assert runs(harness) == TWICE


@pytest.mark.thorough
@pytest.mark.threat("T165")
@pytest.mark.parametrize(("answer", "expected"), [("y", TWICE), ("n", REFUSED)])
def test_plain_lines_ask_once_and_run_it_again_only_after_a_yes(
    harness: ScreenHarness, asked: list[str], answer: str, expected: list[tuple[str, list[str]]]
) -> None:
    with plain(harness) as terminal:
        terminal.until("say what to do instead:")
        assert HOST in terminal.seen
        assert asked == []
        terminal.type(f"{answer}\r")
        terminal.until("It is over.")
        assert ("fetched and run" in terminal.seen) is (answer == "y")
        terminal.type("/quit\r")
        assert terminal.end() == 0
    assert terminal.seen.count("the action ran and was stopped") == 1
    assert bool(asked) is (answer == "y")
    assert runs(harness) == expected


@pytest.mark.threat("T165")
@pytest.mark.parametrize(("answer", "expected"), [("yes", TWICE), ("no", REFUSED)])
def test_json_asks_once_and_runs_it_again_only_after_a_yes(
    harness: ScreenHarness, asked: list[str], answer: str, expected: list[tuple[str, list[str]]]
) -> None:
    with forked_agent.Process(
        command(harness, "--json"), cwd=harness.work, env=harness.environ, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        print(json.dumps({"type": "prompt", "text": "go"}), file=process.stdin, flush=True)
        events = []
        for line in process.stdout:
            events.append(event := json.loads(line))
            if event["type"] == "question_asked":
                assert asked == []
                print(
                    json.dumps({"type": "answer", "id": event["id"], "answer": answer}), file=process.stdin, flush=True
                )
            if event["type"] == "run_ended":
                print(json.dumps({"type": "quit"}), file=process.stdin, flush=True)
    questions = [event["card"] for event in events if event["type"] == "question_asked"]
    assert [HOST in json.dumps(card) for card in questions] == [True]
    assert process.returncode == 0
    assert ("fetched and run" in json.dumps(events)) is (answer == "yes")
    assert runs(harness) == expected
