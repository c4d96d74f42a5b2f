"""`agent run`, `agent ci` and plain `agent`: sessions with a model."""

import os
from dataclasses import replace
from typing import Annotated

from runner import VERSION
from runner.agent.options import Given, not_known
from runner.agent.startup import RunArgs, run_args
from runner.cli.gate import argument, takes_options
from runner.frontends.launch import OutputForm, start_conversation, start_run
from runner.frontends.prompt_input import prompt_input
from runner.problems import Exit, usage
from runner.sessions.selection import SessionSelection

PROMPT = Annotated[str | None, argument("PROMPT", "The task for the model. Piped stdin is appended, or is the task.")]


@takes_options("run")
def run(given: Given, prompt: PROMPT = None) -> int:
    """Let a model work on one prompt. The policy decides on every action of the model.

    If stdout is not a terminal, it receives the answer of the model alone, and stderr everything else (--output).

    Without a terminal no user can be asked, so every question becomes a denial. Exit 3: an action was denied. Exit 5:
    a limit on turns, tokens, money, time, output or denials ended the run.

    **Examples**

        agent run "why does the build fail?"
        agent run --mode trust-project "make the tests pass" --timeout 20m
        git diff | agent run "review this change" > review.md
        agent run --json --max-turns 20 "fix the bug" > events.jsonl
        agent run --model openai:qwen3 --prompt-file task.md
        agent run -c "and now the documentation"
        agent run -u https://example.org/changes "what concerns us?"
        agent run --output-schema review.schema.json "review this change" | jq .findings
        agent run --json --input json                read requests of a program as JSON lines
        agent run --detach "make the tests pass"     print its ID, and return
    """
    if given.switch("detach"):
        return _detached(given, prompt)
    form = _output_form(given)
    schema = given.text("output_schema") or ""
    form = OutputForm.TEXT if schema and form is None else form
    args = replace(run_args(given), json=form is OutputForm.JSON, output_schema=schema)
    format = given.text("input") or "text"
    prompt_file, last_message = given.path("prompt_file"), given.text("last_message")
    if format not in ("text", "json"):
        raise usage(f"there is no input format `{format}`", "the formats are text and json", "write `--input json`")
    if format == "json":
        from runner.frontends.jsonl.server import serve

        if not args.json:
            raise usage("--input json needs --json", "the answers to JSON requests are JSON events", "add --json")
        if last_message is not None:
            why, fix = "a session may have many answers", "read `run_ended`, which contains each answer"
            raise usage("--input json and --last-message exclude each other", why, fix)
        _no_pages(args)
        args.key.check(prompt_from_stdin=True)
        prompted = prompt is not None or prompt_file is not None
        return serve(args, prompt_input(prompt, prompt_file, with_stdin=False).text if prompted else None)
    return start_run(args, prompt, prompt_file, form, last_message)


def _detached(given: Given, prompt: str | None) -> int:
    """Start a hosted session with the prompt, and return. Raise a usage error for options that need this process."""
    from runner.frontends.hosted.commands import run_detached

    bound = ("json", "output", "last_message", "output_schema", "input", "url", "api_key_stdin")
    for name in bound:
        if given.switch(name) or given.text(name) is not None or given.texts(name):
            why = "the command returns at once, and the session goes on without its streams"
            raise usage(f"`--{name.replace('_', '-')}` and `--detach` exclude each other", why, "leave one of them out")
    words = prompt_input(prompt, given.path("prompt_file"))
    return run_detached(given, words.text, os.environ)


def _no_pages(args: RunArgs) -> None:
    """Raise a usage error if pages would be attached to a prompt that a program sends later."""
    if args.urls:
        why, fix = "the prompts are sent by a program, and a page belongs to one prompt", "put its text into the prompt"
        raise usage("-u cannot be used with JSON input", why, fix)


def _output_form(given: Given) -> OutputForm | None:
    """Return the form that `--output` or `--json` names, or None. Raise a usage error."""
    named, json = given.text("output"), given.switch("json")
    if named is None:
        return OutputForm.JSON if json else None
    if named not in list(OutputForm):
        why = f"the forms are {', '.join(OutputForm)}"
        raise not_known(f"there is no output form `{named}`", why, named, OutputForm, "write `--output text`")
    if json and named != OutputForm.JSON:
        why = "--json is the same as `--output json`"
        raise usage(f"--json and `--output {named}` exclude each other", why, "leave one of them out")
    return OutputForm(named)


def converse(given: Given, command: str | None, prompt: str | None) -> int:
    """Start a conversation with the options of `agent`, and return its exit code.

    `prompt` is the first prompt. Raise a usage error for a `command`, because its options are written behind its name.
    """
    args = run_args(given)
    if command is not None:  # the options that the command has were moved (runner/cli/command_line.py)
        raise usage(
            f"the options of `{command}` must follow its name",
            f"an option that `{command}` does not have was given before it",
            f"write `agent {command} [options] ...`",
        )
    if given.switch("version"):
        print(f"ringfence {VERSION}")
        return Exit.DONE
    if args.json:
        from runner.frontends.jsonl.server import serve

        _no_pages(args)
        args.key.check(prompt_from_stdin=True)
        return serve(args, None)
    if os.isatty(1) and not args.unattended and (os.isatty(0) or args.key.from_stdin):
        return start_conversation(replace(args, prompt=prompt))
    if prompt is not None:
        why = "a conversation needs a terminal for its input and output"
        raise usage("a prompt needs the command `run`", why, f'try: agent run "{prompt}"')
    return start_run(args, None, None)


@takes_options("ci")
def ci(given: Given, prompt: PROMPT = None) -> int:
    """Let a model work in a CI job, on a prompt that may be hostile.

    No user is asked, the mode is dont-ask, the configuration of the repository and its texts for agents are ignored,
    and commands get no network and no variables of the job. The sandbox must enforce everything. The limits: 50 turns,
    2,000,000 tokens, a cost of 5 where a price is known, 30 minutes, 50 MiB of output, 20 denials.

    The last line of stdout is the result, one JSON object. All output files are written even if the run fails.

    **Examples**

        agent ci --prompt-file task.md --model anthropic:claude-sonnet-5-5
        agent ci "why does the build fail?" --summary "$GITHUB_STEP_SUMMARY"
        agent ci --prompt-file task.md --review --patch /tmp/change.patch --max-cost 1.50
        git log -p -1 | agent ci --json --mode plan --max-turns 10
    """
    from runner.frontends.ci.run import OUTPUTS, start_ci

    args = replace(run_args(given), unattended=True, selection=SessionSelection(unkept=True))
    args = replace(args, output_schema=given.text("output_schema") or "")
    return start_ci(
        args,
        {option: given.text(option.removeprefix("--")) for option in OUTPUTS},
        prompt,
        given.path("prompt_file"),
        review=given.switch("review"),
        ignored=given.switch("patch_ignored"),
        inside_too=given.switch("files_in_workspace"),
    )
