"""The options of `runner/agent/options.py` for typer, and the help pages of `exec`, `why` and `sandbox show`.

The command lines of these three commands are parsed by `runner/frontends/exec/argv.py`, without typer.
"""

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, NoReturn

import typer

from policy.model.tier import Mode
from policy.model.verdict import limit_names
from runner.agent.options import OPTIONS, Given, Option
from runner.problems import Exit, Stopped, usage
from runner.stderr import say_notice

FLAG = " "  # the metavar of a switch, in place of typer's `<bool>`


CompletionFunction = Callable[[str], list[str]]


def completing(names: Callable[[], Iterable[str]]) -> CompletionFunction:
    """Return a function for completion: those of `names` that begin with the typed word."""
    return lambda incomplete: [name for name in names() if name.startswith(incomplete)]


def _backends(incomplete: str) -> list[str]:
    from sandbox.backends import BACKENDS

    return [name for name in BACKENDS if name.casefold().startswith(incomplete.casefold())]


@completing
def _models() -> Iterable[str]:
    from runner.providers.catalog import known_models

    return (*known_models(), "scripted:")


_COMPLETIONS = {
    "mode": completing(lambda: Mode),
    "batch mode": completing(lambda: [mode for mode in Mode if mode is not Mode.DANGEROUSLY]),
    "model": _models,
    "limit": lambda incomplete: [f"{name}=" for name in limit_names() if name.startswith(incomplete)],
    "backend": _backends,
    "output": completing(lambda: ("text", "full", "json")),
    "enforcement": completing(lambda: ("full", "partial")),
}


def switch(*names: str, help: str) -> typer.models.OptionInfo:
    """Return an option without a value, for the annotation of a parameter."""
    info: typer.models.OptionInfo = typer.Option(*names, metavar=FLAG, help=help)
    return info


def valued(
    name: str,
    metavar: str,
    help: str,
    *,
    short: str = "",
    least: int | None = None,
    complete: CompletionFunction | None = None,
) -> typer.models.OptionInfo:
    """Return an option with a value, which is at least `least` if it is a number."""
    names = [short, name] if short else [name]
    info: typer.models.OptionInfo = typer.Option(*names, metavar=metavar, help=help, min=least, autocompletion=complete)
    return info


def argument(metavar: str, help: str, *, complete: CompletionFunction | None = None) -> typer.models.ArgumentInfo:
    """Return an argument, for the annotation of a parameter."""
    info: typer.models.ArgumentInfo = typer.Argument(metavar=metavar, help=help, autocompletion=complete)
    return info


def option_before(command: str, why: str = "") -> Stopped:
    """Return the usage error for an option before the subcommand of `command`. `why` replaces the usual reason."""
    why = why or f"an option was given before `agent {command}`"
    return usage("the options must follow the command", why, f"see `agent {command} --help`")


def print_notices(notices: Iterable[str]) -> None:
    """Print notices on stderr, one on each line."""
    for notice in notices:
        say_notice(notice)


def option(name: str, command: str = "exec") -> typer.models.OptionInfo:
    """Return the option `name` of `command` for the annotation of a parameter."""
    return _typer_option(next(each for each in OPTIONS if each.name == name and command in each.commands))


def _typer_option(each: Option) -> typer.models.OptionInfo:
    complete = _COMPLETIONS.get(each.complete)
    return valued(each.name, each.metavar or FLAG, each.help, short=each.short, least=each.least, complete=complete)


def state_alone(group: typer.Typer, name: str, show: Callable[[bool], int]) -> None:
    """Let `agent NAME` without a subcommand call `show` with the value of `--json`, and return its exit code."""

    @group.callback()
    def bare(context: typer.Context, json: JSON = False) -> int:
        if context.invoked_subcommand is None:
            return show(json)
        if json:
            raise option_before(f"{name} {context.invoked_subcommand}")
        return Exit.DONE


# Options that several commands share.
UNATTENDED = Annotated[bool, option("--unattended")]
CWD = Annotated[str | None, option("--cwd")]
CONFIG = Annotated[str | None, option("--config")]
JSON = Annotated[bool, option("--json")]
LIMIT = Annotated[list[str] | None, option("--limit")]
MODE = Annotated[Mode | None, option("--mode")]
REQUIRE = Annotated[str | None, option("--require")]
ACCEPT = Annotated[bool, option("--accept-partial")]


def takes_options(name: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Return a decorator that makes a typer command with every option of the command `name`.

    The options replace the parameter `given` of the function, which receives their values as one `Given`.
    """
    options = [_parameter(each) for each in OPTIONS if name in each.commands]
    return lambda command: with_parameters(command, "given", options, lambda values: Given(values))


def with_parameters(
    command: Callable[..., int],
    placeholder: str,
    parameters: Sequence[inspect.Parameter],
    combine: Callable[[dict[str, Any]], object],
) -> Callable[..., int]:
    """Return a typer command with `parameters` in place of the parameter `placeholder` of `command`.

    `combine` returns the value of `placeholder` for the values of `parameters` by name.
    """
    signature = inspect.signature(command, eval_str=True)
    shown: list[inspect.Parameter] = []
    for each in signature.parameters.values():
        shown += parameters if each.name == placeholder else [each.replace(kind=inspect.Parameter.KEYWORD_ONLY)]

    def run(**values: object) -> int:
        combined = combine({each.name: values.pop(each.name) for each in parameters})
        return command(**{placeholder: combined}, **values)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]  # read by typer
    run.__annotations__ = {each.name: each.annotation for each in shown}
    return run


def _parameter(each: Option) -> inspect.Parameter:
    valued = list[str] if each.many else str if each.least is None else int
    shape = valued | None if each.metavar else bool
    default = None if each.metavar else False
    annotation = Annotated[shape, _typer_option(each)]  # type: ignore[valid-type]  # a type made here
    return inspect.Parameter(each.key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


SCRIPT = Annotated[
    list[str] | None,
    argument("SCRIPT | -- ARGV", "A bash script in quotes, or after -- a program and its arguments."),
]


@takes_options("exec")
def exec_help(given: Given, script: SCRIPT = None) -> NoReturn:
    """Run one command in the sandbox if the policy allows it, without a model.

    The command is parsed, evaluated, recorded, and run in a sandbox with exactly the allowed rights. Its output and
    exit status are passed through. Standard error explains what the sandbox blocked. Standard input is used if it is a
    pipe or a file. `--read`, `--write`, `--host` and `--env` each count as your approval of one more right for this
    action, also with `--unattended`. They never allow a secret, or an action that a rule denies.

    With `--background` the command has no input, a time limit only with `--timeout`, and a network of its own: two such
    commands do not reach each other.

    With `--preview` the command runs without network on a copy-on-write view of the workspace. Its changes are shown,
    and you keep all of them, some, or none. Where no user can be asked, nothing is kept: standard output gets a patch,
    standard error the output of the command, and the exit code is 3 if a change would have been held back.

    **Examples**

        agent exec 'git status && rg -n TODO src | head'
        agent exec --mode trust-project 'make test'
        agent exec --limit memory=2G --timeout 5m -- python3 -m pytest -q
        agent exec --host example.org -- curl -s https://example.org/
        agent exec --read ~/data --write ~/out 'cp ~/data/a.csv ~/out/'
        agent exec --unattended --json 'npm test' < /dev/null
        agent exec --background 'npm run dev'        print a name for `agent processes`, and return
        agent exec --preview 'make format'           look at the changes before they are made
    """
    raise _misplaced("exec")


@takes_options("why")
def why_help(given: Given, script: SCRIPT = None) -> NoReturn:
    """Explain whether a command would be allowed, and why. Nothing is run.

    Shows how the command is read, its effects, every reason with the words of the command and the line of the rule,
    the tier, the cell of the permission matrix, the verdict, the exact rights that the command would get, and what
    would allow it: a mode, an approval, or the narrowest rule for your configuration.

    **Examples**

        agent why 'curl https://example.com/x.sh | sh'
        agent why --mode trust-project -- python3 setup.py install
        agent why --json 'cat ~/.ssh/id_rsa'
        agent why --tool write --path notes.txt
    """
    raise _misplaced("why")


@takes_options("sandbox show")
def show_help(given: Given, script: SCRIPT = None) -> NoReturn:
    """Show the exact rights that SCRIPT would get, and what the sandbox mounts for them. Nothing is run.

    Without SCRIPT: the two standard sets of rights, for commands that only read and for commands that may change the
    workspace. Exit 3 if SCRIPT would be denied.

    **Examples**

        agent sandbox show
        agent sandbox show 'git status'
        agent sandbox show --host example.org -- curl https://example.org
        agent sandbox show --json 'make test'
    """
    raise _misplaced("sandbox show")


def _misplaced(command: str) -> Exception:
    """Return the usage error for an option before the command; otherwise `main` parses these commands without typer."""
    return usage(
        "the options must follow the command",
        f"an option was given before `{command}`",
        f"write `agent {command} [options] ...`",
    )
