"""The judgement of processes that stay: their start, what is read from them, written to them, and signals."""

from dataclasses import replace

import pytest

from policy.model.action import Action, ReadProcess, RunScript, SignalProcess, StartProcess, WriteProcess
from policy.model.tier import Mode
from policy.model.verdict import Allow, Ask, Permit
from tests.support.grant_questions import evaluation_context

SCRIPTS = ["ls", "npm run dev", "echo x > a", "curl https://example.org/", "cat ~/.ssh/id_rsa", "rm -rf /", "eval $x"]


@pytest.mark.parametrize("mode", Mode, ids=[mode.value for mode in Mode])
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_start_is_judged_as_the_script(script: str, mode: Mode) -> None:
    context = replace(evaluation_context(), mode=mode)
    cwd = context.facts.workspace
    assessment, verdict = context.evaluate(RunScript(script, cwd))
    started, same = context.evaluate(StartProcess(script, cwd))
    assert replace(started, action=assessment.action) == assessment
    assert type(same) is type(verdict)
    assert (same.cell, same.reason) == (verdict.cell, verdict.reason)
    if isinstance(verdict, Allow) and isinstance(same, Allow):
        assert same.permit.terms == verdict.permit.terms


# fmt: off
ROWS: list[tuple[Action, str, dict[Mode, str], str]] = [
    (ReadProcess("p1", "x", 5),                          "read",      {Mode.PLAN: "allow", Mode.DEFAULT: "allow"}, "reading"),
    (SignalProcess("p1", own=True),                      "read",      {Mode.PLAN: "allow", Mode.DEFAULT: "allow"}, "a signal for an own process"),
    (SignalProcess("p1", own=False),                     "execute",   {Mode.PLAN: "deny", Mode.DEFAULT: "ask"},    "one that the user started"),
    (WriteProcess("p1", "x"),                            "execute",   {Mode.PLAN: "deny", Mode.DEFAULT: "ask", Mode.TRUST_PROJECT: "allow"}, "input is code that nobody reads"),
    (WriteProcess("p1", "ls\n", writes=False),           "read",      {Mode.PLAN: "allow"},                        "a process that can only read"),
    (WriteProcess("p1", "x", tiers=("read",), writes=False), "read",  {Mode.DEFAULT: "allow"},                     "started as a read"),
    (WriteProcess("p1", "x", tiers=("network", "execute")), "network", {Mode.TRUST_PROJECT: "ask", Mode.DONT_ASK: "deny"}, "never less than the process"),
    (WriteProcess("p1", "x", tiers=("dangerous",)),      "dangerous", {Mode.TRUST_PROJECT: "ask"},                 "an approval of the process is none of its input"),
    (WriteProcess("p1", "x", tiers=("no-such-tier",)),   "unknown",   {Mode.TRUST_PROJECT: "ask"},                 "a tier of another version"),
]
# fmt: on


@pytest.mark.threat("T136")
@pytest.mark.parametrize(("action", "tier", "verdicts", "why"), ROWS, ids=[row[3] for row in ROWS])
def test_what_is_done_with_a_process_has_a_tier(action: Action, tier: str, verdicts: dict[Mode, str], why: str) -> None:
    for mode, wanted in verdicts.items():
        assessment, verdict = replace(evaluation_context(), mode=mode).evaluate(action)
        assert assessment.tiers[0].label == tier, why
        assert type(verdict).__name__.lower() == wanted, (why, mode)


def test_a_question_about_input_names_the_program_and_its_rights() -> None:
    context = replace(evaluation_context(), mode=Mode.DEFAULT)
    _, verdict = context.evaluate(WriteProcess("p1", "y\n", command="npm init"))
    assert isinstance(verdict, Ask)
    assert verdict.question == (
        "`write to p1: y⏎` gives this text to `npm init`, which is running and decides what the text does. An approval "
        "lets it run code and change files in the workspace, without network, and nothing more. Allow it?"
    )


def test_no_permit_of_another_process_action_can_start_anything() -> None:
    """The sandbox runs scripts, words and file operations; it has no operation of these names."""
    _, verdict = evaluation_context().evaluate(ReadProcess("p1"))
    assert isinstance(verdict, Allow)
    assert isinstance(verdict.permit, Permit)
    assert not verdict.permit.terms.hosts
    assert not verdict.permit.terms.write
