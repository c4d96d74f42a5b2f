"""`agent batch`: a list of prompts, each on its own copy of the workspace, many at a time."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from runner.cli.gate import ACCOUNT, CONFIG, FLAG, JSON, MODEL
from runner.problems import Exit

batch_app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")

_CODES = (
    "**Exit codes**  the worst of its tasks: 0 all done · 3 something was denied · 5 a limit was reached · 1 failed "
    "· 4 sandbox unavailable · 130 interrupted; 2 usage."
)
_OWN = ("run", "check", "show")


class Status(str, Enum):  # noqa: UP042  # typer shows the values of a plain str enum
    DONE = "done"
    DENIED = "denied"
    LIMIT = "limit"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class Mode(str, Enum):  # noqa: UP042
    PLAN = "plan"
    DEFAULT = "default"
    ACCEPT_EDITS = "accept-edits"
    TRUST_PROJECT = "trust-project"
    DONT_ASK = "dont-ask"


TASKS = Annotated[str, typer.Argument(metavar="TASKS", help="One JSON object a line; - reads standard input.")]
OUT = Annotated[
    Path | None, typer.Option("--out", metavar="FOLDER", help="Where results go (TASKS without its ending, `.batch`).")
]
CWD = Annotated[Path | None, typer.Option(metavar="FOLDER", help="The workspace of tasks that name none.")]
MODE = Annotated[Mode | None, typer.Option(metavar="MODE", help="The mode of tasks that name none.")]
TURNS = Annotated[int | None, typer.Option("--max-turns", metavar="N", min=1, help="The same for each task's turns.")]


@batch_app.callback()
def batch() -> int:
    """Work on a list of prompts, each on its own copy of the workspace.

    What a task changed is a patch beside its result; your folder is never touched. Run the same command again to go on
    where it stopped.

    **Examples**

        agent batch tasks.jsonl --jobs 4
        agent batch check tasks.jsonl
        agent batch show tasks.batch --status failed
    """
    return Exit.DONE


@batch_app.command("run", epilog=_CODES)
def run(
    tasks: TASKS,
    out: OUT = None,
    jobs: Annotated[
        int | None, typer.Option("-j", "--jobs", metavar="N", min=1, help="How many at a time (one a core).")
    ] = None,
    model: MODEL = None,
    mode: MODE = None,
    cwd: CWD = None,
    config: CONFIG = None,
    max_turns: TURNS = None,
    task_timeout: Annotated[
        str | None, typer.Option("--task-timeout", metavar="TIME", help="The most time of each task: 90s, 30m.")
    ] = None,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="TIME", help="The most time of the whole: 30m, 8h.")
    ] = None,
    max_cost: Annotated[
        float | None, typer.Option("--max-cost", metavar="AMOUNT", help="The most that all tasks together may cost.")
    ] = None,
    fail_fast: Annotated[
        bool, typer.Option("--fail-fast", metavar=FLAG, help="Begin no more once a task has failed.")
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", metavar=FLAG, help="Again those that failed or hit a limit.")
    ] = False,
    rerun_changed: Annotated[
        bool, typer.Option("--rerun-changed", metavar=FLAG, help="Again those that ask for something else now.")
    ] = False,
    copies: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where the copies are kept while it runs ($TMPDIR, else /var/tmp)."),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(metavar="ray://HOST:PORT", help="Run on a Ray cluster that is there; `ray`: this machine's."),
    ] = None,
    account: ACCOUNT = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", metavar=FLAG, help="Check the list and run nothing.")] = False,
    json: JSON = False,
) -> int:
    """Run every task of a list that is not done yet.

    A task is a line such as {"id": "a", "prompt": "..."}; `agent batch check --help` names the fields. Each is a
    process of its own, behind the same gate, with nobody to ask.

    Interrupted tasks are done again from the start. A second Ctrl-C kills what the first one ends.

    **Examples**

        agent batch tasks.jsonl
        agent batch run tasks.jsonl --jobs 8 --model anthropic:claude-sonnet-5-5
        agent batch tasks.jsonl --max-cost 20 --timeout 2h --fail-fast
        agent batch tasks.jsonl --retry-failed
        make-tasks | agent batch - --out nightly --json
    """
    from runner.config.amounts import parse_seconds
    from runner.frontends.batch.command import BatchArgs, cores, start
    from runner.frontends.batch.pool import Bounds
    from runner.frontends.batch.task import Budget
    from runner.problems import usage

    if engine is not None and engine != "ray" and not engine.startswith("ray://"):
        raise usage(f"there is no engine `{engine}`", "it is `ray`, or ray://HOST:PORT", "correct it, or leave it out")
    if engine is not None and (config is not None or copies is not None):
        named = "--config" if config is not None else "--copies"
        fix = f"leave {named} out; the settings of each machine hold there"
        raise usage(f"{named} and --engine do not go together", f"{named} names a path of this machine", fix)
    if max_cost is not None and not 0 < max_cost < float("inf"):
        raise usage(f"`{max_cost}` is not an amount for --max-cost", "it takes more than nothing", "correct it")
    seconds = parse_seconds(timeout, "--timeout") if timeout is not None else None
    each = parse_seconds(task_timeout, "--task-timeout") if task_timeout is not None else None
    args = BatchArgs(
        tasks,
        out,
        Bounds(jobs or cores(), fail_fast, max_cost, seconds),
        model=model,
        mode=mode.value if mode else None,
        cwd=cwd,
        budget=Budget(turns=max_turns, seconds=each),
        config=Path(config) if config else None,
        copies=copies,
        engine=engine,
        account=account,
        retry_failed=retry_failed,
        rerun_changed=rerun_changed,
        check=dry_run,
        json=json,
    )
    return start(args)


@batch_app.command("check")
def check(tasks: TASKS, cwd: CWD = None, json: JSON = False) -> int:
    """Check a list, and run nothing.

    The fields of a task: `prompt` or `prompt_file`; optional are `id` (unique), `model`, `mode`, `workspace`,
    `max_turns`, `max_tokens`, `max_cost`, `timeout`, `max_output`, `max_denials`, and `metadata`, an object that comes
    back with the result. Paths start at the folder of the list.

    **Examples**

        agent batch check tasks.jsonl
        agent batch check - --json < tasks.jsonl
    """
    from runner.frontends.batch.command import BatchArgs, listed
    from runner.frontends.batch.command import check as checked
    from runner.frontends.batch.pool import Bounds

    args = BatchArgs(tasks, None, Bounds(1), cwd=cwd, json=json)
    return checked(args, listed(args))


@batch_app.command("show")
def show(
    out: Annotated[Path, typer.Argument(metavar="FOLDER", help="The --out of the batch.")],
    status: Annotated[
        list[Status] | None,
        typer.Option(metavar="STATUS", help="Only these: done, denied, limit, failed, interrupted."),
    ] = None,
    json: JSON = False,
) -> int:
    """Show the latest result of each task.

    Those that were begun and came to no end are `interrupted`. With `--json`, each is its line of `results.jsonl`.

    **Examples**

        agent batch show tasks.batch
        agent batch show tasks.batch --status failed --status limit
        agent batch show tasks.batch --json | jq -r 'select(.cost > 1) | .id'
    """
    from runner.frontends.batch.command import show as shown

    return shown(out, json_lines=json, wanted=[each.value for each in status or ()])


def spelled(words: list[str]) -> list[str]:
    """`agent batch TASKS ...` as `agent batch run TASKS ...`. A list that is called like a command: `./check`."""
    if words[:1] == ["batch"] and len(words) > 1 and words[1] not in (*_OWN, "--help", "-h"):
        return ["batch", "run", *words[1:]]
    return words
