"""`agent guard`: the gate of this program for another agent, by that agent's own hooks."""

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from policy.model.tier import Mode
from policy.model.verdict import Problem
from runner.cli.gate import CWD, JSON, MODE, argument, completing, switch, valued
from runner.problems import Exit, Stopped, usage
from runner.text.json_line import json_line
from runner.text.sanitize import visible

if TYPE_CHECKING:
    from runner.frontends.guard.canary import Canary
    from runner.frontends.guard.guard_status import GuardStatus
    from runner.frontends.guard.installation import SettingsChange
    from runner.frontends.guard.settings_change import HookOptions

guard_app = typer.Typer(no_args_is_help=False, invoke_without_command=True, rich_markup_mode="markdown")
_AGENTS = {
    "claude": "Claude Code",
    "codex": "Codex",
    "gemini": "Gemini CLI",
    "cursor": "Cursor",
    "opencode": "opencode",
}
_PREFIX = """

    --install also sets the shell prefix of Claude Code, which judges every command that passed no hook. --status tries
    it with the hooks switched off. Hooks and servers of a repository are judged by it as well."""
_REPLACE = """

    A second hook can replace the command that the hook returns. With --replace-shell the agent has no shell tool of its
    own, and calls the one of `agent mcp serve`."""
_SECOND = {"claude": _PREFIX, "codex": _REPLACE, "gemini": _REPLACE}
_SCOPES = ("user", "project")
_UNUSED = "the hooks were not tried"
SCOPE = Annotated[
    str, valued("--scope", "user|project", "For all projects, or this one.", complete=completing(lambda: _SCOPES))
]


@guard_app.callback()
def guard(context: typer.Context, json: JSON = False) -> int:
    """Let another agent ask this gate, and run its commands in the sandbox.

    The hook of the agent answers allow, ask or deny, and replaces an allowed command by one that runs in the sandbox.
    `docs/guard.md` says what holds for which agent and version.

    **Examples**

        agent guard
        agent guard claude --install
        agent guard codex --status
    """
    if context.invoked_subcommand is None:
        return _every(json)
    if json:
        from runner.cli.gate import option_before

        raise option_before(f"guard {context.invoked_subcommand}")
    return Exit.DONE


def _command(agent: str, title: str) -> None:
    def run(
        install: Annotated[bool, switch("--install", help="Write the hooks into the settings of the agent.")] = False,
        remove: Annotated[bool, switch("--remove", help="Take the hooks out of the settings again.")] = False,
        status: Annotated[bool, switch("--status", help="Show what is in force, and try it (default).")] = False,
        scope: SCOPE = "user",
        mode: MODE = None,
        redirect: Annotated[
            bool, switch("--redirect", help="Never rewrite a command: deny it and name the one to run instead.")
        ] = False,
        cold: Annotated[
            bool, switch("--cold", help="With --install: keep no process between calls. Answers take longer.")
        ] = False,
        hooks_only: Annotated[
            bool, switch("--hooks-only", help="With --install: set no shell prefix of Claude Code.")
        ] = False,
        replace_shell: Annotated[
            bool,
            switch(
                "--replace-shell",
                help="With --install, for Codex and Gemini CLI: switch their shell tool off and offer `bash` of "
                "`agent mcp serve`.",
            ),
        ] = False,
        yes: Annotated[bool, switch("--yes", help="Write without a question.")] = False,
        no_canary: Annotated[bool, switch("--no-canary", help="With --status: do not run the agent.")] = False,
        json: JSON = False,
        cwd: CWD = None,
    ) -> int:
        if install + remove + status > 1:
            raise usage("--install, --remove and --status exclude each other", "each is one step", "give one of them")
        if (mode is not None or redirect or cold) and not install:
            what = "--mode, --redirect and --cold are written into the hook"
            raise usage(what, "nothing is installed", "add --install")
        if hooks_only and (agent != "claude" or not install):
            why = "only Claude Code has a shell prefix, which is set by --install"
            raise usage("--hooks-only has no effect here", why, "leave it out")
        if replace_shell and (agent not in ("codex", "gemini") or not install or scope != "user" or redirect):
            why = "it replaces the shell of Codex or Gemini CLI for all projects, by --install and without --redirect"
            raise usage("--replace-shell cannot be used here", why, "leave it out")
        if scope not in _SCOPES:
            raise usage(f"there is no scope `{scope}`", "the scopes are user and project", "write --scope user")
        from runner.gate.gate import folder

        here = str(folder(cwd))
        if install or remove:
            from runner.frontends.guard.settings_change import HookOptions

            if mode is Mode.DANGEROUSLY:
                why = "a guarded agent would be allowed everything"
                raise usage("`--mode dangerously` cannot be installed", why, "use `--mode trust-project`")
            options = HookOptions(mode.value if mode is not None else "", redirect, not cold, hooks_only, replace_shell)
            if replace_shell:
                from runner.frontends.guard.replaced_shell import require_library

                require_library()
            return _change(agent, scope, options, here, install=install, yes=yes)
        from runner.frontends.guard.guard_status import guard_status

        found = guard_status(agent, scope, here, os.environ, canary=not no_canary)
        if json:
            print(json_line(_status_json(found)))
        else:
            _print_status(found)
        return Exit.DONE if found.in_force else Exit.FAILED

    second = _SECOND.get(agent, "")
    run.__doc__ = f"""Guard {title}: install the hooks, remove them, or show whether they are in force.

    --install shows the change first and asks. --remove restores the files as they were. --status runs the agent with a
    scripted model on loopback, if it is installed, and says whether its command ran in the sandbox.{second}

    **Examples**

        agent guard {agent} --install
        agent guard {agent} --install --mode trust-project --yes
        agent guard {agent} --status
        agent guard {agent} --remove
    """
    guard_app.command(agent)(run)


for _agent, _title in _AGENTS.items():
    _command(_agent, _title)


@guard_app.command("hook")
def hook(
    agent: Annotated[str, argument("AGENT", f"The agent: {', '.join(_AGENTS)}.", complete=completing(lambda: _AGENTS))],
    mode: MODE = None,
    redirect: Annotated[bool, switch("--redirect", help="Deny each command and name the one to run instead.")] = False,
    warm: Annotated[bool, switch("--warm", help="Keep a process for the next calls.")] = False,
    replaced: Annotated[bool, switch("--replaced", help="Deny the shell tool; pass the shell of ringfence.")] = False,
) -> int:
    """Answer one call of a guarded agent. The installed hook runs this command.

    The call is read from standard input as JSON, and the answer has the form of the agent. A failure is a denial.

    **Examples**

        agent guard hook claude < call.json
    """
    from runner.frontends.guard.hook import run_hook

    words = ["--mode", mode.value] if mode is not None else []
    words += ["--redirect"] if redirect else []
    return run_hook([agent, *words, *(["--warm"] if warm else []), *(["--replaced"] if replaced else [])])


def _change(agent: str, scope: str, options: "HookOptions", here: str, *, install: bool, yes: bool) -> int:
    from runner.frontends.guard.installation import apply_changes, planned_installation, planned_removal

    if install:
        changes = planned_installation(agent, scope, options, here, os.environ)
    else:
        changes = planned_removal(agent, scope, here, os.environ)
    shown = [change for change in changes if change.diff()]
    for change in shown:
        print(visible(change.diff().rstrip("\n")))
    if not shown:
        print("nothing to change")
        return Exit.DONE
    if not yes and not _agreed(shown):
        print("nothing was changed")
        return Exit.FAILED
    apply_changes(agent, scope, changes, here, os.environ, installed=install)
    if install:
        print(f"{_AGENTS[agent]} is guarded; `agent guard {agent} --status` tries it")
        if agent == "codex" and not any("pre_tool_use" in key for change in changes for key in change.keys):
            print("Codex is not installed here, so its user must trust the hooks with `/hooks`")
    else:
        print(f"the hooks of {_AGENTS[agent]} are removed")
    return Exit.DONE


def _agreed(changes: "list[SettingsChange]") -> bool:
    if not (os.isatty(0) and os.isatty(2)):
        raise usage("no user can be asked", "there is no terminal", "add --yes to write without a question")
    count = f"{len(changes)} file{'s' * (len(changes) != 1)}"
    sys.stderr.write(f"Change {count}? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _every(json: bool) -> int:
    """Show the state of every agent without running one."""
    from runner.frontends.guard.guard_status import guard_status
    from runner.gate.gate import folder

    here = str(folder(None))
    for agent in _AGENTS:
        for scope in _SCOPES:
            try:
                found = guard_status(agent, scope, here, os.environ, canary=False)
            except Stopped as error:
                found_problem: Problem = error.problem
                if not json:
                    print(visible(f"{agent}, {scope}: {found_problem.what}: {found_problem.why}", lines=False))
                continue
            if json:
                print(json_line(_status_json(found)))
            elif found.installed or scope == "user":
                state = "installed" if found.installed else "not installed"
                print(visible(f"{agent:9} {scope:8} {state:14} {found.path}", lines=False))
    return Exit.DONE


def _status_json(found: "GuardStatus") -> dict[str, object]:
    second = found.second
    return {
        "agent": found.agent,
        "scope": found.scope,
        "path": found.path,
        "installed": found.installed,
        "changed": found.changed,
        "obstacles": list(found.obstacles),
        "canary": _canary_json(found.canary),
        "second": {
            "name": second.name,
            "obstacles": list(second.obstacles),
            "canary": _canary_json(second.canary),
            "holds": second.holds,
        }
        if second is not None
        else None,
        "unrun": list(found.unrun),
        "unconfined": [
            {"session": call.session, "call": call.call, "script": call.script, "time": call.time}
            for call in found.unconfined
        ],
        "in_force": found.in_force,
    }


def _canary_json(tried: "Canary | None") -> dict[str, str] | None:
    return {"result": tried.result.value, "why": tried.why, "program": tried.program} if tried is not None else None


def _print_status(found: "GuardStatus") -> None:
    state = "installed" if found.installed else "not installed"
    if found.changed:
        state += ", and the file was changed since"
    lines = [f"hooks      {state} ({found.path})"]
    lines += [f"obstacle   {text}" for text in found.obstacles]
    if found.canary is not None:
        lines.append(f"canary     {found.canary.why}")
    elif found.installed:
        lines.append(f"canary     {_UNUSED}")
    if found.second is not None:
        lines.append(f"second     {found.second.name}")
        lines += [f"obstacle   {text}" for text in found.second.obstacles]
        if found.second.canary is not None:
            lines.append(f"canary     {found.second.canary.why}{' (hooks off)' * (found.agent == 'claude')}")
    if found.unrun:
        lines.append(f"unrun      {len(found.unrun)} rewritten commands never ran: {_first(found.unrun)}")
    if found.unconfined:
        scripts = tuple(call.script for call in found.unconfined)
        lines.append(f"WARNING    {len(scripts)} commands ran without the sandbox: {_first(scripts)}")
    if found.second is not None and not found.second.holds:
        lines.append(
            f"fix        correct that, or run `agent guard {found.agent} --install` again, with the same options"
        )
    elif found.canary is not None and found.canary.result == "outside":
        option = "--replace-shell" if found.agent in ("codex", "gemini") else "--redirect"
        lines.append(f"fix        run `agent guard {found.agent} --install {option}`")
    for line in lines:
        print(visible(line, lines=False))


def _first(scripts: tuple[str, ...]) -> str:
    return ", ".join(f"`{script[:60]}`" for script in scripts[-3:])
