"""One run of a scheduled job: without a user, under the lock of the job, with a summary at its end."""

import asyncio
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from policy.model.deadline import deadline
from policy.model.frozen import replace as changed
from policy.model.profile import MAIN
from policy.model.verdict import Problem
from runner.agent.startup import prepare_start
from runner.approval.approver import Unattended
from runner.audit.log import open_log
from runner.audit.records import Refusal, SessionEnd, SessionInfo
from runner.config import load
from runner.engine.run_limits import PIPELINE
from runner.engine.steering import UserInput
from runner.events import Denied, Event, RunEnded, SessionStarted
from runner.frontends.jobs.create import run_args_of
from runner.frontends.launch import guarded, play, transcript
from runner.frontends.signals import interrupted_by_signals
from runner.jobs.due_plan import begin_by_user, finish_run, handle_times, reported, skip_times
from runner.jobs.job import Job, JobOrigin, OpenRun, StoredJob
from runner.jobs.run_summary import LONGEST_TEXT, MOST_DENIED, RunSummary, report_words, trigger_of
from runner.jobs.schedule import local_words
from runner.jobs.store import JobStore
from runner.jobs.workspace_trust import current_trust
from runner.problems import Exit, Stopped, known_problem, usage
from runner.state.paths import state_dir
from runner.state.workspace import workspace_at
from runner.stderr import print_problem, unexpected
from runner.text.phrases import os_reason
from runner.text.sanitize import one_line

_GRACE = deadline(10.0)  # seconds for a run to end its commands and its record after the resident process is gone
_LONGEST_DENIAL = 300  # characters


def start_job(words: str, environ: Mapping[str, str], *, scheduled: bool, lifeline: int | None, quiet: bool) -> int:
    """Run a job now, or with `scheduled` only if one of its times has come, and return the exit code.

    `lifeline` is the read end of a pipe; its end means that the resident process is gone, and ends the run. With
    `quiet`, the transcript is not shown. Raise Stopped if there is no such job, or if it is running already.
    """
    if lifeline is not None:
        _follow(lifeline)
    store = JobStore(state_dir(environ))
    entry = store.find(words)
    with store.running_lock(entry.id) as held, interrupted_by_signals():
        if not held:
            if scheduled:
                return Exit.DONE  # the process that has the lock counts this time as skipped
            why, fix = "two runs of one job never overlap", "wait for its end: `agent jobs list`"
            raise Stopped(Problem(f"the job {entry.id} is running", why, fix), Exit.FAILED)
        stored = store.settle_held(entry.id)
        if stored is None:
            why, fix = entry.fault or "its file is damaged", f"`agent jobs remove {entry.id}`, then add it again"
            raise Stopped(Problem(f"the job {entry.id} cannot run", why, fix), Exit.FAILED)
        run = _begin(store, stored, scheduled=scheduled)
        if run is None:
            return Exit.DONE
        summary = JobRun(store, stored.job, run, environ, quiet=quiet).work()
        _finish(store, stored.job, summary)
        return Exit.FAILED if summary.exit is None else summary.exit


def _begin(store: JobStore, stored: StoredJob, *, scheduled: bool) -> OpenRun | None:
    """Enter a run as in progress and return it; None if no time has come.

    INVARIANT: the time is marked as handled on the disk before the run begins, so that a crash cannot repeat it.
    """
    now, job = time.time(), stored.job
    if not scheduled and job.expires is not None and now >= job.expires:
        why = f"the approval of the model's request ended at {local_words(job.expires)}"
        raise Stopped(Problem(f"the job {job.id} does not run any more", why, "add a job of your own"), Exit.DENIED)
    runs: list[OpenRun | None] = []

    def handle(before: StoredJob) -> StoredJob:
        plan = handle_times(before, now) if scheduled else begin_by_user(before, now)
        runs.append(plan.run)
        return plan.stored

    store.change(job.id, handle)
    return runs[-1]


def _finish(store: JobStore, job: Job, summary: RunSummary) -> None:
    """Store the summary with the reports, then the end of the run. After a crash between the two, the summary stays."""
    now = time.time()
    after = store.change(job.id, lambda before: StoredJob(before.job, skip_times(before.job, before.progress, now)))
    store.write_summary(job.id, changed(summary, reports=report_words(after.progress)))

    def end(before: StoredJob) -> StoredJob:
        done = finish_run(before, now)
        return StoredJob(done.job, reported(done.progress))

    store.change(job.id, end)


class JobRun:
    """One run: its events are collected for the summary, and shown unless `quiet`."""

    def __init__(self, store: JobStore, job: Job, run: OpenRun, environ: Mapping[str, str], *, quiet: bool) -> None:
        self._store = store
        self._job = job
        self._run = run
        self._environ = environ
        self._quiet = quiet
        self._session = ""
        self._ended: RunEnded | None = None
        self._denied: list[str] = []
        self._denials = 0

    def work(self) -> RunSummary:
        """Do the run and return its summary. Never raises for a failed run, because the summary reports it."""
        problem: Problem | None = None
        code = Exit.DONE
        try:
            _enter(self._job.cwd)  # the resident process works in `/`, where nothing may run
            self._check_trust()
            self._session_run()
        except (KeyboardInterrupt, asyncio.CancelledError):
            code, problem = Exit.INTERRUPTED, Problem("stopped by a signal", "the run was ended from outside", "")
        except BrokenPipeError:
            code, problem = Exit.BROKEN_PIPE, Problem("the reader of the output is gone", "the pipe is closed", "")
        except Exception as error:  # the seam of a job: its summary is written after any error
            problem, code = known_problem(error) or (unexpected(error), Exit.FAILED)
        if problem is not None and code not in (Exit.INTERRUPTED, Exit.BROKEN_PIPE):
            print_problem(problem)
        return self._summary(code, problem)

    def _check_trust(self) -> None:
        """Raise Stopped, after recording the denial, unless the workspace has the content that the user saw.

        THREAT T293: another author of the workspace could change its configuration, its instructions or its hooks
        between the creation of a job and its run, at which no user is present.
        """
        job, fix = self._job, f"check it with `agent trust show`, then run `agent jobs trust {self._job.id}`"
        if os.path.realpath(job.cwd) != job.cwd or workspace_at(job.cwd, self._environ) != job.workspace:
            why = f"`{job.cwd}` is now another folder, or part of another repository, than when the job was added"
            self._refuse(Problem(f"the job {job.label} was not run", why, "restore it, or add the job again"))
        now = current_trust(job.cwd, job.workspace, self._environ)
        if now.sha256 != job.trust.sha256:
            why = f"the files of `{job.workspace}` that configure or instruct the agent changed since the job was added"
            self._refuse(Problem(f"the job {job.label} was not run", why, fix))
        if job.trust.used and not now.used:
            why = f"you do not trust the files of `{job.workspace}` any more that the job uses"
            self._refuse(Problem(f"the job {job.label} was not run", why, fix))

    def _refuse(self, problem: Problem) -> NoReturn:
        """Record that the job was denied, and raise Stopped."""
        job = self._job
        settings = load(Path(job.cwd), self._environ, unattended=True, repository=False)
        info = SessionInfo(
            mode=job.mode.value,
            workspace=job.workspace,
            unattended=True,
            enforcement=None,
            argv=("agent", *sys.argv[1:]),
            model=job.model or None,
            sources=settings.sources,
            job=job.id,
        )
        with open_log(settings, self._environ) as audit:
            self._session = audit.session(info)
            shown = Problem(f"{problem.what}: {problem.why}", problem.why, problem.fix)
            audit.refused(self._session, Refusal("job", job.prompt, shown))
            usage = tuple((name, 0) for name in ("input", "output", "cache_read", "cache_write"))
            audit.ended(self._session, SessionEnd(int(Exit.DENIED), problem.what, 0, usage))
        self._denials, self._denied = 1, [problem.why]
        raise Stopped(problem, Exit.DENIED)

    def _session_run(self) -> None:
        job = self._job
        try:
            os.chdir(job.cwd)  # the resident process starts this process in `/`, which is no workspace
        except OSError as error:
            why, fix = f"`{job.cwd}` cannot be entered: {error.strerror}", "restore the folder, or remove the job"
            raise Stopped(Problem(f"the job {job.label} was not run", why, fix), Exit.USAGE) from None
        own = job.origin is JobOrigin.PERSON
        start = prepare_start(
            run_args_of(job), unattended=True, asks=False, notes=own, usual=PIPELINE, guarded=True, job=job.id
        )
        if not own:
            # THREAT T294: the prompt of a job that a model requested is the text of that model, not of the user.
            stranger = ("the prompt of a job that a model requested", job.prompt)
            start = replace(start, options=replace(start.options, strangers=(stranger,)))
        show = None if self._quiet else guarded(transcript())

        def emit(event: Event) -> None:
            self._note(event)
            if show is not None:
                show(event)

        asyncio.run(play(UserInput(job.prompt), start, Unattended(emit), emit))

    def _note(self, event: Event) -> None:
        if isinstance(event, Denied):
            self._denials += 1
            if len(self._denied) < MOST_DENIED:
                self._denied.append(one_line(f"{event.action}: {event.problem.why}", _LONGEST_DENIAL))
        elif isinstance(event, SessionStarted) and event.agent == MAIN:
            self._session = event.session
            # Known from now on, so that the report about a run that is killed can name its record.
            entered = changed(self._run, session=event.session)
            self._store.change(
                self._job.id, lambda before: StoredJob(before.job, changed(before.progress, running=entered))
            )
        elif isinstance(event, RunEnded) and event.agent == MAIN:
            self._ended = event

    def _summary(self, code: Exit, problem: Problem | None) -> RunSummary:
        ended = self._ended
        reason = f"{problem.what}: {problem.why}" if problem is not None else "the run ended without a result"
        if ended is not None and problem is None:
            code, reason = Exit(ended.exit), ended.reason
        tokens = 0
        if ended is not None:
            used = ended.usage
            tokens = used.input + used.output + used.cache_read + used.cache_write
        return RunSummary(
            trigger=trigger_of(self._run).value,
            started=self._run.started,
            due=self._run.due,
            ended=time.time(),
            exit=int(code),
            reason=reason,
            session=self._session,
            turns=ended.turns if ended else 0,
            tokens=tokens,
            cost=ended.cost if ended else None,
            denials=self._denials,
            denied=tuple(self._denied),
            text=(ended.text.strip() if ended else "")[:LONGEST_TEXT],
        )


def _enter(folder: str) -> None:
    """Make `folder` the working folder of this process. Raise Stopped if it cannot be entered."""
    try:
        os.chdir(folder)
    except OSError as error:
        fix = "restore it, or remove the job and add it in another folder"
        raise usage(f"the folder `{folder}` of the job cannot be used", os_reason(error), fix) from None


def _follow(lifeline: int) -> None:
    """End this process when the pipe `lifeline` ends: first in an orderly way, then at once.

    THREAT T295: without the resident process nobody could stop the run, so that it must not outlive that process.
    """

    def wait() -> None:
        with contextlib.suppress(OSError):
            while os.read(lifeline, 1):
                pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_GRACE)
        os.kill(os.getpid(), signal.SIGKILL)  # its commands are in process groups and namespaces that end with it

    threading.Thread(target=wait, name="lifeline", daemon=True).start()
