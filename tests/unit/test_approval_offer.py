"""Tests of typed answers to a question with choices: only a letter remembers an approval, only `d` remembers a
refusal, digits answer nothing.
"""

import asyncio
import io
import re

import pytest
from rich.console import Console

from policy.grants.grant import GrantHolder, GrantScope
from policy.model.tier import Ruling
from runner.approval.approver import Answer, No, Yes
from runner.approval.remembered import NOTHING, Offer, offer
from runner.approval.terminal import Terminal
from runner.gate.grants.store import GrantStore, RememberedAnswer
from tests.support.grant_questions import evaluation_context, question
from tests.support.terminal_user import ScriptedUser

ASK = question("npm test")
STORE = GrantStore(None, GrantHolder("/w", "main", "s"), lambda text: None)
OFFER = offer(evaluation_context(), ASK, (GrantScope.SESSION, GrantScope.PROJECT), STORE)
DAY = 86_400.0


def asked(*lines: str, given: Offer = OFFER) -> tuple[Answer, str]:
    screen = io.StringIO()
    terminal = Terminal(Console(file=screen, width=200), ScriptedUser(*lines))
    return asyncio.run(terminal.ask(ASK, given)), screen.getvalue()


def kept(
    choice: int, span: GrantScope, life: float | None = None, uses: int | None = None, reason: str = ""
) -> tuple[type, RememberedAnswer]:
    return Yes, RememberedAnswer(OFFER.choices[choice].whats, Ruling.ALLOW, span, life, uses, reason)


def never(span: GrantScope, life: float | None = None, reason: str = "") -> tuple[type, RememberedAnswer]:
    assert OFFER.never is not None
    return No, RememberedAnswer(OFFER.never.whats, Ruling.DENY, span, life, None, reason)


# fmt: off
PICKED: list[tuple[str, tuple[type, RememberedAnswer], str]] = [
    ("s",                        kept(0, GrantScope.SESSION),                           "the narrowest"),
    (" p ",                      kept(0, GrantScope.PROJECT),                           "the same for the project"),
    ("S",                        kept(1, GrantScope.SESSION),                           "with any flags"),
    ("P",                        kept(1, GrantScope.PROJECT),                           "with any flags, for the project"),
    ("p 7d",                     kept(0, GrantScope.PROJECT, 7 * DAY),                  "a week"),
    ("s 12h 3x",                 kept(0, GrantScope.SESSION, DAY / 2, 3),               "half a day, three times"),
    ("p user",                   kept(0, GrantScope.USER),                              "for every folder"),
    ("s project 2w",             kept(0, GrantScope.PROJECT, 14 * DAY),                 "for the project after all"),
    ("s 3x because of x and 7d", kept(0, GrantScope.SESSION, None, 3, "of x and 7d"),   "what is said as a reason stays one"),
    ("d",                        never(GrantScope.SESSION),                             "never in this session"),
    ("d project because no",     never(GrantScope.PROJECT, None, "no"),                 "never in this project"),
    ("d 1h",                     never(GrantScope.SESSION, DAY / 24),                   "not for an hour"),
]
FEEDBACK = [
    ("2 files only, please", "a sentence that begins with a number"),
    ("1x", "not a number by itself"),
    ("s 7", "no time"),
    ("s 0d", "no time at all"),
    ("s 7d 30m", "two times"),
    ("s 2x 3x", "two counts"),
    ("p project user", "two scopes, and the second is the broader"),
    ("s 9999w", "longer than anybody means"),
    ("s because", "a reason that is none"),
    ("s session", "a scope that its letter says already"),
    ("sS", "two letters"),
    ("-1", "less than one"),
    ("d 3x", "a no is not counted"),
    ("do it otherwise", "a sentence that begins with d"),
]
# fmt: on


@pytest.mark.threat("T35")
@pytest.mark.parametrize(("line", "expected", "why"), PICKED, ids=[why for *_, why in PICKED])
def test_what_is_kept(line: str, expected: tuple[type, RememberedAnswer], why: str) -> None:
    answer, _ = asked(line)
    assert isinstance(answer, Yes | No)
    assert (type(answer), answer.keep) == expected


@pytest.mark.threat("T35")
@pytest.mark.parametrize(("line", "why"), FEEDBACK, ids=[why for _, why in FEEDBACK])
def test_anything_else_is_a_no_in_the_persons_words(line: str, why: str) -> None:
    assert asked(line)[0] == No(line)


@pytest.mark.threat("T35")
@pytest.mark.parametrize("given", [OFFER, NOTHING], ids=["choices", "none"])
@pytest.mark.parametrize(
    "line", ["0", "1", "2", "4", "5", "12", "9" * 5000, "١", "１", "²", "2 7d", "1 3x", "2 user", "2 because I say so"]
)
def test_a_number_answers_nothing(line: str, given: Offer) -> None:
    """Questions are counted with digits, so one that is meant for the second of them must not answer the first."""
    answer, screen = asked(line, "n", given=given)
    assert answer == No(), "the second line is the answer"
    assert "is not an answer" in screen
    assert asked(line, "y", given=given)[0] == Yes()


@pytest.mark.threat("T35")
@pytest.mark.parametrize("given", [OFFER, NOTHING], ids=["choices", "none"])
@pytest.mark.parametrize("line", ["t", "D", "a", "A", "e", "u", "у", "漢", "?", "-"])
def test_a_single_character_that_is_not_offered_answers_nothing(line: str, given: Offer) -> None:
    answer, screen = asked(line, "n", given=given)
    assert answer == No(), "the second line is the answer"
    assert "is not an answer" in screen
    assert asked(line, "y", given=given)[0] == Yes()


@pytest.mark.threat("T35")
def test_without_choices_their_letters_answer_nothing() -> None:
    for line in ("s", "P", "d"):
        answer, screen = asked(line, "n", given=NOTHING)
        assert answer == No()
        assert "is not an answer" in screen
        assert "in this session" not in screen


def test_the_hint_lists_every_letter_of_the_card() -> None:
    letters = re.search(r"answer (y, n, .*)", asked("5", "n")[1])
    assert letters is not None
    assert letters[1].split(", ") == ["y", "n", *OFFER.keys, "f", "x"]


@pytest.mark.threat("T38")
def test_the_choices_say_what_they_are_and_what_they_are_not() -> None:
    _, screen = asked("n")
    for part in (
        "s  this exact command, in this session",
        "p  this exact command, in this project for 30 days",
        "S  `npm test` with any flags, in this session",
        "d  no, and never in this session: `npm test`",
    ):
        assert part in screen
    assert "but not" not in screen
    explained = asked("x", "n")[1]
    assert "s  exactly `npm test`, in this session; but not `npm test --force` or `npm other`" in explained
    assert "`7d`" in explained


def test_a_yes_keeps_nothing() -> None:
    assert asked("y")[0] == Yes()


@pytest.mark.threat("T222")
def test_an_approval_for_a_sub_agent_ends_with_the_session() -> None:
    of_child = offer(evaluation_context(), ASK, (GrantScope.SESSION, GrantScope.AGENTS), STORE)
    assert of_child.keys[:4] == ("s", "g", "S", "G")
    spans = {}
    for line in ("s", "g", "s 12h 3x", "g project", "s user", "g user 1d"):
        keep = of_child.picked(line)
        spans[line] = keep.span if isinstance(keep, RememberedAnswer) else keep
    assert spans == {
        "s": GrantScope.SESSION, "g": GrantScope.AGENTS, "s 12h 3x": GrantScope.SESSION,
        "g project": None, "s user": None, "g user 1d": None,
    }  # fmt: skip
    assert any("in this session, for all agents" in line for line in of_child.lines)
