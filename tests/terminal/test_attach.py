"""Tests of `agent attach` in real terminals: two of them at one session, detaching, resuming, and what is typed early."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli_harness import AGENT
from tests.support.hosted import HostedHarness, gone, hosted_harness, runs, says
from tests.support.layers import overlays_work
from tests.support.terminal import Terminal
from tests.support.terminal_screen import Screen, ScreenTerminal
from tests.support.tmux import Tmux

ALLOW = "allow once? [y/N"


@pytest.fixture
def user(tmp_path: Path) -> Iterator[HostedHarness]:
    with hosted_harness(tmp_path) as made:
        yield made


def environ(user: HostedHarness) -> dict[str, str]:
    return {**user.cli.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}


def window(user: HostedHarness, *words: str) -> ScreenTerminal:
    return ScreenTerminal(user.cli.work, environ(user), AGENT, "attach", *words)


def asked(window: Screen, text: str) -> str:
    """Wait for the question about a command with this text, after all other questions, and return the screen."""
    return window.until_whole(lambda screen: ALLOW in screen.rpartition(text)[2] and text in screen)


def answer(window: Screen, text: str) -> None:
    window.offer(text)
    window.type("Enter")


def test_two_terminals_see_one_session_and_one_of_them_answers(user: HostedHarness) -> None:
    model = user.model(runs("touch made && echo it is made"), says("All is done."), runs("touch second"), says("Over."))
    id = user.start("--model", model)
    user.wait("question", id)
    first, second = window(user, id[:6]), window(user)
    try:
        for each in (first, second):
            screen = asked(each, "Creates made")
            assert "> begin" in screen
            assert "s  exactly `touch made`, in this session" in screen
        answer(second, "y")
        assert "answered by terminal /dev/pts/" in first.until("All is done.")
        shown = second.until("All is done.")
        assert "you approved" in shown
        assert "it is made" in shown
        assert (user.cli.work / "made").exists()
        first.type("and once more", "Enter")
        second.until("> and once more")
        for each in (first, second):
            asked(each, "Creates second")
        answer(first, "not this file")
        assert "declined: not this file" in second.until("Over.")
        assert "you declined: not this file" in first.until("Over.")
        assert not (user.cli.work / "second").exists()
        first.type("C-d")
        assert "detached; the session goes on" in first.until("LEFT 0")
        second.until("detached")
        gone(lambda: len(user.rows()[0]["clients"]) != 1)  # the description follows a moment after the clients
        second.type("/quit", "Enter")
        assert "the session has ended; to continue: agent attach" in second.until("LEFT 0")
        assert user.rows() == []
    finally:
        first.close()
        second.close()


def _has_prompt(screen: str) -> bool:
    return screen.rstrip().rpartition("\n")[2] == ">"


@pytest.mark.threat("T279")
def test_what_was_typed_before_the_question_answers_nothing(user: HostedHarness) -> None:
    id = user.start("--model", user.model(says("Hello."), runs("touch made"), says("Done.")), "--mode", "default")
    user.wait("idle", id)
    terminal = window(user, id)
    try:
        terminal.until("attached to")
        terminal.until_screen(_has_prompt)
        viewer = user.client(id, "viewer", "view")
        viewer.until("attached")
        terminal.type("go on", "Enter")
        # The user goes on typing until after the question has appeared. After half a second without a key, one counts.
        appeared = threading.Thread(target=viewer.until, args=("question_asked",))
        appeared.start()
        while appeared.is_alive():
            terminal.type("y", "Enter")
            appeared.join(0.1)
        terminal.type("y", "Enter")
        terminal.until(ALLOW)
        terminal.rest(1.0)  # the question accepts keys: the paste alone is what is tried here
        terminal.send("\x1b[200~y\r\x1b[201~y\r")  # a key right after a paste is part of what was typed ahead
        terminal.offer("y")  # it stands at the question, so all keys before it have been handled
        (row,) = user.rows()
        assert row["state"] == "question"
        assert not (user.cli.work / "made").exists()
        terminal.type("Enter")
        terminal.until("you approved")
        terminal.type("C-c", "C-d")  # Ctrl-C discards what was typed early and is in the line again
        terminal.until("LEFT 0")
    finally:
        terminal.close()


def test_ctrl_c_stops_the_turn_and_the_client_stays(user: HostedHarness) -> None:
    id = user.start("--model", user.model(says("Hello."), runs("touch made"), says("Done.")))
    user.wait("idle", id)
    viewer = user.client(id, "viewer", "view")
    viewer.until("attached")
    terminal = window(user, id)
    try:
        terminal.until_screen(_has_prompt)
        terminal.type("C-c")
        terminal.until("no turn is in progress")
        terminal.type("go on", "Enter")
        terminal.until(ALLOW)
        terminal.insist("C-c", holds=_has_prompt)  # the closed question stays on the screen, above the prompt
        assert viewer.until("question_closed")["answer"] != "yes"
        user.wait("idle", id)
        terminal.type("C-d")
        terminal.until("LEFT 0")
        assert not (user.cli.work / "made").exists()
    finally:
        terminal.close()


def test_the_session_goes_on_when_its_terminal_is_killed(user: HostedHarness) -> None:
    id = user.start("--model", user.model(says("Hello."), runs("touch made"), says("Done.")))
    user.wait("idle", id)
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP):
        terminal = Terminal([AGENT, "attach", id], user.cli.work, environ(user), execve=True)
        terminal.until("attached to")
        os.kill(terminal.pid, number)
        terminal.end()
        terminal.close()
    gone(lambda: user.rows()[0]["clients"])
    assert user.rows()[0]["id"] == id


def test_it_is_suspended_and_continued_by_a_shell(user: HostedHarness) -> None:
    id = user.start("--model", user.model(says("Hello."), says("Again.")))
    user.wait("idle", id)
    shell = Terminal(["/bin/bash", "--norc", "--noprofile", "-i"], user.cli.work, {**environ(user), "PS1": "shell$ "})
    try:
        shell.until("shell$ ")
        shell.type(f"{AGENT} attach {id}\r")
        shell.until("attached to")
        shell.until("[0m>")
        for times in (1, 2):
            shell.type("\x1a")
            shell.until("Stopped", 2 * times - 1)
            shell.type("jobs\r")
            shell.until("Stopped", 2 * times)
            drawn = shell.seen.count("[0m>")
            shell.type("fg\r")
            shell.until("[0m>", drawn + 1)
        shell.type("go on\r")
        shell.until("Again.")
        shell.type("\x04")
        shell.until("detached; the session goes on")
        shell.type("exit 7\r")
        assert shell.end() == 7
    finally:
        shell.close()


def test_without_a_terminal_the_error_names_the_other_ways(user: HostedHarness) -> None:
    done = user.cli.agent("attach")
    assert done.returncode == 2
    assert "agent logs" in done.stderr
    assert "agent attach --json" in done.stderr


@pytest.mark.threat("T313")
@pytest.mark.skipif(not overlays_work(), reason="this user cannot mount an overlay")
def test_an_attached_terminal_tries_a_command(user: HostedHarness) -> None:
    id = user.start("--model", user.model(runs("touch one two && echo it is made"), says("All is done.")))
    user.wait("question", id)
    first = Tmux(user.cli.base, user.cli.work, environ(user), AGENT, "attach", id[:6])
    second = window(user)
    try:
        for each in (first, second):
            each.until(ALLOW)
            each.until("t  try it first")
        answer(first, "t")
        for each in (first, second):
            each.until("keep these changes?")
            screen = each.until("1  write    one")
            assert "Tried without network: exit code 0, 2 changes wait" in screen
            assert "| it is made" in screen
        answer(second, "2")
        first.until("All is done.")
        second.until("All is done.")
        assert (user.cli.work / "two").exists()
        assert not (user.cli.work / "one").exists()
    finally:
        first.close()
        second.close()
