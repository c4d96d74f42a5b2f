"""Jobs that a model requests: each is a question, is never wider than its session, and ends."""

import asyncio
import json
import os
import time
from pathlib import Path

import pytest

from policy.describe.phrases import tool_call_text
from policy.model.action import ScheduleJob
from policy.model.profile import MAIN
from policy.model.tier import Mode
from policy.model.verdict import Problem
from runner.agent.agent import Agent
from runner.agent.startup import RunArgs, prepare_start
from runner.approval.approver import Answer, No, Question, Yes
from runner.config import ConfigError
from runner.events import Event, SessionStarted
from runner.frontends.jobs.job_run import start_job
from runner.jobs.job import JobOrigin
from runner.jobs.session_jobs import MOST_REQUESTED, SessionJobs
from runner.jobs.store import JobStore
from runner.problems import Exit

CREATE = {
    "operation": "create", "schedule": "cron 0 8 * * 1", "prompt": "List the open TODOs\nof this project.", "mode": "plan",
}  # fmt: skip


class ModelSession:
    """A conversation with a scripted model that calls `schedule_job`, and a user who gives one answer."""

    def __init__(self, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.work, self.state = base / "work", base / "state"
        for folder in (self.work / ".git", base / "home", base / "config" / "ringfence"):
            folder.mkdir(parents=True)
        self.config = base / "config" / "ringfence" / "config.toml"
        self.config.write_text("[jobs]\ntool = true\n")
        self.script = base / "script.json"
        for name, value in (
            ("HOME", base / "home"), ("RINGFENCE_STATE_DIR", self.state), ("XDG_CONFIG_HOME", base / "config"),
            ("XDG_CACHE_HOME", base / "cache"),
        ):  # fmt: skip
            monkeypatch.setenv(name, str(value))
        self.questions: list[Question] = []
        self.events: list[Event] = []
        self.store = JobStore(self.state)

    def play(
        self, *calls: dict, answer: Answer | None = None, mode: Mode = Mode.TRUST_PROJECT, alone: bool = False
    ) -> int:
        turns = [{"calls": [{"name": "schedule_job", "arguments": each}]} for each in calls]
        self.script.write_text(json.dumps({"turn": [*turns, {"text": "done"}]}))
        args = RunArgs(mode=mode, model=f"scripted:{self.script}", cwd=str(self.work), unattended=alone)

        def decide(question: Question) -> Answer:
            self.questions.append(question)
            assert answer is not None, "no question was expected"
            return answer

        async def work() -> int:
            approver = None if alone else decide
            start = lambda: prepare_start(args, unattended=alone, asks=False, notes=True)  # noqa: E731  # two arguments
            async with Agent(approver=approver, emit=self.events.append, start=start) as agent:
                return int((await agent.run("plan the week")).exit)

        return asyncio.run(work())

    @property
    def jobs(self) -> list:
        return [each.stored.job for each in self.store.entries()]

    def offered(self) -> bool:
        return "schedule_job" in next(each for each in self.events if isinstance(each, SessionStarted)).tools

    def results(self) -> str:
        return "\n".join(each.line("") for each in self.events if each.type in ("malformed_call", "denied", "finished"))


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelSession:
    return ModelSession(tmp_path, monkeypatch)


@pytest.mark.threat("T296")
def test_a_request_is_a_question_with_everything_that_counts(session: ModelSession) -> None:
    assert session.play(CREATE, answer=Yes()) == Exit.DONE
    (question,) = session.questions
    card = question.card
    for text in ("cron 0 8 * * 1", "List the open TODOs", "of this project.", "mode plan", "20 requests", "for 7 days"):
        assert text in card.command, text
    rights = dict(card.rights)
    assert rights["runs"] == "cron 0 8 * * 1, for 7 days; `agent jobs remove` ends it earlier"
    assert rights["may"] == f"do what the mode plan allows without a question, in {session.work}"
    assert "500,000 tokens and 15 minutes" in rights["limits"]
    (job,) = session.jobs
    assert (job.origin, job.mode, job.prompt) == (JobOrigin.MODEL, Mode.PLAN, CREATE["prompt"])
    assert job.expires == job.created + 7 * 86400
    assert (job.budget.turns, job.budget.tokens, job.budget.timeout) == (20, 500_000, "15m")
    assert job.model == f"scripted:{session.script}"


@pytest.mark.threat("T296")
@pytest.mark.parametrize("mode", list(Mode), ids=[mode.value for mode in Mode])
def test_every_mode_asks_or_refuses(session: ModelSession, mode: Mode) -> None:
    session.play(CREATE, answer=No(), mode=mode)
    assert session.jobs == []
    assert len(session.questions) == (0 if mode in (Mode.PLAN, Mode.DONT_ASK) else 1)


@pytest.mark.threat("T296")
def test_an_approval_is_not_remembered_and_no_rule_allows_a_job(session: ModelSession) -> None:
    session.play(CREATE, {**CREATE, "mode": "plan"}, answer=Yes())
    assert len(session.questions) == 2, "the second, equal request is asked again"
    assert len(session.jobs) == 2
    assert [each.offer.choices for each in session.questions] == [(), ()]
    rule = '[[rule]]\nverdict = "allow"\ntool = ["schedule_job"]\nwhy = "always"\ntier = ["agent-spawn"]\n'
    session.config.write_text(f"[jobs]\ntool = true\n{rule}")
    with pytest.raises(ConfigError, match="can never take effect"):
        session.play(CREATE, answer=Yes())


@pytest.mark.threat("T296")
def test_a_run_without_a_user_cannot_request_a_job(session: ModelSession) -> None:
    session.play(CREATE, alone=True)
    assert not session.offered()
    assert session.jobs == []


@pytest.mark.threat("T296")
def test_a_job_cannot_request_a_job(session: ModelSession) -> None:
    session.play(CREATE, answer=Yes())
    (job,) = session.jobs
    session.script.write_text(
        json.dumps({"turn": [{"calls": [{"name": "schedule_job", "arguments": CREATE}]}, {"text": "x"}]})
    )
    start_job(job.id, os.environ, scheduled=False, lifeline=None, quiet=True)
    assert [each.id for each in session.jobs] == [job.id]


def test_the_tool_is_offered_only_if_the_user_enabled_it(session: ModelSession) -> None:
    session.config.write_text("")
    session.play(CREATE, answer=Yes())
    assert not session.offered()
    assert session.jobs == []


@pytest.mark.threat("T296")
def test_a_repository_cannot_enable_the_tool(session: ModelSession) -> None:
    session.config.write_text("")
    (session.work / ".ringfence").mkdir()
    (session.work / ".ringfence" / "config.toml").write_text("[jobs]\ntool = true\n")
    session.play(CREATE, answer=Yes())
    assert not session.offered()
    assert session.jobs == []


def known(session: ModelSession, action: ScheduleJob, mode: Mode = Mode.ACCEPT_EDITS, agent: str = MAIN) -> object:
    session.state.mkdir(mode=0o700, exist_ok=True)
    jobs = SessionJobs(session.state, "s1", str(session.work), str(session.work), os.environ)
    return jobs.known(action, agent, mode, "scripted:x", ("the page a",))


# fmt: off
REFUSED = [  # action, mode of the session, agent, why
    (ScheduleJob("create", "every 1h", "x", "trust-project"), Mode.ACCEPT_EDITS, MAIN, "wider"),
    (ScheduleJob("create", "every 1h", "x", "dont-ask"),      Mode.PLAN,         MAIN, "wider"),
    (ScheduleJob("create", "every 1h", "x", "dangerously"),   Mode.DANGEROUSLY,  MAIN, "wider"),
    (ScheduleJob("create", "every 1h", "x"),                  Mode.DEFAULT,      "explore-1", "only the agent that the user instructs"),
    (ScheduleJob("create", "every 5s", "x"),                  Mode.DEFAULT,      MAIN, "at least 1 minute"),
    (ScheduleJob("create", "cron * * * *", "x"),              Mode.DEFAULT,      MAIN, "five fields"),
    (ScheduleJob("create", "always", "x"),                    Mode.DEFAULT,      MAIN, "none of"),
    (ScheduleJob("create", "every 1h", "\n".join("x" * 30)),  Mode.DEFAULT,      MAIN, "more than 20 lines"),
    (ScheduleJob("delete", job="../../trust.json"),           Mode.DEFAULT,      MAIN, "no job"),
    (ScheduleJob("delete", job="j01234567"),                  Mode.DEFAULT,      MAIN, "no job"),
]
# fmt: on


@pytest.mark.threat("T296")
@pytest.mark.parametrize(
    ("action", "mode", "agent", "why"), REFUSED, ids=[f"{i} {row[3]}" for i, row in enumerate(REFUSED)]
)
def test_a_request_that_cannot_be_is_refused_before_a_question(
    session: ModelSession, action: ScheduleJob, mode: Mode, agent: str, why: str
) -> None:
    found = known(session, action, mode, agent)
    assert isinstance(found, Problem)
    assert why in f"{found.what} {found.why}"


@pytest.mark.threat("T296")
def test_a_request_has_the_mode_of_the_session_and_its_origin(session: ModelSession) -> None:
    found = known(session, ScheduleJob("create", "every 1h", "x"))
    assert isinstance(found, ScheduleJob)
    assert (found.mode, found.cwd, found.outside) == ("accept-edits", str(session.work), ("the page a",))
    assert "text from outside (the page a)" in tool_call_text(found)
    widest = known(session, ScheduleJob("create", "every 1h", "x"), Mode.DANGEROUSLY)
    assert isinstance(widest, ScheduleJob)
    assert widest.mode == "trust-project"


def test_a_list_is_read_and_no_model_removes_a_job_of_the_user(session: ModelSession) -> None:
    session.play(CREATE, {"operation": "list"}, answer=Yes())
    (job,) = session.jobs
    session.questions.clear()
    session.play({"operation": "delete", "id": job.id}, answer=Yes())
    assert len(session.questions) == 1
    assert session.jobs == []


@pytest.mark.threat("T296")
def test_the_number_of_requested_jobs_is_bounded(session: ModelSession) -> None:
    session.state.mkdir(mode=0o700, exist_ok=True)
    jobs = SessionJobs(session.state, "s1", str(session.work), str(session.work), os.environ, time.time)
    for _ in range(MOST_REQUESTED):
        action = jobs.known(ScheduleJob("create", "every 1h", "x"), MAIN, Mode.PLAN, "scripted:x")
        assert isinstance(action, ScheduleJob)
        assert jobs.perform(action).status == 0
    found = jobs.known(ScheduleJob("create", "every 1h", "x"), MAIN, Mode.PLAN, "scripted:x")
    assert isinstance(found, Problem)
