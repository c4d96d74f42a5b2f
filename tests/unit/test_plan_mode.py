"""Tests of plan mode: only an answer of the user ends it."""

from typing import Any

import pytest

from policy.model.tier import Mode
from policy.model.verdict import Problem
from runner.approval.approver import Answer, Leave, PlanAnswer, Stay, Yes, parse_plan_answer
from runner.audit.chain import AuditError
from runner.audit.decisions import deeds
from runner.audit.export.sarif import document
from runner.audit.log import AuditLog
from runner.engine.context.context import LONGEST_PLAN, PLAN_TOOL, plan_tool
from runner.events import ActionFinished, Changed, Denied, MalformedCall, PlanProposed, QuestionAnswered
from runner.messages import ToolCall
from runner.problems import Exit
from runner.providers.scripted import Turn
from tests.support.loop_harness import DONE, Make, bash

PLAN = "# Plan\n1. write it"


class Person:
    """Says yes to every question, and to a plan what it was made with."""

    name = "person"

    def __init__(self, answer: PlanAnswer) -> None:
        self.plans: list[str] = []
        self._answer = answer

    async def ask(self, *_: object) -> Answer:
        return Yes()

    async def leave_plan(self, plan: str) -> PlanAnswer:
        self.plans.append(plan)
        return self._answer


def proposing(**arguments: object) -> Turn:
    return Turn(calls=(ToolCall("", PLAN_TOOL, dict(arguments)),))


# mode, without a user, True if the tool of plan mode is named, why
GUESSED = [
    (Mode.PLAN,    False, True,  "the list of tools is the one in force"),
    (Mode.PLAN,    True,  False, "nobody could answer"),
    (Mode.DEFAULT, False, False, "there is no plan to hand over"),
]  # fmt: skip


@pytest.mark.parametrize("name", ["plan", "exit_plan_mode"])
@pytest.mark.parametrize(("mode", "unattended", "named", "why"), GUESSED, ids=[row[3] for row in GUESSED])
def test_a_model_that_guesses_the_name_is_told_the_tool_of_plan_mode(
    stage: Make, mode: Mode, unattended: bool, named: bool, why: str, name: str
) -> None:
    person = Person(Stay())
    guess = Turn(calls=(ToolCall("", name, {"plan": PLAN}),))
    found = stage(guess, DONE, mode=mode, approver=person, unattended=unattended)
    found.play()
    (told,) = found.told()
    assert ("did you mean `propose_plan`?" in told) is ("propose_plan" in told) is named, why
    assert person.plans == [], "only a call of the tool itself hands over a plan"


# fmt: off
ANSWERS = [
    (Leave(Mode.ACCEPT_EDITS), Mode.ACCEPT_EDITS, "accepted", "an approval changes the mode to what the person picked"),
    (Stay("smaller steps"),    Mode.PLAN,         "smaller steps", "the person's words reach the model"),
    (Stay(),                   Mode.PLAN,         "not accept", "a bare no changes nothing"),
]
# fmt: on


@pytest.mark.threat("T102")
@pytest.mark.parametrize(("answer", "mode", "words", "why"), ANSWERS, ids=[row[3] for row in ANSWERS])
def test_a_plan_is_left_as_the_person_says(
    stage: Make,  # the fixture
    answer: PlanAnswer,
    mode: Mode,
    words: str,
    why: str,
) -> None:
    person = Person(answer)
    found = stage(proposing(plan=PLAN), bash("touch made"), DONE, mode=Mode.PLAN, approver=person, unattended=False)
    found.play()
    assert person.plans == [PLAN]
    assert [event.plan for event in found.events if isinstance(event, PlanProposed)] == [PLAN]
    assert [event.now for event in found.events if isinstance(event, Changed)] == [mode.value] * (mode is not Mode.PLAN)
    assert words in str(found.history), why
    said = [event.feedback for event in found.events if isinstance(event, QuestionAnswered)]
    assert said == ([answer.feedback] if isinstance(answer, Stay) else []), (
        "the caller that shows it can show that as well"
    )
    ran = [event for event in found.events if isinstance(event, ActionFinished)]
    refused = [event for event in found.events if isinstance(event, Denied)]
    assert bool(ran) == (mode is not Mode.PLAN), "the next call is judged in the new mode"
    assert bool(refused) == (mode is Mode.PLAN)
    report: Any = document(deeds(found.audit), "/w")
    assert len(report["runs"][0]["results"]) == len(refused), "an answer to a plan is no finding"
    (record,) = [row.body for row in found.audit.rows(kind="planned")]
    into = mode.value if isinstance(answer, Leave) else None
    assert record["action"] == {"type": "LeavePlan", "plan": PLAN, "into": into}
    told = record["answer"]
    assert isinstance(told, dict)
    assert (told["by"], told["yes"], told["feedback"]) == (
        "person",
        into is not None,
        getattr(answer, "feedback", None),
    )


@pytest.mark.threat("T102")
def test_a_yes_that_cannot_be_recorded_leaves_nothing(
    stage: Make,  # the fixture
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object) -> int:
        raise AuditError(Problem("the disk is full", "it is", "make room"))

    monkeypatch.setattr(AuditLog, "planned", full)
    person = Person(Leave(Mode.TRUST_PROJECT))
    found = stage(proposing(plan=PLAN), bash("touch made"), DONE, mode=Mode.PLAN, approver=person, unattended=False)
    assert found.play().exit is Exit.FAILED
    assert not [event for event in found.events if isinstance(event, Changed | ActionFinished)]


# fmt: off
BROKEN = [
    ({},                                       "no plan"),
    ({"plan": "  "},                           "an empty plan"),
    ({"plan": 3},                              "no text"),
    ({"plan": PLAN, "mode": "dangerously"},    "a word that is not the model's to say"),
    ({"plan": "x" * (LONGEST_PLAN + 1)},            "a plan as long as a book"),
]
# fmt: on


@pytest.mark.threat("T102")
@pytest.mark.parametrize(("arguments", "why"), BROKEN, ids=[row[1] for row in BROKEN])
def test_a_plan_that_cannot_be_read_asks_nobody(
    stage: Make,  # the fixture
    arguments: dict[str, object],
    why: str,
) -> None:
    person = Person(Leave(Mode.TRUST_PROJECT))
    found = stage(proposing(**arguments), DONE, mode=Mode.PLAN, approver=person, unattended=False)
    found.play()
    assert person.plans == []
    assert any(isinstance(event, MalformedCall) for event in found.events), why


@pytest.mark.threat("T102")
@pytest.mark.parametrize(("mode", "unattended"), [(Mode.DEFAULT, False), (Mode.PLAN, True)])
def test_where_no_plan_is_asked_for_the_tool_does_not_exist(
    stage: Make,  # the fixture
    mode: Mode,
    unattended: bool,
) -> None:
    person = Person(Leave(Mode.TRUST_PROJECT))
    found = stage(proposing(plan=PLAN), DONE, mode=mode, approver=person, unattended=unattended)
    assert plan_tool(found.ctx.live.mode, unattended=unattended) == ()
    ending = found.play()
    assert person.plans == []
    assert ending.exit is Exit.DONE
    assert any(isinstance(event, MalformedCall) for event in found.events)


# fmt: off
TYPED = [
    ("a",             Leave(Mode.DEFAULT),       "a letter is that way"),
    ("e",             Leave(Mode.ACCEPT_EDITS),  "another"),
    ("t",             Leave(Mode.TRUST_PROJECT), "the last"),
    *[(digit,         None,                      f"{digit} is no answer, so it is asked again") for digit in "012345678"],
    ("１",            None,                      "nor is a wide digit"),
    ("accept-edits",  Leave(Mode.ACCEPT_EDITS),  "its name too"),
    ("",              Stay(),                    "Enter begins nothing"),
    ("no",            Stay(),                    "no"),
    ("N",             Stay(),                    "the letter as the question spells it"),
    ("No",            Stay(),                    "the word as the question spells it"),
    ("yes",           None,                      "which way was not said, so it is asked again"),
    ("9",             None,                      "asked again"),
    ("dangerously",   Stay("dangerously"),       "not offered here: words, not a mode"),
    ("1 but slowly",  Stay("1 but slowly"),      "words that begin with a number are words"),
    ("0000000013",    None,                      "a number whose beginning is one"),
    ("9" * 5000,      None,                      "more digits than a number has"),
]
# fmt: on


@pytest.mark.parametrize(("text", "expected", "why"), TYPED, ids=[row[2] for row in TYPED])
def test_what_is_typed_under_a_plan(text: str, expected: PlanAnswer | None, why: str) -> None:
    assert parse_plan_answer(text) == expected, why
