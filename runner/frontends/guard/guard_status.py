"""The state of the guard of one agent: what is installed, what is in force, and which calls ran without it."""

import json
import time
from collections.abc import Mapping

from policy.model.frozen import dataclass
from runner.frontends.guard.canary import Canary, CanaryResult, try_canary
from runner.frontends.guard.installation import written
from runner.frontends.guard.settings_change import hook_file, is_hook_line, read_settings
from runner.frontends.guard.tokens import tokens
from runner.frontends.guard.unconfined import UnconfinedCall, noted


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
    unrun: tuple[str, ...]
    unconfined: tuple[UnconfinedCall, ...]

    @property
    def in_force(self) -> bool:
        """Return True if nothing shows that commands run without the sandbox."""
        tried = self.canary is None or self.canary.result in (CanaryResult.INSIDE, CanaryResult.ABSENT)
        return self.installed and not self.obstacles and tried


def guard_status(agent: str, scope: str, cwd: str, environ: Mapping[str, str], *, canary: bool) -> GuardStatus:
    """Return the state of the guard. With `canary`, run the installed agent once."""
    path = hook_file(agent, scope, cwd, environ)
    text = read_settings(path)
    installed = text is not None and is_hook_line(agent, text.replace('\\"', '"'))
    rows = {row.path: row for row in written(agent, scope, cwd, environ)}
    tried = try_canary(agent, cwd if scope == "project" else None, environ) if canary and installed else None
    now = time.time()
    return GuardStatus(
        agent,
        scope,
        path,
        installed,
        installed and not any(row.path == path and row.matches(text or "") for row in rows.values()),
        _obstacles(agent, text or ""),
        tried,
        tuple(token.script for _, token in tokens("open", environ) if token.agent == agent and token.expires < now),
        tuple(call for call in noted(environ) if call.agent == agent),
    )


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
