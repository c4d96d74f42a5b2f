"""`agent jobs`: add, list, show, run, pause, resume, trust and remove scheduled jobs."""

import os
import time
from typing import TYPE_CHECKING, Annotated

import typer

from runner.agent.options import Given
from runner.cli.gate import JSON, argument, option_before, takes_options
from runner.problems import Exit, usage
from runner.state.paths import private, state_dir
from runner.text.json_line import json_line

if TYPE_CHECKING:
    from runner.frontends.jobs.view import JobView
    from runner.jobs.job import StoredJob
    from runner.jobs.store import JobStore

jobs_app = typer.Typer(no_args_is_help=False, invoke_without_command=True, rich_markup_mode="markdown")


def _store() -> "JobStore":
    from runner.jobs.store import JobStore

    return JobStore(state_dir(os.environ))


def _exist() -> bool:
    """Return True if there may be jobs. Nothing is created."""
    return os.path.isdir(os.path.join(private(os.environ)[0], "jobs"))


def _ids(incomplete: str) -> list[str]:
    """Return the ids and names of the jobs for completion."""
    if not _exist():
        return []
    names = []
    for each in _store().entries():
        names += [each.id, *([each.stored.job.name] if each.stored is not None else [])]
    return [name for name in names if name and name.startswith(incomplete)]


JOB = Annotated[str, argument("JOB", "The id of a job, its beginning, or the name.", complete=_ids)]
PROMPT = Annotated[str | None, argument("PROMPT", "The task for the model.")]


@jobs_app.callback()
def jobs(context: typer.Context, json: JSON = False) -> int:
    """Let a model work on a schedule: once, in intervals, or at the times of a cron expression.

    Each job has a mode, a budget and a workspace of its own. Its runs are unattended: every question is a denial. The
    resident process (`agent serve`) starts them; without it, times are missed, reported, and not run later unless
    `--catch-up` is given. If the files of the workspace that configure or instruct the agent change, the job does not
    run until `agent jobs trust JOB`.

    **Examples**

        agent jobs
        agent jobs add --cron '0 3 * * 1-5' --max-cost 0.50 "check dependencies"
        agent jobs show nightly
        agent jobs pause nightly
    """
    if context.invoked_subcommand is None:
        return listing(json=json)
    if json:
        raise option_before(f"jobs {context.invoked_subcommand}")
    return Exit.DONE


@jobs_app.command("add")
@takes_options("jobs add")
def add(given: Given, prompt: PROMPT = None) -> int:
    """Add a job. Its first run is at the first time of its schedule.

    Exactly one of `--at`, `--in`, `--every` and `--cron` is the schedule. Cron expressions and times are in the time
    zone of the machine, or of `--tz`. A time of day that a change of the clock leaves out runs right after the gap, and
    one that occurs twice runs once. The mode is `dont-ask` unless `--mode` is given. The limits that you do not set are
    those of `agent ci`: 50 turns, 2,000,000 tokens, a cost of 5 where a price is known, 30 minutes.

    **Examples**

        agent jobs add --cron '0 3 * * 1-5' --name nightly "check dependencies"
        agent jobs add --every 30m --mode plan --max-cost 0.10 "is it healthy?"
        agent jobs add --in 2h "summarize the changes since yesterday"
        agent jobs add --at 2026-03-04T05:06 --catch-up "prepare the release"
    """
    from runner.agent.options import parse_mode
    from runner.agent.startup import run_args
    from runner.frontends.jobs.create import JobArgs, has_entries, new_job
    from runner.frontends.jobs.view import stored_words
    from runner.frontends.prompt_input import prompt_input
    from runner.jobs.job import JobProgress, StoredJob
    from runner.jobs.schedule import parse_schedule
    from runner.stderr import say_notice
    from runner.text.sanitize import visible

    at, within, every, cron, zone = (given.text(name) for name in ("at", "in_", "every", "cron", "tz"))
    schedule = parse_schedule(at, within, every, cron, zone, time.time())
    file = given.path("prompt_file")
    if prompt is None and file is None:
        raise usage("there is no prompt", "a job needs a task", 'write it at the end: agent jobs add --every 1h "..."')
    options = run_args(given)
    args = JobArgs(
        schedule=schedule,
        prompt=prompt_input(prompt, file, with_stdin=False).text,
        name=given.text("name") or "",
        cwd=options.cwd,
        mode=parse_mode(given.text("mode")),
        model=options.model or "",
        account=given.text("account") or "",
        budget=options.budget,
        tools=options.tools,
        no_tools=options.no_tools,
        catch_up=given.switch("catch_up"),
    )
    job = _store().add(new_job(args, os.environ))
    if given.switch("json"):
        print(json_line(_view(job.id).as_json()))
        return Exit.DONE
    print(visible(f"added {stored_words(StoredJob(job, JobProgress(float(job.created))))}", lines=False))
    if not job.trust.used and has_entries(job, os.environ):
        files = "the files of the repository that configure or instruct the agent are not used"
        say_notice(f"{files}, because you do not trust them: `agent trust`, then `agent jobs trust {job.id}`")
    return Exit.DONE


@jobs_app.command("list")
def listing(json: JSON = False) -> int:
    """List the jobs: schedule, state, next run and last result.

    Below a job are the reports about missed and skipped times that no summary of a run has yet.

    **Examples**

        agent jobs list
        agent jobs list --json | jq -r 'select(.state == "waiting") | .next'
    """
    from runner.frontends.jobs.view import JobView

    store, now = _store(), time.time()
    entries = store.entries() if _exist() else []
    for entry in entries:
        view = JobView(store, entry, now)
        print(json_line(view.as_json()) if json else view.row())
    if not entries and not json:
        print('there are no jobs; to add one: agent jobs add --cron "0 3 * * *" "PROMPT"')
    return Exit.DONE


@jobs_app.command("show")
def show(job: JOB, json: JSON = False) -> int:
    """Show a job, its rights and its last runs.

    A run has its result, cost, denials, the first line of its answer, and the session to continue.

    **Examples**

        agent jobs show nightly
        agent jobs show nightly --json | jq '.runs[0].denied'
    """
    view = _view(job)
    print(json_line(view.as_json(runs=True)) if json else view.description())
    return Exit.DONE


@jobs_app.command("run", epilog="**Exit codes**  As those of `agent run`: 3 an action was denied, 5 a limit.")
def run(
    job: JOB,
    json: JSON = False,
    scheduled: Annotated[bool, typer.Option("--scheduled", hidden=True)] = False,
    lifeline: Annotated[int | None, typer.Option("--lifeline", hidden=True)] = None,
) -> int:
    """Run a job now, in the foreground, as its schedule would.

    Every question is a denial. The schedule stays as it is. With `--json` only the result is printed.

    **Examples**

        agent jobs run nightly
        agent jobs run nightly --json | jq .exit
    """
    from runner.frontends.jobs.job_run import start_job
    from runner.frontends.jobs.view import run_json

    code = start_job(job, os.environ, scheduled=scheduled, lifeline=lifeline, quiet=scheduled or json)
    if json and not scheduled:
        print(json_line(run_json(_view(job).runs[0])))
    return code


@jobs_app.command("pause")
def pause(job: JOB) -> int:
    """Pause a job.

    Times that come meanwhile are neither run nor reported as missed. A run in progress goes on.

    **Examples**

        agent jobs pause nightly
    """
    from policy.model.frozen import replace
    from runner.jobs.job import StoredJob

    entry = _find(job)
    _store().change(entry.job.id, lambda each: StoredJob(each.job, replace(each.progress, paused=True)))
    print(f"paused {entry.job.label}")
    return Exit.DONE


@jobs_app.command("resume")
def resume(job: JOB) -> int:
    """Resume a paused job.

    Its next run is at the next time of its schedule.

    **Examples**

        agent jobs resume nightly
    """
    from runner.frontends.jobs.view import stored_words
    from runner.jobs.due_plan import resumed

    entry = _find(job)
    if not entry.progress.paused:
        print(f"{entry.job.label} is not paused")
        return Exit.DONE
    after = _store().change(entry.job.id, lambda each: resumed(each, time.time()))
    print(f"resumed {stored_words(after)}")
    return Exit.DONE


@jobs_app.command("trust")
def trust(job: JOB) -> int:
    """Let a job run with the files of its workspace as they are now.

    The files are those that configure or instruct the agent (`agent trust show`). They are used if you trust their
    content (`agent trust`); otherwise the job runs without them.

    **Examples**

        agent jobs trust nightly
    """
    from policy.model.frozen import replace
    from runner.jobs.job import StoredJob
    from runner.jobs.workspace_trust import current_trust

    entry = _find(job)
    found = current_trust(entry.job.cwd, entry.job.workspace, os.environ)
    _store().change(entry.job.id, lambda each: StoredJob(replace(each.job, trust=found), each.progress))
    use = "and uses them" if found.used else "and does not use them, because you do not trust them"
    print(f"{entry.job.label} runs with the files as they are now, {use}")
    return Exit.DONE


@jobs_app.command("remove")
def remove(jobs: Annotated[list[str], argument("JOB", "The ids or names of jobs.", complete=_ids)]) -> int:
    """Remove jobs with the summaries of their runs.

    The record and the sessions stay. A running job is not removed.

    **Examples**

        agent jobs remove nightly
    """
    store = _store()
    for entry in [store.find(words) for words in jobs]:
        label = entry.stored.job.label if entry.stored is not None else entry.id
        store.remove(entry.id)
        print(f"removed {label}")
    return Exit.DONE


def _find(words: str) -> "StoredJob":
    """Return the job with this id or name. Raise a usage error also if its file is damaged."""
    entry = _store().find(words)
    if entry.stored is None:
        fix = f"`agent jobs remove {entry.id}`, then add it again"
        raise usage(f"the job {entry.id} cannot be used", entry.fault, fix)
    return entry.stored


def _view(words: str) -> "JobView":
    from runner.frontends.jobs.view import JobView

    store = _store()
    return JobView(store, store.find(words), time.time())
