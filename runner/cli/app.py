"""The typer application: help pages, completion, and every command that `main` does not start without typer."""

from typing import Any

import typer

from runner.agent.options import Given, not_known
from runner.cli.command_line import split_prompt
from runner.cli.command_table import COMMANDS, EPILOG
from runner.cli.gate import takes_options
from runner.problems import Exit, Stopped, usage
from runner.sessions.selection import with_value
from runner.state.session_id import ID_RULE


def _hide_types() -> None:
    """Let help pages show the placeholder of a value, such as MODE, without its Python type, such as `<str>`.

    Typer has no setting for it. A version of typer without the method `display_type` shows its own names of types.
    """
    for kind in (typer.core.TyperArgument, typer.core.TyperOption):
        if hasattr(kind, "display_type"):
            kind.display_type = lambda self, ctx: ""  # type: ignore[method-assign]  # typer has no setting for it


_hide_types()


class _TableGroup(typer.core.TyperGroup):
    """The group of the commands in `COMMANDS`. The module of a command is imported when the command is used.

    The help page and the completion show a command that is not imported by its row in the table.
    """

    def __init__(self, **attrs: Any) -> None:
        super().__init__(**attrs)
        self.commands = {name: typer.core.TyperCommand(name, help=help) for name, (_, _, help) in COMMANDS.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, name and command and imported_command(name), rest


def imported_command(name: str) -> Any:
    """Import the module of a command in `COMMANDS`, and return the command for typer."""
    from importlib import import_module

    place, epilog, _ = COMMANDS[name]
    module, _, attribute = place.partition(":")
    found = getattr(import_module(f".{module}", __package__), attribute)
    # Typer makes commands only for an application. With a callback, the commands of the application are a group.
    holder = typer.Typer(add_completion=False, rich_markup_mode="markdown", callback=lambda: None)
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=name)
    else:
        holder.command(name, epilog=epilog or None)(found)
    return typer.main.get_command(holder).commands[name]  # type: ignore[attr-defined]  # an application with a callback


@takes_options("agent")
def _agent(context: typer.Context, given: Given) -> int:
    """Run a language-model agent, or one command, under a policy and in a sandbox.

    Every action is parsed, allowed or denied by the policy, run in a sandbox with exactly the allowed rights, and
    recorded. At a terminal, `agent` without a command starts a conversation.

    **Examples**

        agent exec 'git status'                      run one command in the sandbox
        agent why 'curl https://example.com | sh'    explain the decision
        agent run "fix the failing test"             let a model work
        agent --mode trust-project                   start a conversation
        agent "fix the failing test"                 start a conversation with this prompt
        agent -c                                     continue the last conversation
        agent --json                                 read requests of a program as JSON lines:
        echo '{"type": "prompt", "text": "why?"}' | agent --json
        agent audit --denied                         list denied actions
    """
    if context.invoked_subcommand is not None and not given.any():
        return Exit.DONE
    from runner.cli.run import converse

    return converse(given, context.invoked_subcommand, context.obj)


app = typer.Typer(
    name="agent",
    cls=_TableGroup,
    epilog=EPILOG,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,  # `main` alone turns exceptions into messages
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=False,
    invoke_without_command=True,
    callback=_agent,
)


def whole_command() -> Any:
    """Return the command `agent` for typer, with the modules of all commands imported: for tests and documentation."""
    found = typer.main.get_command(app)
    found.commands = {name: imported_command(name) for name in COMMANDS}  # type: ignore[attr-defined]  # a _TableGroup
    return found


def run_app(words: list[str]) -> int:
    """Run one command and return its exit code. Raise a usage error for a mistake on the command line."""
    options, prompt = split_prompt(words)
    words = with_value(options)
    if words[:1] == ["batch"]:
        from runner.cli.batch import with_run

        words = with_run(words)
    try:
        code = app(args=words, prog_name="agent", standalone_mode=False, obj=prompt)
    except typer.TyperException as error:
        if not error.format_message():  # a group without a command, whose help was already printed
            return Exit.USAGE
        raise _usage(error, words) from None
    except typer.Abort:
        raise KeyboardInterrupt from None
    except SystemExit as left:
        # typer and rich exit with 1 if the reader of the output is gone; `main` has a separate exit code for that
        if isinstance(left.__context__, BrokenPipeError):
            raise left.__context__ from None
        raise
    return code if isinstance(code, int) else 0


def _usage(error: typer.TyperException, words: list[str]) -> Stopped:
    """Return the usage error in the wording of this program; typer's own messages mention Python types."""
    said = error.format_message()
    what = said.rstrip(".").replace("'", "`").replace("Value error, ", "")
    what = ": ".join(part[:1].lower() + part[1:] for part in what.split(": "))
    command = next((word for word in words if word in COMMANDS), "")
    inner = list(getattr(imported_command(command), "commands", ())) if command else []
    below = [word for word in words if word in inner][:1]
    unknown = next((word for word in words if said.startswith(f"No such command {word!r}")), None)
    if unknown is not None and not command:
        if words[: words.index(unknown)][-1:] == ["--resume="]:
            fix = "see `agent sessions list`, or choose with `agent --resume`"
            return usage(f"there is no session `{unknown}`", ID_RULE, fix)
        return _no_command(unknown, words)
    if unknown is not None:
        why, fix = f"the commands of `agent {command}` are {', '.join(inner)}", f"see `agent {command} --help`"
        return not_known(f"there is no command `{command} {unknown}`", why, unknown, inner, fix)
    if command in ("run", "ci") and "unexpected extra argument" in what:
        return usage("there is more than one prompt", f"`agent {command}` takes one", "put the whole prompt in quotes")
    help_of = " ".join(["agent", *([command] if command else []), *below])
    return usage(what, "the command line is not valid", f"see `{help_of} --help`")


def _no_command(name: str, words: list[str]) -> Stopped:
    why = f"the commands are {', '.join(COMMANDS)}"
    fix = f"see `agent --help`; a prompt of one word is written `agent -- {name}`"
    after = words[words.index(name) :]
    if len(after) > 1 and not any(word.startswith("-") for word in after):
        fix = f'a prompt is one word in quotes: agent "{" ".join(after)}"'
    return not_known(f"there is no command `{name}`", why, name, COMMANDS, fix)
