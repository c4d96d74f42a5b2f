"""The canary: a command that an installed agent really calls, to see whether its hook and the sandbox are in force.

The agent runs headless with the user's own settings, and a scripted model on loopback in place of its model.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from enum import StrEnum

from policy.model.frozen import dataclass
from runner.frontends.guard.scripted_model import ScriptedCall, ScriptedModel
from runner.frontends.guard.tokens import PREFIX_REFUSED, PREFIX_TOOL, tokens

_REDIRECTION = re.compile(r"run exactly this instead: (\S+ exec --guard-token [0-9a-f]{32} '[^']*')")
_SECONDS = 120.0  # until the agent must have ended
_TOOLS = {"claude": ("Bash", "command"), "codex": ("exec_command", "cmd"), "gemini": ("run_shell_command", "command")}

_REPLACED = {"codex": "mcp__ringfence__bash", "gemini": "mcp_ringfence_bash"}


class CanaryResult(StrEnum):
    """The outcome of the canary.

    `INSIDE`: it ran in the sandbox. `UNASKED`: it ran in the sandbox, but only because of the second mechanism, so that
    file tools are not judged. `OUTSIDE`: it ran without the sandbox. `STOPPED`: it did not run. `ABSENT`: the agent is
    not installed, or cannot be run without a person.
    """

    INSIDE = "inside"
    UNASKED = "unasked"
    OUTSIDE = "outside"
    STOPPED = "stopped"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Canary:
    """The result of one try, with the reason in words, and the program that was run."""

    result: CanaryResult
    why: str
    program: str = ""


def try_canary(agent: str, cwd: str | None, environ: Mapping[str, str], *, hooks: bool = True) -> Canary:
    """Let the installed agent call its shell tool once. `cwd` is its folder; None for a temporary one.

    Without `hooks`, Claude Code runs with its hooks switched off, so that only its shell prefix is tried.
    """
    if agent not in _TOOLS:
        return Canary(CanaryResult.ABSENT, "this agent cannot be run without a person, so its hooks were not tried")
    program = shutil.which(agent, path=environ.get("PATH", os.defpath))
    if program is None:
        return Canary(CanaryResult.ABSENT, f"there is no program `{agent}` on PATH")
    word = f"ringfence-canary-{os.urandom(8).hex()}"
    tool, argument = _TOOLS[agent]
    script = f"echo {word} | tr a-z A-Z"
    calls = (
        lambda results: ScriptedCall(tool, {argument: script, "description": "canary"}),
        lambda results: _redirected(results[-1], tool, argument),
    )
    with tempfile.TemporaryDirectory(prefix="ringfence-canary-") as folder, ScriptedModel(calls) as model:
        words, more = agent_command(agent, program, model.address, folder)
        words += [] if hooks else ["--settings", '{"disableAllHooks": true}', "--allowedTools", tool]
        ended = _run(words, cwd or folder, {**environ, **more}, program)
        if isinstance(ended, Canary):
            return ended
        printed = any(word.upper() in result for result in model.results)
    ran = [token for _, token in tokens("used", environ) if token.script == script and token.tool != PREFIX_REFUSED]
    if hooks and ran and all(token.tool == PREFIX_TOOL for token in ran):
        return Canary(CanaryResult.UNASKED, "its hook was not asked: only the shell prefix used the sandbox", program)
    if ran:
        return Canary(CanaryResult.INSIDE, "its shell command ran in the sandbox of ringfence", program)
    if printed:
        return Canary(CanaryResult.OUTSIDE, "its shell command ran WITHOUT the sandbox of ringfence", program)
    if not model.results:
        return Canary(CanaryResult.STOPPED, f"it called no tool; it says: {ended}", program)
    return Canary(CanaryResult.STOPPED, f"its shell command did not run: {model.results[-1][:300]}", program)


def try_replaced(agent: str, environ: Mapping[str, str]) -> tuple[Canary, Canary]:
    """Let an installed agent whose shell is replaced call the shell of this program once.

    Return the result for its hook, and the result for the shell: whether its own shell tool is offered no longer.
    """
    program = shutil.which(agent, path=environ.get("PATH", os.defpath))
    if program is None:
        absent = Canary(CanaryResult.ABSENT, f"there is no program `{agent}` on PATH")
        return absent, absent
    word = f"ringfence-canary-{os.urandom(8).hex()}"
    own, _ = _TOOLS[agent]
    tool, script = _REPLACED[agent], f"echo {word} | tr a-z A-Z"
    with (
        tempfile.TemporaryDirectory(prefix="ringfence-canary-") as folder,
        ScriptedModel([ScriptedCall(tool, {"command": script})]) as model,
    ):
        words, more = agent_command(agent, program, model.address, folder)
        ended = _run(words, folder, {**environ, **more}, program)
        printed, offered, asked = any(word.upper() in result for result in model.results), model.offered, model.requests
    if isinstance(ended, Canary):
        return ended, ended
    if not asked:
        none = Canary(CanaryResult.STOPPED, f"it asked no model; it says: {ended}", program)
        return none, none
    if own in offered:
        shell = Canary(CanaryResult.OUTSIDE, f"its own shell tool `{own}` is still offered", program)
    else:
        shell = Canary(CanaryResult.INSIDE, f"its own shell tool `{own}` is not offered", program)
    if tool not in offered:
        return Canary(CanaryResult.STOPPED, "the shell of ringfence is not offered", program), shell
    if not printed:
        return Canary(CanaryResult.STOPPED, "its command did not run in the shell of ringfence", program), shell
    if not _recorded(script, environ):
        return Canary(CanaryResult.OUTSIDE, "its command ran WITHOUT the sandbox of ringfence", program), shell
    if not any(token.script == script for _, token in tokens("used", environ)):
        why = "its command ran in the sandbox of ringfence, but its hook was not asked"
        return Canary(CanaryResult.UNASKED, why, program), shell
    return Canary(CanaryResult.INSIDE, "its command ran in the sandbox of ringfence", program), shell


def _recorded(script: str, environ: Mapping[str, str]) -> bool:
    """Return True if the audit log has an allowed run of `script` among its newest decisions."""
    from runner.audit.decisions import deeds
    from runner.audit.log import AuditLog, log_exists, own_log_place

    place = own_log_place(environ)
    if not log_exists(place):
        return False
    with AuditLog.open_to_read(place) as log:
        for trail in deeds(log, limit=50):
            action = trail.body.get("action")
            if isinstance(action, dict) and action.get("script") == script:
                return trail.body.get("verdict") == "allow"
    return False


def _run(words: list[str], folder: str, environ: Mapping[str, str], program: str) -> "str | Canary":
    """Run an agent to its end. Return the last line of its error output, or the result if it could not be run."""
    try:
        done = subprocess.run(
            words, cwd=folder, env=dict(environ), stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Canary(CanaryResult.STOPPED, f"the agent did not end within {_SECONDS:g} s", program)
    except OSError as error:
        return Canary(CanaryResult.STOPPED, f"the agent could not be started: {error.strerror}", program)
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["nothing"]
    return f"{said[0]} (exit code {done.returncode})"


def _redirected(result: str, tool: str, argument: str) -> ScriptedCall | None:
    """Return the call of the command that a denial with `--redirect` names; None for another result."""
    found = _REDIRECTION.search(result)
    return ScriptedCall(tool, {argument: found[1], "description": "canary"}) if found else None


def agent_command(agent: str, program: str, address: str, folder: str) -> tuple[list[str], dict[str, str]]:
    """Return the words and the variables that run an agent headless with the model at `address`.

    `folder` is a temporary folder for what the agent must read.
    """
    if agent == "claude":
        quiet = ("DISABLE_TELEMETRY", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_AUTOUPDATER")
        variables = {"ANTHROPIC_BASE_URL": address, "ANTHROPIC_API_KEY": "canary", **dict.fromkeys(quiet, "1")}
        return [program, "-p", "go", "--output-format", "json"], variables
    if agent == "codex":
        provider = f'{{name="canary",base_url="{address}/v1",wire_api="responses",env_key="GUARD_CANARY_KEY"}}'
        words = [program, "exec", "--json", "--ephemeral", "--skip-git-repo-check", "--sandbox", "danger-full-access"]
        words += [
            "-c",
            'model_provider="canary"',
            "-c",
            'model="canary"',
            "-c",
            f"model_providers.canary={provider}",
            "go",
        ]
        return words, {"GUARD_CANARY_KEY": "canary"}
    # The settings of the temporary project select the key as the way to sign in, whatever the user has set.
    os.makedirs(f"{folder}/.gemini", exist_ok=True)
    settings = f"{folder}/.gemini/settings.json"
    with open(settings, "w", encoding="utf-8") as file:
        file.write('{"security": {"auth": {"selectedType": "gemini-api-key"}}}')
    variables = {
        "GOOGLE_GEMINI_BASE_URL": address,
        "GEMINI_API_KEY": "canary",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "GEMINI_CLI_SYSTEM_DEFAULTS_PATH": settings,
    }
    return [program, "-m", "gemini-2.5-flash", "--approval-mode", "yolo", "-p", "go"], variables
