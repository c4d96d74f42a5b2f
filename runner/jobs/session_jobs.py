"""The jobs that the model of a session requests.

THREAT T296: a model must not make itself work later without the user. A request is an action that is a question in
every mode, with the schedule, the whole prompt, the mode, the limits and the end; what is stored is that action. The
mode is never wider than that of the session, sub-agents and runs without a user cannot request jobs, and no approval
of a request is remembered.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from policy.model.action import Action, ScheduleJob
from policy.model.frozen import replace
from policy.model.profile import MAIN
from policy.model.tier import Mode, no_looser
from policy.model.verdict import Problem, ProblemError
from runner.jobs.job import MODES, Job, JobBudget, JobOrigin, is_job_id
from runner.jobs.schedule import Schedule, parse_schedule, schedule_words
from runner.jobs.store import JobStore
from runner.jobs.workspace_trust import current_trust
from runner.problems import Stopped
from runner.text.sanitize import marked, one_line
from sandbox.backend import Outcome

MOST_REQUESTED = 10  # jobs of models in one workspace
MOST_LINES = 20  # lines of a prompt, so that a plain terminal shows all of it
_MOST_SOURCES = 8
_DAY = 86_400
_KINDS = ("at", "in", "every", "cron")


class SessionJobs:
    """The jobs of models in one workspace, for the session `session` in the folder `cwd`."""

    def __init__(
        self,
        state: Path,
        session: str,
        cwd: str,
        workspace: str,
        environ: Mapping[str, str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = JobStore(state)
        self._session = session
        self._cwd = cwd
        self._workspace = workspace
        self._environ = environ
        self._clock = clock

    def known(
        self, action: Action, agent: str, mode: Mode, model: str, outside: Sequence[str] = ()
    ) -> Action | Problem:
        """Return a request with everything that its runs would have, or the problem.

        `mode` and `model` are those of the session now, `outside` the sources of untrusted text in the conversation.
        """
        if not isinstance(action, ScheduleJob) or action.operation == "list":
            return action
        what = "the job cannot be requested"
        if agent != MAIN:
            return Problem(what, "only the agent that the user instructs may request jobs", "leave it to that agent")
        if action.operation == "delete":
            if self._requested(action.job) is None:
                why = f"there is no job `{one_line(action.job, 20)}` that a model requested in this workspace"
                return Problem("the job cannot be removed", why, "call the tool with `list`")
            return action
        try:
            self._schedule(action)
        except Stopped as error:
            return Problem(what, f"{error.problem.what}: {error.problem.why}", error.problem.fix)
        if action.prompt.count("\n") >= MOST_LINES:
            return Problem(what, f"its prompt has more than {MOST_LINES} lines", "shorten it")
        usual = mode if mode in MODES else Mode.TRUST_PROJECT
        wanted = Mode(action.mode) if action.mode else usual
        if wanted not in MODES or not no_looser(wanted, mode):
            why = f"the mode `{wanted.value}` is wider than that of this session, `{mode.value}`"
            return Problem(what, why, "leave out `mode`, or use `plan`")
        if len(self._all()) >= MOST_REQUESTED:
            return Problem(what, f"there are {MOST_REQUESTED} jobs of models already", "remove one with `delete`")
        return replace(action, mode=wanted.value, cwd=self._cwd, model=model, outside=tuple(outside[:_MOST_SOURCES]))

    def perform(self, action: ScheduleJob) -> Outcome:
        """Do what the user approved."""
        try:
            if action.operation == "list":
                return Outcome(0, self._listed().encode("utf-8", "replace"))
            if action.operation == "delete":
                if self._requested(action.job) is None:
                    return Outcome(1, problem=Problem("nothing was removed", "there is no such job", "use `list`"))
                self._store.remove(action.job)
                return Outcome(0, f"removed {action.job}".encode())
            job = self._store.add(self._job(action))
        except ProblemError as error:
            return Outcome(1, problem=error.problem)
        said = f"added {job.id}: {schedule_words(job.schedule)}, for {action.days} days"
        return Outcome(0, f"{said}; it runs while the user's resident process (`agent serve`) runs".encode())

    def _job(self, action: ScheduleJob) -> Job:
        now = int(self._clock())
        return Job(
            id="",
            name="",
            schedule=self._schedule(action),
            prompt=action.prompt,
            cwd=action.cwd,
            workspace=self._workspace,
            mode=Mode(action.mode),
            trust=current_trust(action.cwd, self._workspace, self._environ),
            created=now,
            model=action.model,
            budget=JobBudget(turns=action.turns, tokens=action.tokens, timeout=f"{action.minutes}m"),
            origin=JobOrigin.MODEL,
            expires=now + action.days * _DAY,
            session=self._session,
        )

    def _schedule(self, action: ScheduleJob) -> Schedule:
        kind, _, rest = action.schedule.partition(" ")
        at, within, every, cron = (rest.strip() if kind == each else None for each in _KINDS)
        return parse_schedule(at, within, every, cron, None, self._clock())

    def _all(self) -> list[Job]:
        found = [each.stored.job for each in self._store.entries() if each.stored is not None]
        return [each for each in found if each.origin is JobOrigin.MODEL and each.workspace == self._workspace]

    def _requested(self, id: str) -> Job | None:
        return next((each for each in self._all() if each.id == id), None) if is_job_id(id) else None

    def _listed(self) -> str:
        """Return the jobs of models in this workspace, in marks: their prompts are material, never instructions."""
        rows = [f"{each.id}  {schedule_words(each.schedule)}  {one_line(each.prompt, 200)}" for each in self._all()]
        return marked("jobs", "\n".join(rows) or "there are none")
