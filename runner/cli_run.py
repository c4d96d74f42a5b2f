"""`agent run` and plain `agent`: a model at work behind the gate."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from runner.budget_flags import BudgetFlags
from runner.cli_gate import ACCEPT, BACKEND, CONFIG, CWD, FLAG, LIMIT, MODE, REQUIRE, UNATTENDED
from runner.gate_args import least, parse_backend
from runner.key_flags import KeyFlags
from runner.model_run import prompt_text, start_conversation, start_run
from runner.problems import Exit, usage
from runner.run_options import RunArgs
from runner.sessions.flags import go_on


def _models(incomplete: str) -> list[str]:
    from runner.model_facts import known_models

    return [name for name in (*known_models(), "scripted:") if name.startswith(incomplete)]


MODEL = Annotated[
    str | None,
    typer.Option(
        metavar="PROVIDER:MODEL",
        help="Which model: anthropic:NAME, openai:NAME, gemini:NAME, scripted:FILE.",
        autocompletion=_models,
    ),
]
FALLBACK = Annotated[
    str | None,
    typer.Option(
        "--fallback-model",
        metavar="PROVIDER:MODEL",
        help="Goes on where the model stays busy.",
        autocompletion=_models,
    ),
]
PROVIDER = Annotated[str | None, typer.Option(metavar="NAME", help="Its provider alone, for the default model.")]


class Input(StrEnum):
    """What standard input is."""

    TEXT = "text"
    JSON = "json"


EVENTS = Annotated[bool, typer.Option("--json", metavar=FLAG, help="One JSON event a line on stdout.")]
LINES = Annotated[
    bool,
    typer.Option(
        "--json",
        metavar=FLAG,
        help="JSON mode: one JSON object a line on stdin, one event a line on stdout (docs/guide/embedding.md).",
    ),
]
INPUT = Annotated[
    Input,
    typer.Option(
        "--input", metavar="FORMAT", help="What stdin is: text, or (with --json) json: lines that drive a whole talk."
    ),
]
TURNS = Annotated[
    int | None, typer.Option("--max-turns", metavar="N", min=1, help="The most requests to the model (50).")
]
TIME = Annotated[
    str | None, typer.Option("--timeout", metavar="TIME", help="The most wall time of the run: 90s, 30m, 2h.")
]
TOKENS = Annotated[
    int | None, typer.Option("--max-tokens", metavar="N", min=1, help="The most tokens, sent and received.")
]
COST = Annotated[
    str | None, typer.Option("--max-cost", metavar="AMOUNT", help="The most money, by the known price of the model.")
]
OUTPUT = Annotated[
    str | None,
    typer.Option("--max-output", metavar="SIZE", help="The most that all commands together print: 500K, 20M."),
]
DENIALS = Annotated[
    int | None,
    typer.Option(
        "--max-denials", metavar="N", min=1, help="Denials that end it when nobody is there (20, or 3 in a row)."
    ),
]
CONTINUE = Annotated[
    bool,
    typer.Option("-c", "--continue", metavar=FLAG, help="Go on with the latest session of this workspace."),
]
RESUME = Annotated[
    str | None,
    typer.Option(metavar="[ID]", help="Go on with that session; without ID, pick one from a list."),
]
FORK = Annotated[
    str | None,
    typer.Option(metavar="ID", help="Go on from that session in a new one; the old one stays as it is."),
]
NO_SESSION = Annotated[
    bool, typer.Option("--no-session", metavar=FLAG, help="Keep nothing of this session, except the audit log.")
]
TRUST = Annotated[
    str | None,
    typer.Option(
        "--trust-config",
        metavar="SHA256",
        help="Use what the repository brings if its hash is this one (`agent trust show`); otherwise exit 2.",
    ),
]
WORDLESS = Annotated[
    bool,
    typer.Option("--no-instructions", metavar=FLAG, help="Give the model no AGENTS.md, CLAUDE.md or GEMINI.md."),
]
PLAIN = Annotated[
    bool,
    typer.Option("--plain", metavar=FLAG, help="Lines only, nothing drawn: for screen readers and odd terminals."),
]

ACCOUNT = Annotated[str | None, typer.Option(metavar="NAME", help="Which of your accounts; see agent auth status.")]
KEY_STDIN = Annotated[
    bool, typer.Option("--api-key-stdin", metavar=FLAG, help="The API key is the first line of stdin.")
]


def run(
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
    input: INPUT = Input.TEXT,
    unattended: UNATTENDED = False,
    max_turns: TURNS = None,
    max_tokens: TOKENS = None,
    max_cost: COST = None,
    max_output: OUTPUT = None,
    max_denials: DENIALS = None,
    cwd: CWD = None,
    timeout: TIME = None,
    limit: LIMIT = None,
    config: CONFIG = None,
    backend: BACKEND = None,
    accept_partial: ACCEPT = False,
    require: REQUIRE = None,
    continue_: CONTINUE = False,
    resume: RESUME = None,
    fork: FORK = None,
    no_session: NO_SESSION = False,
    trust_config: TRUST = None,
    no_instructions: WORDLESS = False,
    account: ACCOUNT = None,
    api_key_stdin: KEY_STDIN = False,
) -> int:
    """Let a model work on one prompt, every action of it through the gate.

    Without a terminal nobody can be asked, so questions become denials. Exit 3 says that something was denied, exit 5
    that a limit ended it: turns, tokens, money, time, output or denials.

    **Examples**

        agent run "why does the build fail?"
        agent run --mode trust-project "make the tests pass" --timeout 20m
        git diff | agent run --unattended --json --max-turns 20 > events.jsonl
        agent run --model openai:qwen3 --prompt-file task.md
        agent run -c "and now the documentation"
        agent run --json --input json                a program talks, line by line
    """
    args = RunArgs(
        mode,
        model,
        provider,
        json,
        unattended,
        cwd,
        tuple(limit or ()),
        config,
        parse_backend(backend),
        least(accept_partial, require),
        go_on=go_on(continue_, resume, fork, no_session),
        trust_config=trust_config,
        no_instructions=no_instructions,
        key=KeyFlags(account, api_key_stdin),
        fallback=fallback_model,
        budget=BudgetFlags(max_turns, max_tokens, max_cost, timeout, max_output, max_denials),
    )
    if input is Input.JSON:
        from runner.json_serve import serve

        if not json:
            raise usage("--input json stands without --json", "its answers are events", "add --json")
        args.key.check(prompt_from_stdin=True)
        given = prompt is not None or prompt_file is not None
        return serve(args, prompt_text(prompt, prompt_file) if given else None)
    return start_run(args, prompt, prompt_file)


def converse(
    context: typer.Context,
    mode: MODE = None,
    model: MODEL = None,
    provider: PROVIDER = None,
    fallback_model: FALLBACK = None,
    json: LINES = False,
    unattended: UNATTENDED = False,
    cwd: CWD = None,
    limit: LIMIT = None,
    config: CONFIG = None,
    backend: BACKEND = None,
    accept_partial: ACCEPT = False,
    require: REQUIRE = None,
    continue_: CONTINUE = False,
    resume: RESUME = None,
    fork: FORK = None,
    no_session: NO_SESSION = False,
    trust_config: TRUST = None,
    no_instructions: WORDLESS = False,
    account: ACCOUNT = None,
    api_key_stdin: KEY_STDIN = False,
    plain: PLAIN = False,
    version: Annotated[
        bool, typer.Option("--version", "-V", metavar=FLAG, help="Print the version and leave.")
    ] = False,
) -> int:
    """Run a language-model agent, or one command, behind a gate.

    Every action is parsed, judged, confined by the kernel to exactly what was allowed, and recorded. At a terminal,
    plain `agent` starts a conversation.

    **Examples**

        agent exec 'git status'                      one command behind the gate
        agent why 'curl https://example.com | sh'    what it would say, and why
        agent run "fix the failing test"             a model at work
        agent --mode trust-project                   a conversation
        agent -c                                     go on with the last one
        agent --json                                 a program talks, line by line:
        echo '{"type": "prompt", "text": "why?"}' | agent --json
        agent audit --denied                         what was refused
    """
    args = RunArgs(
        mode,
        model,
        provider,
        json,
        unattended,
        cwd,
        tuple(limit or ()),
        config,
        parse_backend(backend),
        least(accept_partial, require),
        go_on=go_on(continue_, resume, fork, no_session),
        trust_config=trust_config,
        no_instructions=no_instructions,
        key=KeyFlags(account, api_key_stdin),
        fallback=fallback_model,
        plain=plain,
    )
    chosen = args != RunArgs() or version
    if context.invoked_subcommand is not None:
        if chosen:
            name = context.invoked_subcommand
            raise usage(
                f"an option stands before `{name}`",
                f"`agent {name}` takes its options after its name",
                f"write `agent {name} [options] ...`",
            )
        return Exit.DONE
    if version:
        from runner.version import VERSION

        print(f"ringfence {VERSION}")
        return Exit.DONE
    if json:
        from runner.json_serve import serve

        args.key.check(prompt_from_stdin=True)
        return serve(args, None)
    if os.isatty(1) and not unattended and (os.isatty(0) or api_key_stdin):
        return start_conversation(args)
    return start_run(args, None, None)
