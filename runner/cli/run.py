"""`agent run`, `agent ci` and plain `agent`: sessions with a model."""

import os
from dataclasses import replace
from typing import Annotated

import typer

from runner import VERSION
from runner.agent.options import Given
from runner.agent.startup import run_args
from runner.cli.gate import argument, takes_options
from runner.frontends.launch import prompt_text, start_conversation, start_run
from runner.problems import Exit, usage
from runner.sessions.selection import SessionSelection

PROMPT = Annotated[str | None, argument("PROMPT", "What to do. Read from stdin when left out.")]


@takes_options("run")
def run(given: Given, prompt: PROMPT = None) -> int:
    """Let a model work on one prompt, every action of it through the gate.

    Without a terminal nobody can be asked, so questions become denials. Exit 3 says that something was denied, exit 5
    that a limit ended it: turns, tokens, money, time, output or denials.

    **Examples**

        agent run "why does the build fail?"
        agent run --mode trust-project "make the tests pass" --timeout 20m
        git diff | agent run --unattended --json --max-turns 20 > events.jsonl
        agent run --model openai:qwen3 --prompt-file task.md
        agent run -c "and now the documentation"
        agent run --json --input json                requests of a program, one JSON object a line
    """
    args, format = run_args(given), given.text("input") or "text"
    prompt_file = given.path("prompt_file")
    if format not in ("text", "json"):
        raise usage(f"there is no input format `{format}`", "the formats are text and json", "write `--input json`")
    if format == "json":
        from runner.frontends.jsonl.server import serve

        if not args.json:
            raise usage("--input json stands without --json", "its answers are events", "add --json")
        args.key.check(prompt_from_stdin=True)
        prompted = prompt is not None or prompt_file is not None
        return serve(args, prompt_text(prompt, prompt_file) if prompted else None)
    return start_run(args, prompt, prompt_file)


@takes_options("agent")
def converse(context: typer.Context, given: Given) -> int:
    """Run a language-model agent, or one command, behind a gate.

    Every action is parsed, judged, confined by the kernel to exactly what was allowed, and recorded. At a terminal,
    plain `agent` starts a conversation.

    **Examples**

        agent exec 'git status'                      one command behind the gate
        agent why 'curl https://example.com | sh'    what it would say, and why
        agent run "fix the failing test"             a model at work
        agent --mode trust-project                   a conversation
        agent -c                                     go on with the last one
        agent --json                                 requests of a program, one JSON object a line:
        echo '{"type": "prompt", "text": "why?"}' | agent --json
        agent audit --denied                         what was refused
    """
    args = run_args(given)
    if context.invoked_subcommand is not None:
        if given.any():
            name = context.invoked_subcommand
            raise usage(
                f"an option stands before `{name}`",
                f"`agent {name}` takes its options after its name",
                f"write `agent {name} [options] ...`",
            )
        return Exit.DONE
    if given.switch("version"):
        print(f"ringfence {VERSION}")
        return Exit.DONE
    if args.json:
        from runner.frontends.jsonl.server import serve

        args.key.check(prompt_from_stdin=True)
        return serve(args, None)
    if os.isatty(1) and not args.unattended and (os.isatty(0) or args.key.from_stdin):
        return start_conversation(args)
    return start_run(args, None, None)


@takes_options("ci")
def ci(given: Given, prompt: PROMPT = None) -> int:
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
    from runner.frontends.ci.run import OUTPUTS, start_ci

    args = replace(run_args(given), unattended=True, selection=SessionSelection(unkept=True))
    return start_ci(
        args,
        {option: given.text(option.removeprefix("--")) for option in OUTPUTS},
        prompt,
        given.path("prompt_file"),
        review=given.switch("review"),
        ignored=given.switch("patch_ignored"),
        inside_too=given.switch("files_in_workspace"),
    )
