"""`agent batch`: run a list of prompts in parallel, each on its own copy of the workspace."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from policy.model.tier import Mode
from runner.agent.options import Given, parse_mode
from runner.cli.gate import JSON, argument, option, option_before, takes_options, valued
from runner.problems import Exit, usage

batch_app = typer.Typer(invoke_without_command=True, rich_markup_mode="markdown")

_CODES = (
    "**Exit codes**  the worst of its tasks: 0 all done · 3 something was denied · 5 a limit was reached · 1 failed "
    "· 4 sandbox unavailable · 130 interrupted; 2 usage."
)
_OWN = ("run", "check", "show")


class ShownStatus(str, Enum):  # noqa: UP042  # typer shows the values of a plain str enum
    DONE = "done"
    DENIED = "denied"
    LIMIT = "limit"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


TASKS = Annotated[str, argument("TASKS", "The list: one JSON object per line. `-` reads standard input.")]
CWD = Annotated[Path | None, option("--cwd", "batch run")]


@batch_app.callback()
def batch(context: typer.Context, json: JSON = False) -> int:
    """Work on a list of prompts, each on its own copy of the workspace.

    The changes of a task are stored as a patch beside its result, in a folder beside the list; your files are never
    changed. To continue an interrupted batch, run the same command again. Without arguments: list the batches in the
    current folder.

    **Examples**

        agent batch tasks.jsonl --jobs 4
        agent batch check tasks.jsonl
        agent batch show tasks.batch --status failed
    """
    if context.invoked_subcommand is None:
        from runner.frontends.batch.command import show_all

        return show_all(Path.cwd(), as_json=json)
    if json:
        raise option_before(f"batch {context.invoked_subcommand}")
    return Exit.DONE


@batch_app.command("run", epilog=_CODES)
@takes_options("batch run")
def run(given: Given, tasks: TASKS) -> int:
    """Run every task of a list that is not done yet.

    A task is a line such as {"id": "a", "prompt": "..."}; `agent batch check --help` lists the fields. Each task is a
    separate process under the same policy, without a user to ask.

    Interrupted tasks are repeated from the start. Ctrl-C ends the running tasks; a second Ctrl-C kills them.

    **Examples**

        agent batch tasks.jsonl
        agent batch run tasks.jsonl --jobs 8 --model anthropic:claude-sonnet-5-5
        agent batch tasks.jsonl --max-cost 20 --timeout 2h --fail-fast
        agent batch tasks.jsonl --retry-failed
        make-tasks | agent batch - --out nightly --json
    """
    from runner.config.amounts import parse_money, parse_seconds
    from runner.frontends.batch.command import BatchArgs, cores, start
    from runner.frontends.batch.pool import BatchLimits
    from runner.frontends.batch.task import Budget

    engine, config, copies = given.text("engine"), given.path("config"), given.path("copies")
    if engine is not None and engine != "ray" and not engine.startswith("ray://"):
        raise usage(
            f"there is no engine `{engine}`",
            "an engine is `ray` or ray://HOST:PORT",
            "write `--engine ray`, or omit it",
        )
    if engine is not None and (config is not None or copies is not None):
        named = "--config" if config is not None else "--copies"
        fix = f"omit {named}; each machine uses its own settings"
        raise usage(f"{named} and --engine exclude each other", f"{named} is a path of this machine", fix)
    mode = parse_mode(given.text("mode"))
    if mode is Mode.DANGEROUSLY:
        why = "the tasks could change each other's files"
        raise usage("`--mode dangerously` is not for a batch", why, "use `trust-project` or `dont-ask`")
    cost, whole, each = given.text("max_cost"), given.text("timeout"), given.text("task_timeout")
    args = BatchArgs(
        tasks,
        given.path("out"),
        BatchLimits(
            given.number("jobs") or cores(),
            given.switch("fail_fast"),
            parse_money(cost) if cost is not None else None,
            parse_seconds(whole, "--timeout") if whole is not None else None,
        ),
        model=given.text("model"),
        mode=mode.value if mode else None,
        cwd=given.path("cwd"),
        budget=Budget(
            turns=given.number("max_turns"),
            seconds=parse_seconds(each, "--task-timeout") if each is not None else None,
        ),
        config=config,
        copies=copies,
        engine=engine,
        account=given.text("account"),
        retry_failed=given.switch("retry_failed"),
        rerun_changed=given.switch("rerun_changed"),
        check=given.switch("dry_run"),
        json=given.switch("json"),
    )
    return start(args)


@batch_app.command("check")
def check(tasks: TASKS, cwd: CWD = None, json: JSON = False) -> int:
    """Check a list of tasks. No task is started.

    The fields of a task: `prompt` or `prompt_file`; optional are `id` (unique), `model`, `mode`, `workspace`,
    `max_turns`, `max_tokens`, `max_cost`, `timeout`, `max_output`, `max_denials`, and `metadata`, an object that is
    copied into the result. Relative paths start at the folder of the list.

    **Examples**

        agent batch check tasks.jsonl
        agent batch check - --json < tasks.jsonl
    """
    from runner.frontends.batch.command import BatchArgs, listed
    from runner.frontends.batch.command import check as checked
    from runner.frontends.batch.pool import BatchLimits

    args = BatchArgs(tasks, None, BatchLimits(1), cwd=cwd, json=json)
    return checked(args, listed(args))


@batch_app.command("show")
def show(
    out: Annotated[Path, argument("FOLDER", "The folder that --out named.")],
    status: Annotated[
        list[ShownStatus] | None,
        valued("--status", "STATUS", "Only these: done, denied (done with denied calls), limit, failed, interrupted."),
    ] = None,
    json: JSON = False,
) -> int:
    """Show the latest result of each task.

    A task that was started and has no result is `interrupted`. With `--json`, the lines of `results.jsonl` are printed.

    **Examples**

        agent batch show tasks.batch
        agent batch show tasks.batch --status failed --status limit
        agent batch show tasks.batch --json | jq -r 'select(.cost > 1) | .id'
    """
    from runner.frontends.batch.command import show as shown

    return shown(out, json_lines=json, wanted=[each.value for each in status or ()])


def with_run(words: list[str]) -> list[str]:
    """Return `agent batch TASKS ...` as `agent batch run TASKS ...`. A list named like a command is written
    `./check`.
    """
    if words in (["batch"], ["batch", "--json"]):  # the list of batches
        return words
    if words[:1] == ["batch"] and words[1] not in (*_OWN, "--help", "-h"):
        return ["batch", "run", *words[1:]]
    return words
