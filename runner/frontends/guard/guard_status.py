"""The state of the guard of one agent: what is installed, what is in force, and which calls ran without it."""

import json
import os
import time
from collections.abc import Mapping

from policy.model.frozen import dataclass, replace
from runner.frontends.guard.canary import Canary, CanaryResult, try_canary, try_replaced
from runner.frontends.guard.installation import WrittenFile, codex_config, written
from runner.frontends.guard.settings_change import (
    VARIABLE,
    hook_file,
    is_hook_line,
    prefix_file,
    read_settings,
    shell_prefix_of,
)
from runner.frontends.guard.tokens import tokens
from runner.frontends.guard.unconfined import UnconfinedCall, noted

# Settings files of Claude Code that count more than those of the user.
_OVERRIDING = (".claude/settings.json", ".claude/settings.local.json", "/etc/claude-code/managed-settings.json")


@dataclass(frozen=True, slots=True)
class SecondMechanism:
    """The state of a second mechanism.

    Attributes:
        name: Its name for the user.
        obstacles: What keeps it from being in force, in words.
        canary: The result of the canary without the hooks, or None if it was not tried.
    """

    name: str
    obstacles: tuple[str, ...]
    canary: Canary | None

    @property
    def holds(self) -> bool:
        """Return True if nothing shows that it is not in force."""
        return not self.obstacles and _holds(self.canary)


def _holds(tried: Canary | None) -> bool:
    return tried is None or tried.result in (CanaryResult.INSIDE, CanaryResult.ABSENT)


@dataclass(frozen=True, slots=True)
class GuardStatus:
    """The state of the guard of one agent in one scope.

    Attributes:
        agent: The name of the agent.
        scope: `user` or `project`.
        path: The path of the file with the hooks.
        installed: True if the file contains the hooks.
        changed: True if the file is not as this program wrote it.
        obstacles: Settings that keep the hooks from running, in words.
        canary: The result of the canary, or None if it was not tried.
        second: The second mechanism against a call that passes no hook, or None if there is none.
        unrun: Rewritten commands that never ran, as scripts.
        unconfined: Calls that ran without the sandbox.
    """

    agent: str
    scope: str
    path: str
    installed: bool
    changed: bool
    obstacles: tuple[str, ...]
    canary: Canary | None
    second: SecondMechanism | None
    unrun: tuple[str, ...]
    unconfined: tuple[UnconfinedCall, ...]

    @property
    def in_force(self) -> bool:
        """Return True if nothing shows that commands run without the sandbox."""
        return self.installed and not self.obstacles and _holds(self.canary) and (not self.second or self.second.holds)


def guard_status(agent: str, scope: str, cwd: str, environ: Mapping[str, str], *, canary: bool) -> GuardStatus:
    """Return the state of the guard. With `canary`, run the installed agent once."""
    path = hook_file(agent, scope, cwd, environ)
    text = read_settings(path)
    installed = text is not None and is_hook_line(agent, text.replace('\\"', '"'))
    rows = {row.path: row for row in written(agent, scope, cwd, environ)}
    replaced = any(_is_replaced(line) for line in (text or "").splitlines())
    second = (
        _replaced(agent, path, text, rows, cwd, environ) if replaced else _prefix(agent, path, text, rows, cwd, environ)
    )
    tried = None
    if canary and installed and replaced:
        tried, shell = try_replaced(agent, environ)
        second = replace(second, canary=shell) if second is not None else None
    elif canary and installed:
        here = cwd if scope == "project" else None
        tried = try_canary(agent, here, environ)
        if second is not None and not second.obstacles:
            second = replace(second, canary=try_canary(agent, here, environ, hooks=False))
    now = time.time()
    return GuardStatus(
        agent,
        scope,
        path,
        installed,
        installed and not any(row.path == path and row.matches(text or "") for row in rows.values()),
        _obstacles(agent, text or ""),
        tried,
        second,
        tuple(token.script for _, token in tokens("open", environ) if token.agent == agent and token.expires < now),
        tuple(call for call in noted(environ) if call.agent == agent),
    )


def _is_replaced(line: str) -> bool:
    return " guard hook " in line and " --replaced;" in line


def _replaced(
    agent: str, path: str, text: str | None, rows: Mapping[str, WrittenFile], cwd: str, environ: Mapping[str, str]
) -> SecondMechanism:
    """Return the state of the shell that replaces the one of Codex or Gemini CLI."""
    from runner.frontends.guard.replaced_shell import codex_obstacles, gemini_obstacles, policy_file

    if agent == "codex":
        config, project = codex_config(environ), f"{cwd}/.codex/config.toml"
        found = codex_obstacles(config, read_settings(config))
        if project != config:
            found += codex_obstacles(project, read_settings(project), own=False)
    else:
        policy, project = policy_file(environ), f"{cwd}/.gemini/settings.json"
        rule = read_settings(policy)
        found = gemini_obstacles(path, text)
        if project != path:
            found += gemini_obstacles(project, read_settings(project), own=False)
        if rule is None or policy not in rows or not rows[policy].matches(rule):
            found += (f"`{policy}` is missing or was changed",)
    return SecondMechanism("own shell switched off, shell of ringfence", found, None)


def _prefix(
    agent: str, path: str, text: str | None, rows: Mapping[str, WrittenFile], cwd: str, environ: Mapping[str, str]
) -> SecondMechanism | None:
    """Return the shell prefix of Claude Code, if it was installed or is in the settings."""
    if agent != "claude":
        return None
    program = prefix_file(path, environ)
    found = shell_prefix_of(text)
    if program not in rows and found != program:
        return None
    obstacles = []
    if found != program:
        obstacles.append(f"`env.{VARIABLE}` is not the program that ringfence installed")
    content = read_settings(program)
    if content is None or not any(row.path == program and row.matches(content) for row in rows.values()):
        obstacles.append(f"`{program}` is missing or was changed")
    elif not os.access(program, os.X_OK):
        obstacles.append(f"`{program}` cannot be executed")
    for other in _OVERRIDING:
        other = other if other.startswith("/") else f"{cwd}/{other}"
        if other != path and (overriding := shell_prefix_of(read_settings(other))) not in (None, program):
            obstacles.append(f"`{other}` sets `{VARIABLE}` to `{overriding}`")
    return SecondMechanism("shell prefix", tuple(obstacles), None)


def _obstacles(agent: str, text: str) -> tuple[str, ...]:
    """Return the settings in the file of the hooks that keep them from running."""
    if agent not in ("claude", "gemini"):
        return ()
    try:
        settings = json.loads(text or "{}")
    except ValueError:
        return ("the file is not valid JSON",)
    found = []
    if agent == "claude" and isinstance(settings, dict) and settings.get("disableAllHooks") is True:
        found.append("`disableAllHooks` is true")
    hooks = settings.get("hooksConfig") if isinstance(settings, dict) else None
    if agent == "gemini" and isinstance(hooks, dict):
        if hooks.get("enabled") is False:
            found.append("`hooksConfig.enabled` is false")
        disabled = hooks.get("disabled")
        if isinstance(disabled, list) and "ringfence" in disabled:
            found.append("`hooksConfig.disabled` names `ringfence`")
    return tuple(found)
