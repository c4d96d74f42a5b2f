"""The typer application: help pages, completion, and every command that `main` does not start without typer."""

import typer

from runner.agent.options import not_known
from runner.cli.agents import agents_app
from runner.cli.apply import apply
from runner.cli.approve import approve
from runner.cli.audit import audit_app
from runner.cli.auth import auth_app
from runner.cli.batch import batch_app, with_run
from runner.cli.bundle import bundle_app
from runner.cli.command_line import split_prompt
from runner.cli.config import config_app, init
from runner.cli.doctor import demo, doctor
from runner.cli.gate import exec_help, why_help
from runner.cli.grants import grants_app
from runner.cli.guard import guard_app
from runner.cli.hooks import hooks_app
from runner.cli.mcp import mcp_app
from runner.cli.mcp_pin import mcp_pin
from runner.cli.mcp_try import mcp_call, mcp_test, mcp_why
from runner.cli.memory import memory_app
from runner.cli.policy import policy_app
from runner.cli.processes import ports_app, processes_app
from runner.cli.profile import profile_app
from runner.cli.research import repo, web
from runner.cli.run import ci, converse, run
from runner.cli.sandbox import sandbox_app
from runner.cli.sessions import sessions_app
from runner.cli.trust import trust_app
from runner.cli.undo import undo
from runner.problems import Exit, Stopped, usage
from runner.sessions.selection import with_value
from runner.state.session_id import ID_RULE

CODES = (
    "**Exit codes**  0 done · 1 failed · 2 usage or configuration · 3 policy denied something · "
    "4 sandbox unavailable · 5 a limit was reached · 130 interrupted."
)
EPILOG = f"{CODES} `agent exec` passes the command's own status through."


def _hide_types() -> None:
    """Let help pages show the placeholder of a value, such as MODE, without its Python type, such as `<str>`.

    Typer has no setting for it. A version of typer without the method `display_type` shows its own names of types.
    """
    for kind in (typer.core.TyperArgument, typer.core.TyperOption):
        if hasattr(kind, "display_type"):
            kind.display_type = lambda self, ctx: ""  # type: ignore[method-assign]  # typer has no setting for it


_hide_types()
app = typer.Typer(
    name="agent",
    epilog=EPILOG,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,  # `main` alone turns exceptions into messages
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=False,
    invoke_without_command=True,
    callback=converse,
)
app.command("run", epilog=CODES)(run)
app.command("ci", epilog=CODES)(ci)
app.command("repo", epilog=CODES)(repo)
app.command("web", epilog=CODES)(web)
app.command("exec", epilog=EPILOG)(exec_help)
app.command("why")(why_help)
app.add_typer(sandbox_app, name="sandbox")
app.add_typer(batch_app, name="batch")
app.add_typer(policy_app, name="policy")
app.add_typer(profile_app, name="profile")
app.add_typer(config_app, name="config")
app.add_typer(agents_app, name="agents")
app.add_typer(bundle_app, name="bundle")
app.add_typer(mcp_app, name="mcp")
app.add_typer(hooks_app, name="hooks")
mcp_app.command("call", epilog=CODES)(mcp_call)
mcp_app.command("pin")(mcp_pin)
mcp_app.command("test")(mcp_test)
mcp_app.command("why")(mcp_why)
app.command("init")(init)
app.add_typer(audit_app, name="audit")
app.add_typer(auth_app, name="auth")
app.add_typer(trust_app, name="trust")
app.add_typer(grants_app, name="grants")
app.add_typer(guard_app, name="guard")
app.add_typer(memory_app, name="memory")
app.command("undo", epilog=CODES)(undo)
app.command("apply", epilog=CODES)(apply)
app.command("approve", epilog=CODES)(approve)
app.add_typer(sessions_app, name="sessions")
app.add_typer(processes_app, name="processes")
app.add_typer(ports_app, name="ports")
app.command("doctor")(doctor)
app.command("demo")(demo)


def run_app(words: list[str]) -> int:
    """Run one command and return its exit code. Raise a usage error for a mistake on the command line."""
    options, prompt = split_prompt(words)
    words = with_run(with_value(options))
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
    names = [item.name or "" for item in app.registered_commands] + [item.name or "" for item in app.registered_groups]
    command = next((word for word in words if word in names), "")
    group = next((item.typer_instance for item in app.registered_groups if item.name == command), None)
    inner = [each.name or "" for each in group.registered_commands] if group else []
    inner += [each.name or "" for each in group.registered_groups] if group else []
    below = [word for word in words if word in inner][:1]
    unknown = next((word for word in words if said.startswith(f"No such command {word!r}")), None)
    if unknown is not None and not command:
        if words[: words.index(unknown)][-1:] == ["--resume="]:
            fix = "see `agent sessions list`, or choose with `agent --resume`"
            return usage(f"there is no session `{unknown}`", ID_RULE, fix)
        return _no_command(unknown, names, words)
    if unknown is not None:
        why, fix = f"the commands of `agent {command}` are {', '.join(inner)}", f"see `agent {command} --help`"
        return not_known(f"there is no command `{command} {unknown}`", why, unknown, inner, fix)
    if command in ("run", "ci") and "unexpected extra argument" in what:
        return usage("there is more than one prompt", f"`agent {command}` takes one", "put the whole prompt in quotes")
    help_of = " ".join(["agent", *([command] if command else []), *below])
    return usage(what, "the command line is not valid", f"see `{help_of} --help`")


def _no_command(name: str, names: list[str], words: list[str]) -> Stopped:
    why = f"the commands are {', '.join(names)}"
    fix = f"see `agent --help`; a prompt of one word is written `agent -- {name}`"
    after = words[words.index(name) :]
    if len(after) > 1 and not any(word.startswith("-") for word in after):
        fix = f'a prompt is one word in quotes: agent "{" ".join(after)}"'
    return not_known(f"there is no command `{name}`", why, name, names, fix)
