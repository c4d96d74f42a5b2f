"""Tests of `agent approve`: another terminal answers a question of `agent mcp serve`."""

import asyncio
import itertools
import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from runner.approval.approver import Question
from runner.approval.open_questions import NotOpen, OpenQuestions, question_text
from runner.approval.remembered import NOTHING
from runner.event_values import FileChange
from tests.support.cards import card_of
from tests.support.cli_harness import AGENT
from tests.support.grant_questions import question
from tests.support.terminal import Terminal
from tests.support.tool_client import LONGEST, ToolClient, outcome, workspace
from tests.support.waiting import until

pytest.importorskip("mcp")  # an extra
_TOKENS = itertools.count()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolClient]:
    """A client whose forms do not count."""
    place = workspace(tmp_path_factory.mktemp("approve"))
    with ToolClient(place, "--ask", "terminal", "--ask-timeout", f"{LONGEST * 60:.0f}s") as made:
        yield made


def asked(client: ToolClient, name: str) -> tuple[int, str]:
    """Call `write`, and return the id of the call and the name of its question."""
    token = f"{name} {next(_TOKENS)}"
    id = client.call("write", {"path": name, "content": "one\n"}, token=token)
    said = client.progress(token)
    assert "`agent approve " in said
    return id, said.partition("`agent approve ")[2].partition("`")[0]


def test_the_open_questions_are_listed(client: ToolClient) -> None:
    id, name = asked(client, "listed.txt")
    (row,) = map(json.loads, client.place.agent("approve", "--list", "--json").stdout.splitlines())
    assert row.pop("seconds_left") <= LONGEST * 60
    assert row.pop("session").startswith(name.partition(".")[0])
    assert row == {"id": name, "client": "probe 1.0", "tier": "write", "line": "Creates listed.txt"}
    assert name in client.place.agent("approve", "--list").stdout
    assert client.place.agent("approve", name, "--no").stdout == "refused\n"
    failed, said = outcome(client.message(id=id))
    assert (failed, "the user at the terminal refused" in said) == (True, True), said
    assert client.place.agent("approve", "--list").stdout == "no question is open\n"


# the words after `agent approve`, with {name}; whether the question is answered with yes
# fmt: off
ANSWERS = [
    (("{name}", "--yes"),           True,  "yes"),
    (("{name}", "--no"),            False, "no"),
]
WRONG = [
    (("{name}", "--yes", "--no"),   2, "exclude each other",         "both answers"),
    (("--yes",),                    2, "names no question",          "no name"),
    (("--yes", "--list"),           2, "names no question",          "an answer to a list"),
    (("{name}",),                   2, "is no terminal",             "a name without a terminal"),
    ((),                            2, "is no terminal",             "nothing without a terminal"),
    (("{name}0", "--yes"),          1, "there is no open question",  "another number"),
    (("00000000.q1", "--yes"),      1, "there is no open question",  "another session"),
    (("q1", "--yes"),               1, "there is no open question",  "a part of a name"),
]
# fmt: on


@pytest.mark.threat("T198")
@pytest.mark.parametrize(("words", "yes", "why"), ANSWERS, ids=[row[-1] for row in ANSWERS])
def test_an_answer_counts_for_one_question_and_once(
    client: ToolClient, words: tuple[str, ...], yes: bool, why: str
) -> None:
    file, other = f"{why}.txt", f"{why}-other.txt"
    first, name = asked(client, file)
    second, later = asked(client, other)
    assert client.place.agent("approve", *(word.format(name=name) for word in words)).returncode == 0
    assert outcome(client.message(id=first))[0] is not yes
    again = client.place.agent("approve", name, "--yes")
    assert (again.returncode, "there is no open question" in again.stderr) == (1, True)
    assert client.unread(second)
    assert (client.place.work / file).exists() == yes
    client.place.agent("approve", later, "--no")
    assert outcome(client.message(id=second))[0] is True
    assert not (client.place.work / other).exists()


@pytest.mark.threat("T198")
def test_a_wrong_command_line_answers_nothing(client: ToolClient) -> None:
    id, name = asked(client, "wrong.txt")
    for words, code, said, why in WRONG:
        done = client.place.agent("approve", *(word.format(name=name) for word in words))
        assert (done.returncode, said in done.stderr) == (code, True), (why, done.stderr)
    assert client.unread(id)
    client.place.agent("approve", name, "--no")
    assert outcome(client.message(id=id))[0] is True


@pytest.mark.threat("T197")
def test_a_form_of_the_client_does_not_count(client: ToolClient) -> None:
    id, name = asked(client, "form.txt")
    answer = {"action": "accept", "content": {"answer": "yes"}}
    forged = client.call("write", {"path": "form.txt", "content": "one\n"}, inputResponses={name: answer})
    assert "no open question" in outcome(client.message(id=forged))[1]
    assert client.unread(id)
    client.place.agent("approve", name, "--no")
    assert outcome(client.message(id=id))[0] is True
    assert not (client.place.work / "form.txt").exists()


@pytest.mark.parametrize(("typed", "yes"), [("y\n", True), ("\n", False), ("perhaps\nn\n", False)])
def test_at_a_terminal_the_whole_question_is_shown(client: ToolClient, typed: str, yes: bool) -> None:
    (client.place.work / "shown.txt").unlink(missing_ok=True)
    id, _ = asked(client, "shown.txt")
    screen = Terminal([AGENT, "approve"], client.place.work, {**client.place.environ, "TERM": "xterm"})
    try:
        for number, line in enumerate(typed.splitlines(keepends=True), 1):
            screen.until("allow once? [y/N]: ", number)
            screen.type(line)  # the input is emptied before the prompt is shown
        assert screen.end() == 0
    finally:
        screen.close()
    for text in ("probe 1.0 asks:", "Creates shown.txt", "write shown.txt (1 line)", "+one", "mode default asks"):
        assert text in screen.seen
    assert outcome(client.message(id=id))[0] is not yes
    assert (client.place.work / "shown.txt").exists() == yes


def test_a_long_change_is_shown_whole() -> None:
    change = FileChange("a.txt", True, 300, 0, tuple(f"+line {number}" for number in range(300)))
    card = replace(card_of("npm test"), change=change)
    text = question_text(Question("c1", question("npm test"), NOTHING, card, id="q1"), 80)
    assert [f"  +line {number}" in text.split("\n") for number in range(300)] == [True] * 300


@pytest.mark.threat("T197")
def test_a_cancelled_call_withdraws_its_question(client: ToolClient) -> None:
    id, name = asked(client, "withdrawn.txt")
    client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
    assert client.called("read", {"path": "a.txt"})[0] is False
    until(lambda: client.place.agent("approve", "--list").stdout == "no question is open\n", of=client.process)
    assert client.place.agent("approve", name, "--yes").returncode == 1
    assert not (client.place.work / "withdrawn.txt").exists()


@pytest.mark.threat("T198")
def test_only_yes_and_no_are_answers() -> None:
    async def work() -> None:
        questions = OpenQuestions()
        asked = Question("c1", question("npm test"), NOTHING, card_of("npm test"), id="q7")
        assert await questions.ask(asked, "probe", 5) is None  # no terminal can reach the session
        questions.open_as("0123456789abcdef")
        waiting = asyncio.create_task(questions.ask(asked, "probe", LONGEST))
        await asyncio.sleep(0)
        for said in (True, 1, None, "YES", "y", "", ["yes"], {"answer": "yes"}):
            with pytest.raises(NotOpen):
                questions.answer("01234567.q7", said)
        for name in ("01234567.q8", "q7", "01234567.q7 ", ""):
            with pytest.raises(NotOpen):
                questions.answer(name, "yes")
        assert not waiting.done()
        questions.answer("01234567.q7", "no")
        with pytest.raises(NotOpen):
            questions.answer("01234567.q7", "yes")
        assert await waiting is False
        assert await questions.ask(asked, "probe", 0.01) is None  # the time is over
        assert questions.rows() == []

    asyncio.run(work())
