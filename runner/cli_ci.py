"""`agent ci`: a model at work in a pipeline, watched by nobody."""

from pathlib import Path
from typing import Annotated

import typer

from runner.budget_flags import BudgetFlags
from runner.cli_gate import BACKEND, CONFIG, CWD, FLAG, LIMIT, MODE
from runner.cli_run import (
    ACCOUNT,
    COST,
    DENIALS,
    EVENTS,
    FALLBACK,
    KEY_STDIN,
    MODEL,
    OUTPUT,
    PROVIDER,
    TIME,
    TOKENS,
    TRUST,
    TURNS,
)
from runner.gate_args import parse_backend
from runner.key_flags import KeyFlags
from runner.run_options import RunArgs
from runner.sessions.flags import GoOn


def _file(name: str, help: str) -> object:
    return typer.Option(f"--{name}", metavar="FILE", help=help)


def ci(
    prompt: Annotated[
        str | None, typer.Argument(metavar="PROMPT", help="What to do. Read from stdin when left out.")
    ] = None,
    prompt_file: Annotated[
        Path | None, typer.Option("--prompt-file", metavar="FILE", help="Read the prompt from this file.")
    ] = None,
    mode: MODE = None,
    model: MODEL = None,
    provider: PROVIDER = None,
    fallback_model: FALLBACK = None,
    json: EVENTS = False,
    review: Annotated[
        bool,
        typer.Option("--review", metavar=FLAG, help="Work in a copy; what was done is the patch. Needs --patch."),
    ] = False,
    patch: Annotated[str | None, _file("patch", "The patch of --review, for `agent apply` or `git apply`.")] = None,
    patch_ignored: Annotated[
        bool, typer.Option("--patch-ignored", metavar=FLAG, help="In the patch also files that Git ignores.")
    ] = False,
    summary: Annotated[str | None, _file("summary", "Markdown for the summary of a job.")] = None,
    sarif: Annotated[str | None, _file("sarif", "What was denied, for code scanning.")] = None,
    events: Annotated[str | None, _file("events", "One JSON event a line, as it happens.")] = None,
    result: Annotated[str | None, _file("result", "The last line of stdout, as a file.")] = None,
    seal: Annotated[str | None, _file("seal", "The head of the log, to prove later that nothing was cut off.")] = None,
    files_in_workspace: Annotated[
        bool,
        typer.Option(
            "--files-in-workspace", metavar=FLAG, help="These files may lie where commands of the model may write."
        ),
    ] = False,
    max_turns: TURNS = None,
    max_tokens: TOKENS = None,
    max_cost: COST = None,
    max_output: OUTPUT = None,
    max_denials: DENIALS = None,
    timeout: TIME = None,
    cwd: CWD = None,
    limit: LIMIT = None,
    config: CONFIG = None,
    backend: BACKEND = None,
    trust_config: TRUST = None,
    account: ACCOUNT = None,
    api_key_stdin: KEY_STDIN = False,
) -> int:
    """Let a model work in a pipeline, on a prompt that nobody checked.

    Nobody is asked, the mode is dont-ask, what the repository configures or says to agents is ignored, no command has
    a network or a variable of the job, and what the run may use up is bounded: 50 turns, 2,000,000 tokens, 5 of the
    price's currency where a price is known, 30 minutes, 50 MB of output, 20 denials. The sandbox must hold in full.

    The last line of stdout is one JSON object. Every file is written however the run ends.

    **Examples**

        agent ci --prompt-file task.md --model anthropic:claude-sonnet-5-5
        agent ci "why does the build fail?" --summary "$GITHUB_STEP_SUMMARY"
        agent ci --prompt-file task.md --review --patch /tmp/change.patch --max-cost 1.50
        git log -p -1 | agent ci --json --mode plan --max-turns 10
    """
    from runner.ci.start import Files, start_ci

    args = RunArgs(
        mode,
        model,
        provider,
        json,
        True,
        cwd,
        tuple(limit or ()),
        config,
        parse_backend(backend),
        go_on=GoOn(unkept=True),
        trust_config=trust_config,
        key=KeyFlags(account, api_key_stdin),
        fallback=fallback_model,
        budget=BudgetFlags(max_turns, max_tokens, max_cost, timeout, max_output, max_denials),
    )
    files = Files(events, summary, sarif, patch, seal, result, files_in_workspace)
    return start_ci(args, files, prompt, prompt_file, review=review, ignored=patch_ignored)
