"""Tests of events as JSON lines: complete, typed, one line of ASCII for any text."""

import dataclasses
import json
import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.model.action import EditFile, RunScript
from policy.model.assessment import RuleKind, RuleRef
from policy.model.tier import Mode, Ruling, Tier
from policy.model.verdict import Cell, Problem, Rights
from runner import events
from runner.messages import Failure, Usage
from runner.text.json_line import utc_time
from sandbox.backend import Connection, Enforcement, Level, Violation

PROBLEM = Problem("`cat` was refused", "it reads a secret", "leave it")
CELL = Cell(Tier.SECRET, Mode.DEFAULT, Ruling.DENY)
RULE = RuleRef(RuleKind.COMMAND, "cat", 3)
DENIED = events.Denied("1.1", "$ cat ~/.ssh/id_rsa", Tier.SECRET, RULE, PROBLEM)
FULL = Enforcement(Level.FULL, "T1", (("network", True),))
MADE = Connection("x.org", 443, "tunnel", "192.0.2.1", True, "", 1, 2, 0.5)
VIOLATION = Violation("writes", "/var/tmp/x", "write into the workspace", inferred=True)

# fmt: off
CASES: list[tuple[events.Event, dict[str, object], str]] = [
    (events.SessionStarted("s", "/w", "/w/src", Mode.PLAN, "m", True, FULL),
     {"type": "session_started", "mode": "plan", "enforcement": {"level": "FULL", "backend": "T1",
      "checks": [["network", True]], "missing": [], "limits": ""}}, "what was enforced is in the stream"),
    (events.Resumed("s", False, "t", "u", 1, 2, "a", "b", "c", ("mode was plan, is default",)),
     {"type": "session_resumed", "prompts": 1, "changes": ["mode was plan, is default"]},
     "what is gone on with"),
    (events.Prompted("hi"), {"type": "prompted", "text": "hi"}, "the prompt"),
    (events.ModelText("a"), {"type": "text", "text": "a"}, "model text"),
    (events.ModelThinking("a"), {"type": "thinking", "text": "a"}, "reasoning is not text"),
    (events.CallBegun("bash"), {"type": "call_begun", "tool": "bash"}, "a call while it is written"),
    (events.ContextUsed(900, 1000, True, 0.5), {"type": "context", "tokens": 900, "exact": True}, "how full it is"),
    (events.Compacted("trim", 900, 500, None), {"type": "compacted", "level": "trim", "after": 500}, "what was cut"),
    (events.Retrying(Failure.OVERLOADED, PROBLEM, 0.5, 1, 3),
     {"type": "retrying", "failure": "overloaded", "wait": 0.5, "attempt": 1}, "why it is asked again"),
    (events.Queued("a", "steer"), {"type": "queued", "kind": "steer"}, "what waits"),
    (events.Unqueued(("a", "b")), {"type": "queue_returned", "texts": ["a", "b"]}, "what does not wait any more"),
    (events.Steered("a"), {"type": "steered", "text": "a"}, "words inside a turn"),
    (events.Changed("mode", "plan", "default"), {"type": "changed", "what": "mode", "why": ""}, "another setting"),
    (events.PlanProposed("1.1", "# p"), {"type": "plan_proposed", "plan": "# p"}, "the plan"),
    (events.ToolProposed("1.1", "bash", RunScript("ls", "/w")),
     {"type": "tool_proposed", "action": {"type": "RunScript", "script": "ls", "cwd": "/w", "timeout": None}},
     "an action says its type"),
    (events.ToolProposed("1.1", "nope", None), {"type": "tool_proposed", "action": None}, "a call without sense"),
    (events.ToolProposed("1.1", "edit", EditFile("/w/a", "x", "y")),
     {"action": {"type": "EditFile", "path": "/w/a", "old": "x", "new": "y", "replace_all": False, "seen": None}},
     "every action is whole"),
    (events.VerdictReached("1.1", (Tier.SECRET, Tier.READ), Ruling.DENY, "why", RULE, CELL),
     {"type": "verdict", "tiers": ["secret", "read"], "verdict": "deny", "rule": "command:cat:3",
      "cell": {"tier": "secret", "mode": "default", "ruling": "deny"}}, "tiers by the names that users type"),
    (events.QuestionAsked("1.1", "may it?"), {"type": "question_asked"}, "question"),
    (events.PickWanted("p1", "which?", ({"value": "a", "label": "A", "detail": ""},)),
     {"type": "pick_wanted", "rows": [{"value": "a", "label": "A", "detail": ""}]}, "a list to pick from"),
    (events.InputWanted("p1", "one", "please", ({"name": "a", "required": True, "default": None},)),
     {"type": "input_wanted", "fields": [{"name": "a", "required": True, "default": None}], "url": ""}, "a form of a server"),
    (events.QuestionAnswered("1.1", False, "no"), {"type": "question_answered", "yes": False, "feedback": "no"}, "answer"),
    (events.CommandOutput("1.1", 2, "x"), {"type": "output", "stream": 2}, "output"),
    (events.ActionFinished("1.1", 1, 0.5, None, (VIOLATION,), PROBLEM, "t", None),
     {"type": "finished", "violations": [{"what": "writes", "path": "/var/tmp/x", "fix": "write into the workspace",
      "inferred": True, "layer": "guess", "right": ""}], "problem": {"what": PROBLEM.what, "why": PROBLEM.why, "fix": PROBLEM.fix}},
     "violations whole"),
    (events.ActionFinished("1.1", 0, 0.5, None, (), None, "t", None, (MADE,)),
     {"type": "finished", "connections": [{"host": "x.org", "port": 443, "asked": "tunnel", "address": "192.0.2.1",
      "allowed": True, "why": "", "sent": 1, "received": 2, "seconds": 0.5, "credential": ""}]}, "who was connected to"),
    (events.ProcessStarted("p1", "$ npm run dev", 7, False, Rights.WORKSPACE_WRITE),
     {"type": "process_started", "process": "p1", "record": 7, "rights": "workspace-write"}, "a process that stays"),
    (events.ProcessEnded("p1", 137, 2.5, "cancelled", (VIOLATION,), 7),
     {"type": "process_ended", "process": "p1", "ended_by": "cancelled"}, "the end of such a process"),
    (events.TaskChanged("t2", "in_progress", "read", "general-1", "general-1", 1, 3),
     {"type": "task_changed", "task": "t2", "owner": "general-1", "done": 1, "total": 3, "note": ""}, "a task"),
    (DENIED, {"type": "denied", "tier": "secret", "action": "$ cat ~/.ssh/id_rsa"}, "a denial names its action"),
    (events.MalformedCall("1.1", "bash", PROBLEM), {"type": "malformed_call", "tool": "bash"}, "no action"),
    (events.Notice("n"), {"type": "notice", "text": "n"}, "notice"),
    (events.Display("a", "text"), {"type": "shown", "kind": "text"}, "the answer to a command"),
    (events.ErrorRaised(PROBLEM), {"type": "error"}, "error"),
    (events.RunEnded(3, "done", 2, Usage(1, 2, 3, 4), (DENIED,)),
     {"type": "run_ended", "exit": 3, "usage": {"input": 1, "output": 2, "cache_read": 3, "cache_write": 4}},
     "exit code, usage and the denials close the stream"),
]
# fmt: on


@pytest.mark.parametrize(("event", "expected", "why"), CASES, ids=[why for _, _, why in CASES])
def test_an_event_is_one_json_object(event: events.Event, expected: dict[str, object], why: str) -> None:
    found = json.loads(event.line())
    assert expected.items() <= found.items(), why
    assert set(found) == {"type", *(item.name for item in dataclasses.fields(event))}, "no field is left out"


def test_the_closing_event_carries_whole_denials() -> None:
    found = json.loads(events.RunEnded(3, "done", 1, Usage(), (DENIED,)).line())
    assert found["denied"] == [json.loads(DENIED.line())]


def test_every_kind_of_event_is_in_the_table_and_has_its_own_name() -> None:
    kinds = typing.get_args(events.Event)
    assert {type(event) for event, _, _ in CASES} == set(kinds)
    assert len({kind.type for kind in kinds}) == len(kinds)


def test_the_time_follows_the_type() -> None:
    """A program sorts and joins the lines of several runs by their time, so each line has it at the same place."""
    found = json.loads(events.Notice("n").line(utc_time(1_772_600_769.75) or ""))
    assert list(found.items()) == [
        ("type", "notice"),
        ("time", "2026-03-04T05:06:09.750Z"),
        ("agent", "main"),
        ("parent", None),
        ("text", "n"),
    ]


@pytest.mark.threat("T28")
@given(st.text(st.characters(exclude_categories=())))
def test_any_text_stays_one_ascii_line_and_comes_back(text: str) -> None:
    """LAW: no newline, escape or lone surrogate of a model leaves the line it was printed on."""
    line = events.ModelText(text).line()
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["text"] == text
