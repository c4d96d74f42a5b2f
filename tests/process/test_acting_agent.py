"""Tests that events, records, questions, session files and budgets name the acting agent and its parent."""

import json
from dataclasses import replace

import pytest

from policy.model.profile import MAIN
from policy.model.tier import Mode
from policy.model.verdict import Ask
from runner.approval.approver import No
from runner.approval.card import card, of_agent
from runner.approval.remembered import NOTHING
from runner.audit.decisions import deeds
from runner.audit.detail_view import deed_text
from runner.audit.export.table import lines as csv_lines
from runner.config.live_profile import LiveProfile
from runner.engine.budget import BudgetExceeded, BudgetMeter
from runner.engine.event_redaction import RedactingEmitter
from runner.engine.run_limits import RunLimits
from runner.events import CommandOutput, Event, ModelText, QuestionAsked, RunEnded, acting
from runner.gate.suggest import read_rules
from runner.messages import Usage
from runner.providers.scripted import Turn
from runner.secrets.redactor import Redactor
from runner.sessions.entries import JournalEntry, Unsound, line, parse
from tests.support.grant_questions import question
from tests.support.loop_harness import DONE, NETWORK, READ, FixedApprover, LoopHarness, Make, bash, call

HELPER = ("helper", MAIN)


def as_helper(found: LoopHarness) -> LoopHarness:
    ctx = found.ctx
    found.ctx = replace(ctx, agent="helper", parent=MAIN, emit=acting(ctx.emit, *HELPER))
    return found


@pytest.mark.threat("T150")
def test_every_event_and_record_names_the_agent(stage: Make) -> None:
    found = as_helper(stage(bash(READ, NETWORK), call("nope", {}), DONE))
    found.play()
    shown = [json.loads(event.line()) for event in found.events]
    assert {(event["agent"], event["parent"]) for event in shown} == {HELPER}
    assert isinstance(found.events[-1], RunEnded)
    records = [record.body for record in found.audit.rows() if record.kind in ("decided", "refused", "finished")]
    assert {record["kind"] for record in records} == {"decided", "refused", "finished"}
    assert {(record["agent"], record["parent"]) for record in records} == {HELPER}
    assert {record["source"] for record in records if record["kind"] == "decided"} == {"agent"}
    for deed in deeds(found.audit):
        assert (deed.agent, deed.parent) == HELPER
        if not deed.malformed:
            assert "for the agent helper, which main started" in deed_text(deed)
    head, *rows = csv_lines(deeds(found.audit))
    assert head.endswith(",agent,parent")
    assert all(row.endswith(",helper,main") for row in rows)


@pytest.mark.threat("T150")
def test_the_main_agent_has_no_parent(stage: Make) -> None:
    found = stage(bash(READ), DONE)
    found.play()
    assert {(event.agent, event.parent) for event in found.events} == {(MAIN, None)}
    decided = [record.body for record in found.audit.rows() if record.kind == "decided"]
    assert [(body["agent"], body["parent"], body["source"]) for body in decided] == [(MAIN, None, "model")]
    assert "for the agent" not in "".join(deed_text(deed) for deed in deeds(found.audit))


@pytest.mark.threat("T149")
def test_a_rule_about_the_model_denies_the_agents_of_the_model(stage: Make) -> None:
    found = as_helper(stage(bash(READ), DONE))
    rules = read_rules('[[rule]]\nverdict = "deny"\nrun = ["ls"]\nsource = ["model"]\nwhy = "no"\n')
    found.ctx = replace(found.ctx, profiles=LiveProfile(replace(found.ctx.profile, permissions=rules)))
    found.play()
    assert found.sandbox.ran == []


@pytest.mark.threat("T150")
def test_a_record_without_an_agent_is_of_the_main_agent(stage: Make) -> None:
    found = stage(bash(READ), DONE)
    found.play()
    (deed,) = deeds(found.audit)
    body = {name: value for name, value in deed.body.items() if name not in ("agent", "parent")}
    older = replace(deed, record=replace(deed.record, body=body))
    assert (older.agent, older.parent) == (MAIN, "")
    assert deed_text(older) == deed_text(deed)


def test_a_card_for_a_sub_agent_says_so() -> None:
    asked = question("npm test")
    assert isinstance(asked, Ask)
    plain = card(asked, NOTHING)
    assert of_agent(plain, MAIN, None) is plain
    assert plain.as_json()["agent"] == MAIN
    shown = of_agent(plain, *HELPER)
    assert shown.caveats[0] == "asked by the agent `helper`, which `main` started"
    assert (shown.as_json()["agent"], shown.as_json()["parent"]) == HELPER


def test_a_budget_names_the_sub_agent() -> None:
    for agent, parent, begin in (
        (MAIN, None, "stopped after 0"),
        (*HELPER, "the agent `helper`, which `main` started"),
    ):
        meter = BudgetMeter(RunLimits(turns=0), unattended=True, agent=agent, parent=parent)
        with pytest.raises(BudgetExceeded, match=begin):
            meter.turn()
        assert (meter.agent, meter.parent) == (agent, parent)


def test_texts_of_several_agents_stay_apart() -> None:
    shown: list[Event] = []
    emit = RedactingEmitter(Redactor(), shown.append)
    helper = acting(emit, *HELPER)
    emit(ModelText("a "))
    helper(ModelText("b "))
    emit(ModelText("c "))
    helper(CommandOutput("1", 1, "d "))
    helper(RunEnded(0, "", 1, Usage(), ()))
    assert not [event for event in shown if event.agent == MAIN and isinstance(event, RunEnded)]
    emit(RunEnded(0, "", 1, Usage(), ()))
    texts = {
        agent: "".join(event.text for event in shown if isinstance(event, ModelText) and event.agent == agent)
        for agent in (MAIN, "helper")
    }
    assert texts == {MAIN: "a c ", "helper": "b "}
    (output,) = [event for event in shown if isinstance(event, CommandOutput)]
    assert (output.agent, output.text) == ("helper", "d ")


CALL: dict[str, object] = {
    "call": "c", "tool": "bash", "action": "$ ls", "tiers": ["read"], "verdict": "allow", "why": "", "rule": "",
    "cell": "", "record": 1, "answer": None, "by": None, "feedback": None,
}  # fmt: skip
ENTRIES = [
    ({}, True, "an entry of an earlier version"),
    ({"agent": "helper", "parent": "main"}, True, "an entry of a sub-agent"),
    ({"agent": "helper"}, True, "without a parent"),
    ({"agent": 1}, False, "a number"),
    ({"actor": "helper"}, False, "another field"),
]


@pytest.mark.parametrize(("more", "sound", "why"), ENTRIES, ids=[row[-1] for row in ENTRIES])
def test_session_files(more: dict[str, object], sound: bool, why: str) -> None:
    entry = JournalEntry("2", "1", "2026-01-01T00:00:00Z", "call", {**CALL, **more})
    if sound:
        assert parse(line(entry)) == entry, why
    else:
        with pytest.raises(Unsound):
            parse(line(entry))


def test_a_question_of_a_sub_agent_has_its_name(stage: Make) -> None:
    approver = FixedApprover(No("no"))
    found = as_helper(stage(bash(NETWORK), Turn("done"), approver=approver, mode=Mode.DEFAULT, unattended=False))
    found.play()
    (asked,) = found.of(QuestionAsked)
    assert isinstance(asked, QuestionAsked)
    assert asked.card is not None
    assert (asked.card.agent, asked.card.parent) == HELPER
