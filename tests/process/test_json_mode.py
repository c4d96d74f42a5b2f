"""Tests of JSON mode: lines drive a whole conversation, and no line ends it or answers a question that it does not
name.
"""

import asyncio
import contextlib
import json
import os
import random
import re
import select
import signal
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.model.tier import Mode
from runner.agent.agent import Agent
from runner.audit.log import AuditLog
from runner.engine.context.context import PLAN_TOOL as PLAN
from runner.events import CommandOutput, Notice
from runner.frontends.jsonl.approver import Questions
from runner.frontends.jsonl.driver import JsonMode
from runner.frontends.jsonl.protocol import LONGEST, Misread, Prompt, Quit, SetMode, parse
from runner.frontends.jsonl.writer import JsonLines
from runner.messages import ToolCall
from runner.problems import Exit, Stopped
from runner.providers import OpenModel
from runner.providers.scripted import ScriptedProvider, Turn
from tests.support import forked_agent
from tests.support.agent_program import AGENT, impatient
from tests.support.json_front import Front
from tests.support.layers import overlays_work
from tests.support.marked_processes import processes_about
from tests.support.waiting import until as until_true
from tests.support.waiting import until_async

SLEEPS = "echo begun; python3 -c 'import time; time.sleep(600)'"


# ---- lines

# fmt: off
MISREAD: list[tuple[bytes, str]] = [
    (b"hello",                                                  "not JSON"),
    (b"\xff\xfe",                                               "not UTF-8"),
    (b"[1]",                                                    "not a JSON object"),
    (b'"prompt"',                                               "not a JSON object"),
    (b"{}",                                                     "a text `type`"),
    (b'{"type": 1}',                                            "a text `type`"),
    (b'{"type": ["prompt"]}',                                   "a text `type`"),
    (b'{"type": "allow"}',                                      "there is no type `allow`"),
    (b'{"type": "prompt"}',                                     "needs `text`"),
    (b'{"type": "prompt", "text": 1}',                          "needs `text`"),
    (b'{"type": "prompt", "text": null}',                       "needs `text`"),
    (b'{"type": "prompt", "text": "  "}',                       "`text` is empty"),
    (b'{"type": "prompt", "text": "a", "mode": "dangerously"}', "`mode` is not a field of prompt"),
    (b'{"type": "prompt", "text": "a", "text": "b"}',           "`text` is in the line twice"),
    (b'{"type": "quit", "type": "prompt", "text": "a"}',        "`type` is in the line twice"),
    (b'{"type": "mode", "mode": "root"}',                       "there is no mode `root`"),
    (b'{"type": "thinking", "level": "11"}',                    "there is no level `11`"),
    (b'{"type": "answer", "id": "q1"}',                         "needs `answer`"),
    (b'{"type": "answer", "id": "q1", "answer": true}',         "needs `answer`"),
    (b'{"type": "answer", "answer": "yes"}',                    "needs `id`"),
    (b'{"type": "answer", "id": "q1", "answer": "edit", "command": ""}', "`command` is empty"),
    (b'{"type": "prompt", "text": NaN}',                        "not JSON"),
    (b'{"type": "interrupt", "x": ' + b"[" * 100_000 + b"}",    "not JSON"),
    (b'{"type": "interrupt"} {"type": "quit"}',                 "not JSON"),
    (b'{"type": "prompt", "text": "' + b"a" * ((1 << 20) + 1) + b'"}', "longer than 1048576 characters"),
    (b'{"type": "prompt", "text": "' + b"a" * LONGEST + b'"}',  "longer than 16 MiB"),
    (b'{"type": "' + b"a" * 100_000 + b'"}',                    "there is no type"),
]
# fmt: on


@pytest.mark.parametrize(("line", "why"), MISREAD, ids=[row[1] for row in MISREAD])
def test_what_makes_no_sense_is_named(line: bytes, why: str) -> None:
    with pytest.raises(Misread) as found:
        parse(line)
    assert why in found.value.problem.why
    assert len(str(found.value.problem)) < 600, "an answer does not repeat a whole line"


def test_what_makes_sense_is_a_value() -> None:
    assert parse(b' {"type": "prompt", "text": "\\u00e4"}\r') == Prompt("ä")
    assert parse(b'{"type": "mode", "mode": "plan"}') == SetMode(Mode.PLAN)
    assert parse(b'{"type": "quit"}') == Quit()


@given(st.binary(max_size=60) | st.dictionaries(st.text(max_size=9), st.none() | st.text(max_size=5)).map(
    lambda value: json.dumps(value).encode()))  # fmt: skip
def test_no_line_is_anything_but_a_value_or_misread(line: bytes) -> None:
    with contextlib.suppress(Misread):
        parse(line)


# ---- talks


def bash(script: str) -> Turn:
    return Turn(calls=(ToolCall("", "bash", {"command": script}),))


Talk = Callable[[Front], Awaitable[None]]


def talk(folder: Path, turns: list[Turn], program: Talk, mode: Mode = Mode.DEFAULT) -> tuple[Front, Exit]:
    """Play a session with `program` until the end of its input, and return the front end and the exit code."""

    async def work() -> tuple[Front, Exit]:
        front = Front()
        questions = Questions(lambda event: agent.conversation.ctx.emit(event))
        agent = Agent(
            folder, model=OpenModel(ScriptedProvider(turns), "m"), mode=mode, approver=questions, emit=front.emit
        )
        async with agent:
            serving = asyncio.create_task(JsonMode(agent, questions, front.emit).serve(front))
            await program(front)
            front.end()
            return front, await serving

    return asyncio.run(work())


def test_a_question_carries_what_it_rests_on_and_a_yes_runs_it(folder: Path) -> None:
    async def program(front: Front) -> None:
        front.say("prompt", text="go")
        asked = await front.until("question_asked")
        assert asked["call"] == "1.1"
        assert asked["card"]["command"] == "echo hi > made"
        assert asked["card"]["tier"] == "write"
        assert "network" in asked["card"]["terms"]
        assert not (folder / "made").exists()
        front.say("answer", id=asked["id"], answer="yes")
        await front.until("run_ended")

    front, code = talk(folder, [bash("echo hi > made"), Turn("done")], program)
    assert (folder / "made").read_text() == "hi\n"
    assert code == Exit.DONE
    assert front.of("question_answered")[0]["yes"] is True


@pytest.mark.threat("T107")
def test_an_answer_counts_for_the_question_that_it_names_and_once(folder: Path) -> None:
    async def program(front: Front) -> None:
        front.say("answer", id="q1", answer="yes")  # before there is a question
        await front.until("error", 1)
        front.say("prompt", text="go")
        first = await front.until("question_asked", 1)
        for number, wrong in enumerate(
            (
                {"answer": "maybe"},
                {"answer": "YES"},
                {"answer": "yes", "feedback": "but not that"},
                {"answer": "y", "command": "rm -rf ~"},
                {"answer": "99"},
                {"answer": "1"},
                {"answer": "2 7d"},
                {"answer": "edit"},
                {"answer": "yes", "id": "1.1"},
            ),
            2,
        ):
            front.say("answer", **{"id": first["id"], **wrong})
            await front.until("error", number)
        assert not (folder / "one").exists(), "what is no clear answer is none, and nothing runs"
        front.say("answer", id=first["id"], answer="no", feedback="not one")
        second = await front.until("question_asked", 2)
        assert second["id"] != first["id"]
        front.say("answer", id=first["id"], answer="yes")  # late, and for the question before
        await front.until("error", 9)
        assert not (folder / "two").exists()
        front.say("answer", id=second["id"], answer="yes")
        front.say("answer", id=second["id"], answer="no")
        await front.until("run_ended")

    front, code = talk(folder, [bash("echo 1 > one"), bash("echo 2 > two"), Turn("done")], program)
    assert not (folder / "one").exists()
    assert (folder / "two").exists()
    assert code == Exit.DENIED
    assert "not one" in front.of("denied")[0]["problem"]["why"] + front.of("denied")[0]["problem"]["fix"]


@pytest.mark.threat("T107")
def test_the_end_of_input_answers_no(folder: Path) -> None:
    async def program(front: Front) -> None:
        front.say("prompt", text="go")
        await front.until("question_asked")

    front, code = talk(folder, [bash("echo 1 > one"), bash("echo 2 > two"), Turn("done")], program)
    assert [event["yes"] for event in front.of("question_answered")] == [False, False]
    assert not (folder / "one").exists()
    assert code == Exit.DENIED


def test_a_key_of_the_card_is_remembered(folder: Path) -> None:
    async def program(front: Front) -> None:
        front.say("prompt", text="go")
        asked = await front.until("question_asked")
        keys = asked["card"]["choices"][0]["keys"]
        assert asked["card"]["choices"][0]["answer"] == "yes"
        front.say("answer", id=asked["id"], answer=keys[0])
        await front.until("run_ended")

    front, _ = talk(folder, [bash("touch made"), bash("touch made"), Turn("done")], program)
    assert len(front.of("question_asked")) == 1
    assert len(front.of("finished")) == 2


@pytest.mark.threat("T107")
def test_one_answer_accepts_all_edits_and_closes_the_other_questions_about_them(folder: Path) -> None:
    calls = [ToolCall("", "write", {"path": name, "content": "x\n"}) for name in ("a", "b")]
    calls.append(ToolCall("", "bash", {"command": "touch c"}))

    async def program(front: Front) -> None:
        front.say("prompt", text="go")
        third = await front.until("question_asked", 3)
        first, second = front.of("question_asked")[:2]
        keys = [[key for choice in each["card"]["choices"] for key in choice["keys"]] for each in (first, third)]
        assert "a" in keys[0]
        assert "a" not in keys[1], "a command is no edit"
        front.say("answer", id=third["id"], answer="a")
        await front.until("error")
        front.say("answer", id=first["id"], answer="a")
        front.say("answer", id=third["id"], answer="no")
        await front.until("run_ended")
        front.say("answer", id=second["id"], answer="yes")
        await front.until("error", 2)

    front, _ = talk(folder, [Turn(calls=tuple(calls)), Turn("done")], program)
    assert (folder / "a").exists()
    assert (folder / "b").exists(), "allowed by the mode"
    assert not (folder / "c").exists()
    assert [(each["was"], each["now"]) for each in front.of("changed")] == [("default", "accept-edits")]


def test_a_command_can_be_put_in_the_place_of_the_models(folder: Path) -> None:
    async def program(front: Front) -> None:
        front.say("prompt", text="go")
        asked = await front.until("question_asked")
        front.say("answer", id=asked["id"], answer="edit", command="echo mine > made")
        again = await front.until("question_asked", 2)
        assert again["card"]["command"] == "echo mine > made"
        front.say("answer", id=again["id"], answer="yes")
        await front.until("run_ended")

    talk(folder, [bash("echo yours > made"), Turn("done")], program)
    assert (folder / "made").read_text() == "mine\n"


def test_interrupt_stops_the_child_and_the_talk_goes_on(folder: Path) -> None:
    async def program(front: Front) -> None:
        front.say("prompt", text="sleep")
        await front.until("output")
        front.say("follow_up", text="never said")
        await front.until("queued")
        front.say("interrupt")
        await front.until("run_ended")
        assert front.of("queue_returned")[0]["texts"] == ["never said"]
        front.say("interrupt")  # of nothing
        front.say("prompt", text="go on")
        await front.until("run_ended", 2)

    front, code = talk(folder, [bash(SLEEPS), Turn("still here")], program, Mode.TRUST_PROJECT)
    assert [event["exit"] for event in front.of("run_ended")] == [130, 0]
    assert [event["text"] for event in front.of("prompted")] == ["sleep", "go on"]
    assert code == Exit.DONE


def test_what_is_stopped_before_it_began_has_its_end_as_well(folder: Path) -> None:
    async def program(front: Front) -> None:
        front.say("prompt", text="one")
        front.say("interrupt")
        front.say("interrupt")
        await front.until("run_ended")

    front, code = talk(folder, [Turn("never")], program)
    assert [event["type"] for event in front.events][-2:] == ["prompted", "run_ended"]
    assert code == Exit.INTERRUPTED


def test_what_waits_for_a_command_is_taken_back_too(folder: Path) -> None:
    async def program(front: Front) -> None:
        front.say("shell", command=SLEEPS)
        await front.until("output")
        front.say("prompt", text="one")
        front.say("take_back")
        await front.until("queue_returned")
        front.say("prompt", text="two")
        front.say("interrupt")
        await front.until("queue_returned", 2)

    front, code = talk(folder, [Turn("never")], program, Mode.TRUST_PROJECT)
    assert [event["texts"] for event in front.of("queue_returned")] == [["one"], ["two"]]
    assert front.of("prompted") == []
    assert code == Exit.DONE


def test_interrupt_while_a_question_stands_stops_the_turn(folder: Path) -> None:
    async def program(front: Front) -> None:
        front.say("prompt", text="go")
        asked = await front.until("question_asked")
        front.say("interrupt")
        await front.until("run_ended")
        front.say("answer", id=asked["id"], answer="yes")
        await front.until("error")

    _front, code = talk(folder, [bash("echo 1 > one"), Turn("done")], program)
    assert not (folder / "one").exists()
    assert code == Exit.INTERRUPTED


def test_interrupt_takes_a_list_away(folder: Path) -> None:
    async def program(front: Front) -> None:
        front.say("command", text="/mode")
        listed = await front.until("pick_wanted")
        front.say("interrupt")
        front.say("answer", id=listed["id"], answer="plan")
        await front.until("error")
        front.say("command", text="/mode")
        listed = await front.until("pick_wanted", 2)
        front.say("answer", id=listed["id"], answer="plan")
        await front.until("changed")

    front, _ = talk(folder, [], program)
    assert len(front.of("changed")) == 1


def test_words_go_in_between_and_after(folder: Path) -> None:
    async def program(front: Front) -> None:
        front.say("prompt", text="go")
        asked = await front.until("question_asked")
        front.say("steer", text="inside")
        front.say("prompt", text="after")
        await front.until("queued", 2)
        front.say("answer", id=asked["id"], answer="yes")
        await front.until("run_ended", 2)
        front.say("steer", text="nothing is on its way")
        await front.until("run_ended", 3)

    front, _ = talk(folder, [bash("touch made"), Turn("a"), Turn("b"), Turn("c")], program)
    assert [event["text"] for event in front.of("steered")] == ["inside"]
    assert [event["text"] for event in front.of("prompted")] == ["go", "after", "nothing is on its way"]


def test_settings_commands_and_lists(folder: Path) -> None:
    async def program(front: Front) -> None:
        front.say("mode", mode="plan")
        front.say("thinking", level="high")
        front.say("model", model="nobody:x")
        front.say("command", text="/mode")
        listed = await front.until("pick_wanted")
        assert {"value": "default"}.items() <= listed["rows"][1].items()
        front.say("answer", id=listed["id"], answer="else")
        await front.until("error", 2)
        front.say("answer", id=listed["id"], answer="default")
        await front.until("changed", 3)
        front.say("command", text="/nonsense")
        await front.until("shown")
        front.say("shell", command="echo mine")
        await front.until("finished")
        front.say("prompt", text="what was the result?")
        await front.until("run_ended")
        front.say("command", text="/clear")
        await front.until("session_started", 2)
        front.say("prompt", text="anew")
        await front.until("run_ended", 2)

    front, _ = talk(folder, [Turn("a"), Turn("b")], program)
    assert [(event["what"], event["now"]) for event in front.of("changed")] == [
        ("mode", "plan"), ("thinking", "high"), ("mode", "default")]  # fmt: skip
    assert "there is no provider" in front.of("error")[0]["problem"]["what"]
    assert front.of("error")[0]["input_line"] == 3
    assert front.of("finished")[0]["call"] == "!1"


def test_a_plan_is_left_by_an_answer(folder: Path) -> None:
    async def program(front: Front) -> None:
        front.say("prompt", text="plan it")
        await front.until("plan_proposed")
        listed = await front.until("pick_wanted", 1)
        front.say("answer", id=listed["id"], answer="dangerously")
        await front.until("error")
        front.say("answer", id=listed["id"], answer="no", feedback="shorter")
        listed = await front.until("pick_wanted", 2)
        front.say("answer", id=listed["id"], answer="accept-edits")
        await front.until("run_ended")
        front.say("prompt", text="and")
        await front.until("run_ended", 2)

    turns = [Turn(calls=(ToolCall("", PLAN, {"plan": "# a"}),)), Turn(calls=(ToolCall("", PLAN, {"plan": "# b"}),)),
             Turn("begun"), bash("touch made"), Turn("done")]  # fmt: skip
    talk(folder, turns, program, Mode.PLAN)
    assert (folder / "made").exists(), "the mode holds for the prompts that follow, too"


def test_what_two_want_at_once_one_gets_and_the_talk_goes_on(folder: Path) -> None:
    async def program(front: Front) -> None:
        for _ in range(3):
            front.say("shell", command="echo one")
            front.say("shell", command="echo two")
            front.say("command", text="/clear")
            front.say("prompt", text="go")
        await front.until("run_ended", 3)
        front.say("prompt", text="on")
        await front.until("run_ended", 4)

    front, code = talk(folder, [Turn("yes")] * 9, program)
    assert code == Exit.DONE
    assert {event["problem"]["what"] for event in front.of("error")} == {"a run is in progress"}


def test_quit_stops_what_is_on_its_way(folder: Path) -> None:
    async def program(front: Front) -> None:
        front.say("prompt", text="sleep")
        await front.until("output")
        front.say("quit")
        front.say("prompt", text="not any more")

    front, code = talk(folder, [bash(SLEEPS), Turn("x")], program, Mode.TRUST_PROJECT)
    assert len(front.of("prompted")) == 1
    assert code == Exit.INTERRUPTED


def test_a_command_that_leaves_needs_no_further_line(folder: Path) -> None:
    async def program(front: Front) -> None:
        front.say("prompt", text="go")
        await front.until("run_ended")
        front.say("command", text="/quit")
        await front.closed()

    front, code = talk(folder, [Turn("fine")], program)
    assert code == Exit.DONE
    assert len(front.of("run_ended")) == 1


def test_no_line_ends_it(folder: Path) -> None:
    async def program(front: Front) -> None:
        for line, _ in MISREAD[:-4]:
            front.say_raw(line)
        front.say_raw(b"")
        front.say("prompt", text="go")
        await front.until("run_ended")

    front, code = talk(folder, [Turn("fine")], program)
    assert code == Exit.DONE
    assert [event["input_line"] for event in front.of("error")] == list(range(1, len(MISREAD) - 3))


# fmt: off
SAYINGS: list[tuple[str, dict[str, str]]] = [
    *[("prompt", {"text": "p"})] * 4, ("steer", {"text": "s"}), ("follow_up", {"text": "f"}), ("interrupt", {}),
    ("take_back", {}), ("mode", {"mode": "plan"}), ("mode", {"mode": "trust-project"}), ("mode", {"mode": "default"}),
    ("shell", {"command": "touch q"}), ("shell", {"command": "sleep 0.1"}),
    *[("command", {"text": f"/{name}"}) for name in (
        "clear", "fork", "resume", "mode", "compact", "context", "undo", "rewind", "diff", "grants", "nonsense")],
]
ANSWERS = ("yes", "no", "stop", "s", "p", "edit", "default", "what?")
TURNS = (
    Turn("words"), bash("touch made"), bash("sleep 0.1; echo x"), bash("cat made"),
    Turn(calls=(ToolCall("", "bash", {"command": "touch x"}), ToolCall("", "bash", {"command": "touch ../y"}))),
    Turn(calls=(ToolCall("", PLAN, {"plan": "p"}),)), Turn(calls=(ToolCall("", "none", None, raw="{"),)),
)
# fmt: on


@pytest.mark.parametrize("seed", [5, 6, 20])
def test_whatever_is_said_in_whatever_order_every_prompt_has_its_end(folder: Path, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)

    async def program(front: Front) -> None:
        for _ in range(60):
            asked = [event["id"] for event in front.events if event["type"] in ("question_asked", "pick_wanted")]
            if asked and chance.random() < 0.3:
                front.say("answer", id=chance.choice(asked[-2:]), answer=chance.choice(ANSWERS))
            else:
                type, fields = chance.choice(SAYINGS)
                front.say(type, **fields)
            await asyncio.sleep(chance.choice((0, 0, 0.01, 0.1)))

    front, code = talk(folder, [chance.choice(TURNS) for _ in range(200)], program)
    assert len(front.of("prompted")) == len(front.of("run_ended")) > 0
    assert code in (Exit.DONE, Exit.DENIED, Exit.INTERRUPTED)
    assert [event["problem"] for event in front.of("error") if event["input_line"] is None] == []
    with AuditLog.open_to_read(tmp_path / "state" / "audit.db") as log:
        kinds = [row.body["kind"] for row in log.rows()]
    assert kinds.count("ended") == kinds.count("session") == len(front.of("session_started"))


def test_an_error_shows_no_secret(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-proj-Abcdefghijklmnopqrstuvwxyz0123456789")

    async def program(front: Front) -> None:
        front.say("model", model="sk-proj-Abcdefghijklmnopqrstuvwxyz0123456789")
        await front.until("error")

    front, _ = talk(folder, [], program)
    assert "Abcdefghij" not in json.dumps(front.events)


# ---- the whole program

SCRIPT = """
[[turn]]
calls = [{ name = "bash", arguments = { command = "echo begun; python3 -c 'import time; time.sleep(600)'" } }]
[[turn]]
text = "done"
"""


def start(folder: Path, *words: str, script: str = SCRIPT, program: tuple[str, ...] = ()) -> "subprocess.Popen[bytes]":
    """Start a session, which is forked unless a `program` is named: for tests of signals and of ends of pipes."""
    (folder.parent / "script.toml").write_text(script)
    begin = subprocess.Popen if program else forked_agent.Process
    return begin(
        [*(program or (AGENT,)), *words, "--model", f"scripted:{folder.parent / 'script.toml'}", "--mode", "trust-project"],
        cwd=folder,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def until(process: "subprocess.Popen[bytes]", type: str) -> dict[str, Any]:
    assert process.stdout is not None
    for line in process.stdout:
        event: dict[str, Any] = json.loads(line)
        if event["type"] == type:
            return event
    raise AssertionError(f"no {type}")


@pytest.mark.parametrize("words", [("run", "--json", "--input", "json"), ("--json",)])
def test_both_ways_of_starting_it(folder: Path, words: tuple[str, ...]) -> None:
    with start(folder, *words) as process:
        assert process.stdin is not None
        process.stdin.write(b'{"type":"prompt","text":"sleep"}\n')
        process.stdin.flush()
        until(process, "output")
        process.stdin.write(b'{"type":"interrupt"}\nnonsense\n{"type":"prompt","text":"go on"}')  # the last without end
        process.stdin.close()
        assert until(process, "run_ended")["exit"] == 130
        assert until(process, "run_ended")["reason"] == "done"
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 0


@pytest.mark.parametrize("how", ["terminated", "hung up", "nobody reads"])
def test_whoever_goes_away_leaves_no_child(folder: Path, tmp_path: Path, how: str) -> None:
    with start(folder, "--json", program=(AGENT,)) as process:
        assert process.stdin is not None
        process.stdin.write(b'{"type":"prompt","text":"sleep"}\n')
        process.stdin.flush()
        until(process, "output")
        if how == "terminated":
            process.send_signal(signal.SIGTERM)
        elif how == "hung up":
            process.send_signal(signal.SIGHUP)
            process.send_signal(signal.SIGTERM)  # both come when a machine goes down
        else:
            assert process.stdout is not None
            process.stdout.close()  # the child says nothing for ten minutes
        assert process.wait() == (141 if how == "nobody reads" else 130)
        process.stdin.close()
    until_true(lambda: not processes_about(str(tmp_path)), what="the end of every process")
    with AuditLog.open_to_read(tmp_path / "state" / "audit.db") as log:
        assert "ended" in [row.body["kind"] for row in log.rows()]


@pytest.mark.threat("T113")
@pytest.mark.parametrize("words", [("--json",), ("run", "--json", "sleep")])
def test_whoever_does_not_read_is_no_reason_to_stay(folder: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    program = tuple(impatient("runner.frontends.jsonl.writer", "_GOODBYE", 0.3))
    with start(folder, *words, script=SCRIPT.replace("echo begun", "seq 200000"), program=program) as process:
        assert process.stdin is not None
        process.stdin.write(b'{"type":"prompt","text":"sleep"}\n')
        process.stdin.close()
        with open(f"/proc/{process.pid}/fd/1", "wb") as pipe:
            until_true(lambda: not select.select((), (pipe,), (), 0)[1], of=process, what="a full pipe")
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 130
    until_true(lambda: not processes_about(str(tmp_path)), what="the end of every process")
    with AuditLog.open_to_read(tmp_path / "state" / "audit.db") as log:
        assert "ended" in [row.body["kind"] for row in log.rows()]


@pytest.mark.parametrize("words", [("--json",), ("run", "--json", "x"), ("run", "--json", "--input", "json")])
def test_what_hinders_it_from_opening_is_an_event(folder: Path, words: tuple[str, ...]) -> None:
    with start(folder, *words, "--cwd", "nowhere") as process:
        output, errors = process.communicate(b"")
    assert process.returncode == Exit.USAGE
    (event,) = map(json.loads, output.splitlines())
    assert event["type"] == "error"
    assert "`nowhere`" in event["problem"]["what"]
    assert b"`nowhere`" in errors, "and it stands where a person looks"


# ---- who reads


TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def notices(number: int) -> list[Notice]:
    return [Notice(f"{each} {'x' * 1000}") for each in range(number)]


def test_a_slow_reader_gets_everything() -> None:
    read, write = os.pipe()
    got = bytearray()

    def slowly() -> None:
        while piece := os.read(read, 4096):
            got.extend(piece)
            time.sleep(0.0005)

    reader = threading.Thread(target=slowly)
    reader.start()
    with JsonLines(write, most=20_000, patience=60) as emit:
        for event in notices(300):
            emit(event)
    os.close(write)
    reader.join()
    os.close(read)
    lines = [json.loads(line) for line in got.splitlines()]
    times = [line.pop("time") for line in lines]
    assert lines == [json.loads(event.line()) for event in notices(300)]
    assert all(map(TIME.fullmatch, times))
    assert times == sorted(times)


@pytest.mark.threat("T113")
def test_a_reader_that_is_none_ends_it() -> None:
    read, write = os.pipe()

    async def work(emit: JsonLines) -> None:
        task = asyncio.current_task()
        assert task is not None
        emit.when_lost(task.cancel)
        with pytest.raises(Stopped, match="events are not read"):
            list(map(emit, notices(300)))
        emit(CommandOutput("1.1", 1, "from a callback, where nobody would catch it"))
        await asyncio.Event().wait()

    with pytest.raises(Stopped, match="events are not read"), JsonLines(write, most=20_000, patience=0.1) as lines:
        asyncio.run(work(lines))
    os.close(read)
    os.close(write)


def test_input_without_output_is_refused(folder: Path) -> None:
    with start(folder, "run", "--input", "json") as process:
        _, errors = process.communicate(b"")
        assert process.returncode == Exit.USAGE
        assert b"add --json" in errors


@pytest.mark.threat("T313")
@pytest.mark.skipif(not overlays_work(), reason="this user cannot mount an overlay")
@pytest.mark.parametrize(
    ("answer", "left"),
    [
        ("keep", {"one", "two"}),
        ("keep 1", {"one"}),
        ("keep 1-2", {"one", "two"}),
        ("run", {"one", "two"}),
        ("no", set()),
    ],
)
def test_a_command_is_tried_and_answered_afterwards(folder: Path, answer: str, left: set[str]) -> None:
    async def program(front: Front) -> None:
        front.say("prompt", text="go")
        first = await front.until("question_asked", 1)
        assert first["card"]["tries"] is True
        for number, wrong in enumerate(("keep", "run", "keep 1", "try 1", "TRY", "t"), 1):
            front.say("answer", id=first["id"], answer=wrong)
            await front.until("error", number)
        front.say("answer", id=first["id"], answer="try")
        front.say("answer", id=first["id"], answer="yes")  # late: the question is answered
        second = await front.until("question_asked", 2)
        assert second["id"] != first["id"]
        assert second["card"]["tries"] is False
        tried = second["card"]["tried"]
        assert (tried["ended"], tried["output"]) == ("exit code 0", ["said"])
        assert [each.split()[1] for each in tried["items"]] == ["one", "two"]
        assert "+1" in tried["diff"]
        wrong_ones: tuple[dict[str, str], ...] = (
            {"answer": "yes"},
            {"answer": "try"},
            {"answer": "keep 3"},
            {"answer": "keep 0"},
            {"answer": "keep none"},
            {"answer": "keep 1,x"},
            {"answer": f"keep {'9' * 5000}"},
            {"answer": "keep", "command": "touch c"},
            {"answer": "run", "feedback": "x"},
            {"answer": "edit", "command": "touch c"},
            {"answer": "s"},
            {"answer": "keep", "id": first["id"]},
        )
        for number, fields in enumerate(wrong_ones, 8):
            front.say("answer", **{"id": second["id"], **fields})
            await front.until("error", number)
        assert not any((folder / name).exists() for name in ("one", "two"))
        front.say("answer", id=second["id"], answer=answer)
        await front.until("run_ended")

    talk(folder, [bash("echo 1 > one; echo 2 > two; echo said"), Turn("done")], program)
    assert {name for name in ("one", "two") if (folder / name).exists()} == left
    assert not [*(folder.parent.parent / "state/transactions").glob("*/*")]


@pytest.mark.threat("T313")
@pytest.mark.skipif(not overlays_work(), reason="this user cannot mount an overlay")
@pytest.mark.parametrize("how", ["end", "interrupt"])
def test_a_try_without_an_answer_leaves_nothing(folder: Path, how: str) -> None:
    async def program(front: Front) -> None:
        front.say("prompt", text="go")
        first = await front.until("question_asked", 1)
        front.say("answer", id=first["id"], answer="try")
        await front.until("question_asked", 2)
        if how == "interrupt":
            front.say("interrupt")
            await front.until("run_ended")

    talk(folder, [bash("echo 1 > one; sleep 0.1"), Turn("done")], program)
    assert not (folder / "one").exists()
    assert not [*(folder.parent.parent / "state/transactions").glob("*/*")]


@pytest.mark.threat("T313")
@pytest.mark.skipif(not overlays_work(), reason="this user cannot mount an overlay")
def test_a_try_that_is_stopped_leaves_nothing(folder: Path) -> None:
    async def program(front: Front) -> None:
        front.say("prompt", text="go")
        first = await front.until("question_asked", 1)
        front.say("answer", id=first["id"], answer="try")
        layers = folder.parent.parent / "state/transactions"
        await until_async(lambda: list(layers.glob("*/*/upper*/one")))
        front.say("interrupt")
        await front.until("run_ended")

    talk(folder, [bash("echo 1 > one; python3 -c 'import time; time.sleep(600)'"), Turn("done")], program)
    assert not (folder / "one").exists()
    assert not [*(folder.parent.parent / "state/transactions").glob("*/*")]
    with AuditLog.open_to_read(folder.parent.parent / "state" / "audit.db") as log:
        assert [row.body["ended_by"] for row in log.rows(kind="finished")] == ["cancelled"]


@pytest.mark.threat("T313")
@pytest.mark.skipif(not overlays_work(), reason="this user cannot mount an overlay")
@pytest.mark.parametrize(
    ("mode", "answer", "made"),
    [("plan", "keep", False), ("plan", "run", False), ("trust-project", "keep", True), ("trust-project", "no", False)],
)
def test_the_mode_of_the_answer_counts_after_a_try(folder: Path, mode: str, answer: str, made: bool) -> None:
    async def program(front: Front) -> None:
        front.say("prompt", text="go")
        first = await front.until("question_asked", 1)
        front.say("answer", id=first["id"], answer="try")
        second = await front.until("question_asked", 2)
        front.say("mode", mode=mode)
        await front.until("changed")
        front.say("answer", id=second["id"], answer=answer)
        await front.until("run_ended")

    talk(folder, [bash("echo 1 > one; echo said"), Turn("done")], program)
    assert (folder / "one").exists() == made
    assert not [*(folder.parent.parent / "state/transactions").glob("*/*")]


RULE = """[[rule]]
verdict = "try"
run = ["python3", "do.py", "**"]
why = "look first"
"""


@pytest.fixture
def rule(folder: Path) -> Path:
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "ringfence"
    config.mkdir(parents=True, exist_ok=True)
    (config / "config.toml").write_text(RULE)
    program = "import sys, time\nprint('said')\ntime.sleep(6000 * len(sys.argv[1:]))\n"
    (folder / "do.py").write_text(f"{program}open('one', 'w').write('1')\nopen('two', 'w').write('2')\n")
    return folder


@pytest.mark.threat("T317")
@pytest.mark.skipif(not overlays_work(), reason="this user cannot mount an overlay")
def test_what_a_rule_tries_waits_for_the_end_of_the_turn(rule: Path) -> None:
    async def program(front: Front) -> None:
        front.say("prompt", text="go")
        asked = await front.until("question_asked", 1)
        assert [each["status"] for each in front.events if each["type"] == "finished"] == [0]
        assert asked["again"] == "the turn is over"
        assert asked["card"]["tried"]["commands"] == ["python3 do.py: exit code 0"]
        for number, wrong in enumerate(("run", "yes", "try", "keep 3"), 1):
            front.say("answer", id=asked["id"], answer=wrong)
            await front.until("error", number)
        assert not (rule / "one").exists()
        front.say("answer", id=asked["id"], answer="keep 2")
        await front.until("run_ended")

    front, code = talk(rule, [bash("python3 do.py"), Turn("done")], program)
    assert code is Exit.DONE
    assert not (rule / "one").exists()
    assert (rule / "two").read_text() == "2"
    proposed = [each["tool"] for each in front.events if each["type"] == "tool_proposed"]
    assert proposed == ["bash", "waiting_changes"]
    assert "kept 1 of 2 changes" in [each for each in front.events if each["type"] == "finished"][-1]["text"]
    assert not [*(rule.parent.parent / "state/transactions").glob("*/*")]


@pytest.mark.threat("T317")
@pytest.mark.skipif(not overlays_work(), reason="this user cannot mount an overlay")
@pytest.mark.parametrize("how", ["interrupt", "quit", "end"])
def test_a_turn_that_is_stopped_asks_its_user_and_nobody_else(rule: Path, how: str) -> None:
    async def program(front: Front) -> None:
        front.say("prompt", text="go")
        await front.until("finished", 1)
        if how == "quit":
            front.say("quit")
            return
        if how == "end":
            return
        front.say("interrupt")
        asked = await front.until("question_asked", 1)
        assert asked["again"] == "the turn was stopped"
        front.say("answer", id=asked["id"], answer="keep")
        await front.until("run_ended")

    front, _ = talk(rule, [bash("python3 do.py"), bash("python3 do.py waits" if how != "end" else "true")], program)
    assert (rule / "one").exists() == (how == "interrupt")
    assert not [*(rule.parent.parent / "state/transactions").glob("*/*")]
    if how == "quit":
        assert not [each for each in front.events if each["type"] == "question_asked"]
