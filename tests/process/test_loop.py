"""Tests of the agent loop: order of actions, records, messages to the model, and the end of a run."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from http.server import HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from policy.model.tier import Mode
from policy.model.verdict import Permit, Problem
from runner.approval.approver import Halt, No, Yes
from runner.audit.log import AuditLog
from runner.config.live_profile import LiveProfile
from runner.engine.retry_policy import RetryPolicy
from runner.engine.run_limits import RunLimits
from runner.events import (
    ActionFinished,
    CallBegun,
    CommandOutput,
    ContextUsed,
    Denied,
    Event,
    MalformedCall,
    ModelText,
    Notice,
    Retrying,
    RunEnded,
    ToolProposed,
    VerdictReached,
)
from runner.gate.suggest import read_rules
from runner.loop import Ending, run
from runner.messages import (
    AssistantMessage,
    ProviderError,
    Request,
    Stop,
    StreamEvent,
    TextDelta,
    ToolCall,
    ToolMessage,
)
from runner.problems import Exit
from runner.providers.scripted import ScriptedProvider, Turn
from runner.secrets.redactor import Redactor
from runner.secrets.secret import Secret
from runner.sessions.journal import Journal
from runner.sessions.store import JournalError
from sandbox.backend import Listener, Outcome, SandboxUnavailable, Violation
from sandbox.linux.backend import Linux
from tests.support.loop_harness import (
    DONE,
    FOREVER,
    NETWORK,
    READ,
    WORK,
    FakeSandbox,
    FixedApprover,
    LoopHarness,
    Make,
    bash,
    busy,
    call,
    let_others_go_on,
    let_time_pass,
)
from tests.support.waiting import until_async
from tests.support.web_site import SECRET as SERVED
from tests.support.web_site import Site

if TYPE_CHECKING:
    from runner.changes.undo.recorder import SnapshotRecorder

LOST = Problem("the sandbox is gone", "its helper died", "try again")


# ---- one call, all the way


def test_a_call_travels_the_whole_way_in_order(stage: Make) -> None:
    found = stage(bash(READ, text="I look."), DONE)
    ending = found.play()
    assert ending.exit is Exit.DONE
    assert found.sandbox.ran == [READ]
    assert [type(event) for event in found.events if not isinstance(event, ModelText | ContextUsed)][:4] == [
        type(found.events[0]),
        ToolProposed,
        VerdictReached,
        CommandOutput if found.of(CommandOutput) else ActionFinished,
    ]
    assert "of ls" in found.told()[0]
    ended = found.events[-1]
    assert isinstance(ended, RunEnded)
    assert ended.as_json()["exit"] == 0, "the number that the shell gets"


@pytest.mark.threat("T24")
def test_the_decision_is_on_the_disk_before_anything_runs(stage: Make) -> None:
    found = stage(bash(READ), bash(WORK), DONE)
    seen: list[int] = []
    other = AuditLog.open_to_read(Path(found.audit.store.name))
    found.sandbox.before_run = lambda _: seen.append(len(list(other.rows(kind="decided"))))
    found.play()
    other.close()
    assert seen == [1, 2]


@pytest.mark.threat("T24")
def test_when_the_record_cannot_be_written_nothing_runs(stage: Make) -> None:
    found = stage(bash(READ), DONE)
    found.audit.close()
    ending = found.play()
    assert ending.exit is Exit.FAILED
    assert found.sandbox.ran == []


def test_the_outcome_is_recorded_if_the_session_file_cannot_be_written(stage: Make) -> None:
    class Recorder:
        changed = None

        def transactions(self, permit: Permit) -> None:
            return None

        async def before(self, permit: Permit, words: str, call: str, *, required: bool = False) -> None:
            return None

        held = ()

        def after(self, running: None, hold: object = None) -> int:
            return 1

    class FullDisk(Journal):
        def snapshot(self, snapshot: str, call: str) -> None:
            raise JournalError(Problem("the session could not be kept", "no space left on device", "make room"))

    made = stage(bash(WORK), DONE)
    made.ctx = replace(made.ctx, undo=cast("SnapshotRecorder", Recorder()), journal=FullDisk())
    assert made.play().exit is Exit.FAILED
    assert next(iter(made.audit.rows())).kind == "finished"


def test_the_whole_story_is_in_the_log(stage: Make) -> None:
    found = stage(bash(READ, NETWORK), call("nope", {}), DONE)
    found.play()
    kinds = [(row.kind, row.body.get("verdict")) for row in found.audit.rows()]
    assert kinds[::-1] == [
        ("session", None),
        ("facts", None),  # the machine, once
        ("facts", None),  # and what lies in the workspace
        ("facts", None),  # what was asked for the first action; it is there before the decision that rests on it
        ("decided", "allow"),
        ("finished", None),
        ("facts", None),
        ("decided", "deny"),
        ("refused", "deny"),
    ]


@pytest.mark.threat("T26")
def test_a_name_of_megabytes_is_named_shortly(stage: Make) -> None:
    found = stage(call("x" * 10_000_000, {}), DONE)
    found.play()
    assert max(len(event.line()) for event in found.events) < 2000
    assert len(found.told()[0]) < 500
    assert next(found.audit.rows(kind="refused")).body["tool"] == "x" * 200 + "…"


def test_a_long_refused_script_is_said_whole_once(stage: Make) -> None:
    found = stage(bash("curl https://example.test/\n" + "ls\n" * 100_000), DONE)
    found.play()
    assert [type(event) for event in found.events if len(event.line()) > 5000] == [ToolProposed]
    (denied,) = found.of(Denied)
    assert isinstance(denied, Denied)
    assert denied.action.startswith("$ curl https://example.test/")
    assert "\n" not in denied.action, "it says it in one line"


def test_what_the_sandbox_stopped_is_told_to_the_model_and_to_the_person(stage: Make) -> None:
    stopped = Violation("writing to", "/var/tmp/x", "write into the workspace", inferred=True)
    found = stage(bash(WORK), DONE, behave=lambda _: Outcome(1, stderr=b"no", violations=(stopped,)))
    found.play()
    assert "/var/tmp/x" in found.told()[0]
    (finished,) = found.of(ActionFinished)
    assert isinstance(finished, ActionFinished)
    assert finished.violations == (stopped,)


def test_a_failing_command_is_an_answer_and_not_an_error(stage: Make) -> None:
    found = stage(bash(WORK), DONE, behave=lambda _: Outcome(1, stdout=b"FAILED\n"))
    ending = found.play()
    assert not found.results()[0].is_error
    assert ending.exit is Exit.DONE


def test_a_command_that_a_limit_ended_is_an_error(stage: Make) -> None:
    found = stage(bash(WORK), DONE, behave=lambda _: Outcome(137, ended_by="wall"))
    found.play()
    assert found.results()[0].is_error


def test_a_long_output_is_kept_whole_and_the_model_is_told_where(stage: Make) -> None:
    whole = b"".join(b"line %d\n" % number for number in range(9000))
    found = stage(bash(READ), DONE, behave=lambda _: Outcome(0, stdout=whole))
    found.play()
    (finished,) = found.of(ActionFinished)
    assert isinstance(finished, ActionFinished)
    assert finished.kept is not None
    assert Path(finished.kept).read_bytes() == whole
    assert Path(finished.kept).stat().st_mode & 0o777 == 0o600
    assert finished.kept in found.told()[0]
    assert len(found.told()[0]) < 60_000


def test_a_character_split_over_two_chunks_stays_one(stage: Make) -> None:
    class Split(FakeSandbox):
        async def run(self, permit: Permit, *, stdin: bytes | None = None, listen: Listener | None = None) -> Outcome:
            assert listen is not None
            listen(1, b"na\xc3")
            listen(2, b"\xff")
            listen(1, b"\xafve")
            return Outcome(0, stdout=b"na\xc3\xafve")

    found = stage(bash(READ), DONE)
    found.ctx = replace(found.ctx, sandbox=Split())
    found.play()
    chunks = [event for event in found.events if isinstance(event, CommandOutput)]
    assert "".join(chunk.text for chunk in chunks if chunk.stream == 1) == "naïve"


# ---- refusals


@pytest.mark.threat("T39")
def test_a_denial_goes_back_to_the_model_with_the_way_out_and_the_exit_says_so(stage: Make) -> None:
    found = stage(bash(NETWORK), bash(READ), DONE)
    ending = found.play()
    assert found.sandbox.ran == [READ]
    (denied,) = found.of(Denied)
    assert isinstance(denied, Denied)
    assert found.results()[0].is_error
    for part in (denied.problem.what, denied.problem.why, denied.problem.fix):
        assert part in found.told()[0]
    assert ending.exit is Exit.DENIED
    assert ending.reason == "done"
    assert ending.denied == (denied,)


# fmt: off
MALFORMED: list[tuple[Turn, str]] = [
    (call("rm_rf", {"path": "/"}),                       "an unknown tool"),
    (call("bash", {"command": 1}),                       "a wrong type"),
    (call("bash", {}),                                   "a missing argument"),
    (call("bash", {"command": "ls", "root": True}),      "an argument too many"),
    (call("bash", None, '{"command": "ls'),              "JSON that breaks off"),
    (call("bash", None, "[1, 2]"),                       "JSON that is no object"),
    (call("bash", {"command": "x" * 10_000_000}),        "ten megabytes of script"),
    (call("bash", {"command": "ls\0-la"}),               "a NUL"),
    (call("bash", {"command": "ls \ud800"}),             "half a character"),
    (call("read", {"path": "a\0b"}),                     "a NUL in a path"),
    (call("bash", {"command": "  "}),                    "an empty script"),
]
# fmt: on


@pytest.mark.threat("T26")
@pytest.mark.parametrize(("turn", "why"), MALFORMED, ids=[why for _, why in MALFORMED])
def test_a_call_without_sense_is_explained_and_recorded_and_runs_nothing(stage: Make, turn: Turn, why: str) -> None:
    found = stage(turn, DONE)
    ending = found.play()
    assert found.sandbox.ran == []
    assert found.results()[0].is_error
    assert len(found.told()[0]) < 3000, "a Problem stays short for inputs of any size"
    assert [type(event) for event in found.of(MalformedCall, Denied)] == [MalformedCall]
    assert [row.kind for row in found.audit.rows()] == ["refused", "session"]
    assert ending.exit is Exit.DONE, "policy denied nothing"


# calls of one reply, of which that many are done, kept in the talk; where 10 may be done and 50 kept
CROWDS = [(10, 10, 10), (11, 10, 11), (50, 10, 50), (3000, 10, 50)]


@pytest.mark.threat("T121")
@pytest.mark.parametrize("script", [READ, WORK])
@pytest.mark.parametrize(("count", "done", "kept"), CROWDS)
def test_calls_of_one_reply_have_a_bound(
    stage: Make, script: str, count: int, done: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.engine.turns._MOST_KEPT", 50)
    bounds = RunLimits(calls=10, patience=RetryPolicy(first=0.0, most=0.0))
    found = stage(bash(*[script] * count), DONE, bounds=bounds)
    ending = found.play()
    assert (ending.exit, ending.turns) == (Exit.DONE, 2)
    assert len(found.sandbox.ran) == done
    answers = [message for message in found.history if isinstance(message, ToolMessage)]
    assert [len(each.results) for each in answers] == [kept]
    assert [result.is_error for result in answers[0].results] == [False] * done + [True] * (kept - done)
    assert [len(each.calls) for each in found.history if isinstance(each, AssistantMessage) and each.calls] == [kept]
    refused = list(found.audit.rows(kind="refused"))
    assert len(refused) == kept - done
    assert all(f"the reply has {count:,} calls" in json.dumps(row.body) for row in refused)
    assert len(found.of(ToolProposed)) == kept
    assert len(found.of(CallBegun)) <= done
    assert bool([each for each in found.of(Notice) if f"{count:,} calls" in each.text]) == (count > kept)  # type: ignore[attr-defined]


@pytest.mark.threat("T121")
@pytest.mark.parametrize("bound", ["time", "a person"])
def test_refusing_many_calls_can_be_stopped(stage: Make, bound: str) -> None:
    """Each refusal lets the loop run, so that the time of the run and an interrupt count."""
    seconds = 1000.0 if bound == "time" else None
    found = stage(
        bash(*[READ] * 1000),
        DONE,
        bounds=RunLimits(calls=0, seconds=seconds, patience=RetryPolicy(first=0.0, most=0.0)),
    )

    def emit(event: Event) -> None:
        found.events.append(event)
        if bound == "time" and len(found.of(MalformedCall)) == 3:
            let_time_pass(1000.0)  # the time of the run is over now, and 997 calls are left

    found.ctx = replace(found.ctx, emit=emit)

    async def play() -> Ending:
        task = asyncio.ensure_future(run("do it", found.ctx, found.history))
        while bound != "time" and len(found.of(MalformedCall)) < 3:
            await asyncio.sleep(0)
        if bound != "time":
            task.cancel()
        return await task

    ending = asyncio.run(play())
    assert ending.exit is (Exit.LIMIT if bound == "time" else Exit.INTERRUPTED)
    assert len(found.of(MalformedCall)) < 1000
    assert len(found.results()) == 1000, "every call has its result"


@pytest.mark.threat("T34")
def test_three_denials_in_a_row_end_an_unattended_run(stage: Make) -> None:
    found = stage(bash(NETWORK), bash(NETWORK, NETWORK, READ), DONE)
    ending = found.play()
    assert (ending.exit, ending.limit) == (Exit.LIMIT, "denials")
    assert "3 denials in a row" in ending.reason
    assert found.sandbox.ran == [], "the call after the third denial is not run"
    assert [result.is_error for result in found.results()] == [True] * 4, "and yet every call has its result"


def test_an_allowed_call_in_between_starts_the_count_again(stage: Make) -> None:
    found = stage(bash(NETWORK, NETWORK, READ, NETWORK, NETWORK), DONE)
    assert found.play().reason == "done"


@pytest.mark.threat("T34")
def test_a_call_without_sense_in_between_does_not(stage: Make) -> None:
    found = stage(bash(NETWORK, NETWORK), call("nope", {}), bash(NETWORK), DONE)
    assert "in a row" in found.play().reason


@pytest.mark.threat("T34")
def test_twenty_denials_end_it_too(stage: Make) -> None:
    found = stage(*[bash(NETWORK, READ)] * 25, DONE)
    ending = found.play()
    assert (ending.exit, ending.limit) == (Exit.LIMIT, "denials")
    assert len(ending.denied) == 20


def test_with_somebody_there_denials_do_not_end_it(stage: Make) -> None:
    found = stage(*[bash("cat ~/.ssh/id_rsa")] * 5, DONE, unattended=False, approver=FixedApprover(No()))
    ending = found.play()
    assert len(ending.denied) == 5
    assert ending.reason == "done"


# ---- questions


@pytest.mark.threat("T38")
def test_a_yes_runs_it_once_under_the_terms_that_were_shown(stage: Make) -> None:
    person = FixedApprover(Yes())
    found = stage(bash(WORK), DONE, mode=Mode.DEFAULT, unattended=False, approver=person)
    permits: list[Permit] = []
    found.sandbox.before_run = permits.append
    assert found.play().exit is Exit.DONE
    assert [permit.terms for permit in permits] == [ask.terms for ask in person.asked]
    answer = next(found.audit.rows(kind="decided")).body["answer"]
    assert isinstance(answer, dict)
    assert answer["yes"] is True
    assert answer["by"] == "person"


def test_a_no_reaches_the_model_in_the_persons_words(stage: Make) -> None:
    approver = FixedApprover(No("use the makefile"))
    found = stage(bash(WORK), DONE, mode=Mode.DEFAULT, unattended=False, approver=approver)
    assert found.play().exit is Exit.DENIED
    assert "use the makefile" in found.told()[0]
    assert found.sandbox.ran == []


def test_a_stop_at_the_question_ends_the_turn(stage: Make) -> None:
    found = stage(bash(WORK), DONE, mode=Mode.DEFAULT, unattended=False, approver=FixedApprover(Halt()))
    assert found.play().exit is Exit.INTERRUPTED
    assert found.sandbox.ran == []
    assert len(found.results()) == 1


# ---- side by side, and in order


def test_reads_run_side_by_side_ten_at_most_and_answer_in_source_order(stage: Make) -> None:
    names = [f"cat f{number}" for number in range(12)]
    ended: list[str] = []

    async def works(name: str) -> None:
        """Run until ten run and no other begins; the first one until all others have ended."""
        await until_async(lambda: found.sandbox.most >= 10)
        await let_others_go_on()
        await until_async(lambda: name != names[0] or len(ended) == 11)
        ended.append(name)

    found = stage(bash(*names), DONE, behave=works)
    found.play()
    assert found.sandbox.most == 10
    assert ["".join(text.split("\n")[0]) for text in found.told()] == [f"of {name}" for name in names]


def test_what_may_change_something_runs_alone_and_in_order(stage: Make) -> None:
    scripts = ("ls", "ls -a", "touch a", "ls -l", "touch b", "touch c")
    alone: list[int] = []
    found = stage(bash(*scripts), DONE, behave=lambda _: let_others_go_on())
    found.sandbox.before_run = lambda permit: alone.append(found.sandbox._now) if "touch" in repr(permit) else None
    found.play()
    assert found.sandbox.ran == list(scripts)
    assert alone == [0, 0, 0], "nothing else runs when a change starts"
    assert found.sandbox.most == 2, "the two reads before the first change shared"


@pytest.mark.threat("T26")
def test_the_same_id_twice_mixes_nothing_up(stage: Make) -> None:
    twice = Turn(calls=(ToolCall("same", "bash", {"command": "cat a"}), ToolCall("same", "bash", {"command": "cat b"})))
    found = stage(twice, DONE)
    found.play()
    assert len({event.call for event in found.events if isinstance(event, ToolProposed)}) == 2
    assert ["of cat a" in found.told()[0], "of cat b" in found.told()[1]] == [True, True]


# ---- how it ends


@pytest.mark.threat("T14")
def test_cancelling_reaches_the_child_at_once_and_the_record_says_so(stage: Make) -> None:
    found = stage(bash(WORK), DONE, behave=lambda _: FOREVER)

    async def interrupted() -> Ending:
        task = asyncio.ensure_future(run("do it", found.ctx, found.history))
        await found.sandbox.started.get()
        task.cancel()
        return await task

    ending = asyncio.run(interrupted())
    assert ending.exit is Exit.INTERRUPTED
    assert found.sandbox.cancelled == [WORK], "and it was not awaited until its own end"
    assert next(found.audit.rows(kind="finished")).body["ended_by"] == "cancelled"
    assert len(found.results()) == 1, "the history stays whole, so the talk can go on"
    assert found.results()[0].is_error


def run_and_stop(found: LoopHarness, count: int = 1) -> Ending:
    """Play the turns, and cancel the run when `count` commands were started."""

    async def interrupted() -> Ending:
        task = asyncio.ensure_future(run("do it", found.ctx, found.history))
        for _ in range(count):
            await found.sandbox.started.get()
        await asyncio.sleep(0)
        task.cancel()
        return await task

    return asyncio.run(interrupted())


@pytest.mark.parametrize("script", [WORK, "cat a"], ids=["alone", "beside other reads"])
def test_the_output_of_a_stopped_command_is_shown_and_told_to_the_model(stage: Make, script: str) -> None:
    found = stage(bash(script, "echo later"), DONE, behave=lambda _: b"one\ntwo\n")
    assert run_and_stop(found).exit is Exit.INTERRUPTED
    told, later = found.told()
    assert told.startswith("the user stopped this command before it was done; this is its output so far:\none\ntwo\n")
    assert "[stderr]\nof stderr\n[stopped after " in told
    assert later.startswith("not run") or later.startswith("the user stopped"), "every call has a result"
    (event, *_) = found.of(ActionFinished)
    assert (event.status, event.ended_by) == (130, "cancelled")  # type: ignore[attr-defined]  # ActionFinished
    assert "one\ntwo" in event.text  # type: ignore[attr-defined]  # ActionFinished
    assert found.results()[0].is_error
    record = next(found.audit.rows(kind="finished")).body
    assert record["ended_by"] == "cancelled"


def test_a_secret_in_the_output_of_a_stopped_command_is_masked(stage: Make) -> None:
    secret = Secret("sk-quite-secret-0123456789")
    found = stage(bash(WORK), DONE, behave=lambda _: f"key {secret.reveal()}\n".encode())
    found.ctx = replace(found.ctx, redactor=Redactor([secret]))
    run_and_stop(found)
    assert "[secret]" in found.told()[0]
    assert secret.reveal() not in repr(found.history) + repr(found.of(ActionFinished))


def test_a_command_that_the_time_of_the_run_ends_does_not_blame_the_user(stage: Make) -> None:
    def prints(name: str) -> bytes:
        let_time_pass(1000.0)
        return b"one\n"

    found = stage(bash(WORK), DONE, behave=prints, bounds=RunLimits(seconds=1000.0))
    assert found.play().exit is Exit.LIMIT
    assert found.told()[0].startswith(
        "the time of the run was over before it was done; this is its output so far:\none"
    )


def test_cancelling_ends_everything_that_runs_side_by_side(stage: Make) -> None:
    found = stage(bash("cat a", "cat b", "cat c"), DONE, behave=lambda _: FOREVER)

    async def interrupted() -> Ending:
        task = asyncio.ensure_future(run("do it", found.ctx, found.history))
        for _ in range(3):
            await found.sandbox.started.get()
        task.cancel()
        return await task

    assert asyncio.run(interrupted()).exit is Exit.INTERRUPTED
    assert sorted(found.sandbox.cancelled) == ["cat a", "cat b", "cat c"]
    assert len(list(found.audit.rows(kind="finished"))) == 3


def test_what_the_model_had_said_when_it_was_stopped_stays_in_the_talk(stage: Make) -> None:
    class Slow:
        name = "slow"

        async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
            yield TextDelta("I was about to")
            let_time_pass(1000.0)
            await asyncio.sleep(FOREVER)

        async def close(self) -> None:
            return None

    found = stage(provider=Slow(), bounds=RunLimits(seconds=1000.0))
    assert found.play().exit is Exit.LIMIT
    assert "I was about to" in repr(found.history[-1])


@pytest.mark.threat("T14")
def test_the_wall_time_of_a_run_ends_it(stage: Make) -> None:
    def runs(name: str) -> float:
        let_time_pass(1000.0)
        return FOREVER

    found = stage(bash(WORK), DONE, behave=runs, bounds=RunLimits(seconds=1000.0))
    ending = found.play()
    assert ending.exit is Exit.LIMIT
    assert found.sandbox.cancelled == [WORK]


@pytest.mark.threat("T14")
def test_the_most_turns_end_it(stage: Make) -> None:
    found = stage(*[bash(READ)] * 9, bounds=RunLimits(turns=4))
    ending = found.play()
    assert (ending.exit, ending.turns) == (Exit.LIMIT, 4)


# fmt: off
STOPS: list[tuple[Stop, Exit, str]] = [
    (Stop.END,     Exit.DONE,   "a plain end"),
    (Stop.OTHER,   Exit.DONE,   "an end for a reason that we do not know"),
    (Stop.LENGTH,  Exit.DONE,   "an answer that was cut is gone on with"),
    (Stop.REFUSAL, Exit.FAILED, "a refusal is not done"),
]
# fmt: on


@pytest.mark.parametrize(("stop", "exit", "why"), STOPS, ids=[why for _, _, why in STOPS])
def test_why_the_model_stopped_decides_the_exit(stage: Make, stop: Stop, exit: Exit, why: str) -> None:
    assert stage(Turn("so", stop=stop)).play().exit is exit, why


# fmt: off
ANSWERS: list[tuple[tuple[Turn, ...], RunLimits | None, str, str]] = [
    ((Turn("All done."),), None, "All done.", "one message"),
    ((bash(READ, text="I look."), Turn("Three files.")), None, "Three files.", "the text before a call is not the answer"),
    ((bash(NETWORK, text="I fetch it."), Turn("It was denied.")), None, "It was denied.", "a denied call"),
    ((*[bash(READ, text="I look.")] * 3,), RunLimits(turns=2), "", "a run that a limit ends after a call"),
    ((Turn("I would rather", stop=Stop.REFUSAL),), None, "I would rather", "a message of a run that failed"),
    ((Turn(""),), None, "", "an empty message"),
]
# fmt: on


@pytest.mark.parametrize(("turns", "bounds", "text", "why"), ANSWERS, ids=[why for *_, why in ANSWERS])
def test_the_end_of_a_run_contains_the_answer(
    stage: Make, turns: tuple[Turn, ...], bounds: RunLimits | None, text: str, why: str
) -> None:
    found = stage(*turns, bounds=bounds)
    ending = found.play()
    ended = found.events[-1]
    assert isinstance(ended, RunEnded)
    assert (ending.text, ended.text) == (text, text), why


@pytest.mark.threat("T48")
def test_the_answer_at_the_end_of_a_run_is_masked(stage: Make) -> None:
    secret = Secret("sk-quite-secret-0123456789")
    found = stage(Turn(f"The key is {secret.reveal()}."))
    found.ctx = replace(found.ctx, redactor=Redactor([secret]))
    assert found.play().text == "The key is [secret]."
    assert secret.reveal() not in found.events[-1].line()


@pytest.mark.threat("T19")
def test_a_sandbox_that_is_gone_ends_it_with_its_own_code(stage: Make) -> None:
    found = stage(bash(WORK), DONE, behave=lambda _: SandboxUnavailable(LOST))
    assert found.play().exit is Exit.SANDBOX
    assert next(found.audit.rows(kind="finished")).body["ended_by"] == "failure"


def test_a_sandbox_that_is_gone_under_one_read_ends_the_others(stage: Make) -> None:
    found = stage(
        bash("cat a", "cat b"), DONE, behave=lambda name: SandboxUnavailable(LOST) if name == "cat a" else FOREVER
    )
    assert found.play().exit is Exit.SANDBOX
    assert found.sandbox.cancelled == ["cat b"]


# ---- providers that fail


class Flaky:
    """Fails as told, one entry a request, then says it is done. `None` breaks off without an answer."""

    name = "flaky"

    def __init__(self, failures: Sequence[ProviderError | None], *, after_text: bool = False) -> None:
        self._failures = list(failures)
        self._after_text = after_text
        self.requests = 0

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        self.requests += 1
        if self._after_text:
            yield TextDelta("half an ans")
        if self._failures:
            failure = self._failures.pop(0)
            if failure is None:
                return
            raise failure
        async for event in ScriptedProvider([DONE]).stream(request):
            yield event

    async def close(self) -> None:
        return None


# fmt: off
FAILURES: list[tuple[Flaky, Exit, int, str]] = [
    (Flaky([busy()]),                     Exit.DONE,   2, "waiting helped"),
    (Flaky([None]),                       Exit.DONE,   2, "a stream that ends without an answer is asked for again"),
    (Flaky([busy()] * 9),                 Exit.FAILED, 8, "it does not wait for ever"),
    (Flaky([busy(retryable=False)]),      Exit.FAILED, 1, "waiting would not help"),
    (Flaky([busy()], after_text=True),    Exit.DONE,   2, "an answer that broke off is gone on with"),
    (Flaky([busy()] * 9, after_text=True), Exit.FAILED, 4, "a few times"),
]
# fmt: on


@pytest.mark.parametrize(("provider", "exit", "requests", "why"), FAILURES, ids=[why for *_, why in FAILURES])
def test_a_provider_that_fails(stage: Make, provider: Flaky, exit: Exit, requests: int, why: str) -> None:
    found = stage(provider=provider)
    assert found.play().exit is exit, why
    assert provider.requests == requests, why
    assert len(found.of(Retrying)) == requests - 1, "every wait is said"


# ---- front ends that fail


@pytest.mark.parametrize(
    ("failure", "exit", "reason"),
    [
        (BrokenPipeError(), Exit.BROKEN_PIPE, "the reader of the output is gone"),
        (RuntimeError("a listener"), Exit.FAILED, "the approver or a listener failed"),
    ],
    ids=["the reader is gone", "a defect"],
)
def test_the_end_of_a_run_says_why_its_events_could_not_be_shown(
    stage: Make, failure: Exception, exit: Exit, reason: str
) -> None:
    found = stage(bash(READ), DONE)

    def emit(event: Event) -> None:
        found.events.append(event)
        if isinstance(event, ActionFinished):
            raise failure

    found.ctx = replace(found.ctx, emit=emit)
    with pytest.raises(type(failure)):
        asyncio.run(run("do it", found.ctx, found.history))
    (ended,) = found.of(RunEnded)
    assert (ended.exit, ended.reason) == (exit, reason)


# ---- hosts


@pytest.mark.threat("T68")
def test_a_host_that_a_rule_allows_is_reached_and_another_is_told_to_the_model(stage: Make, tmp_path: Path) -> None:
    """The whole way with a real sandbox: what the proxy refuses reaches the model with the entry that the user can allow."""
    server = HTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_address[1]
    fetch = f"curl -sS -L --noproxy '' http://localhost:{port}"
    found = stage(bash(f"{fetch}/"), bash(f"{fetch}/away"), bash("curl -sS http://y.test/"), DONE)
    rules = read_rules(f'[[rule]]\nverdict = "allow"\nhost = ["localhost:{port} private"]\n')
    sandbox = Linux("T1", cache=tmp_path / "cache")
    ctx = replace(found.ctx, profiles=LiveProfile(replace(found.ctx.profile, permissions=rules)), sandbox=sandbox)

    async def play() -> None:
        try:
            await run("do it", ctx, found.history)
        finally:
            await sandbox.close()

    try:
        asyncio.run(play())
    finally:
        server.shutdown()
        server.server_close()
    first, second, third = found.told()
    assert SERVED in first
    assert "host elsewhere.test is not on the allowlist" in second
    assert "the user can allow" in second
    assert "y.test" in third
    finished = [event for event in found.of(ActionFinished) if isinstance(event, ActionFinished)]
    assert [[(made.host, made.allowed) for made in event.connections] for event in finished] == [
        [("localhost", True)],
        [("localhost", True), ("elsewhere.test", False)],
    ], "another host is a question, which there is no user to answer"
