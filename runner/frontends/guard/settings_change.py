"""The settings files of guarded agents, with the hook of this program and without it."""

import json
import os
import re
import shlex
import sys
from collections.abc import Mapping

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from runner.frontends.guard.hook import TIME_LIMIT
from runner.problems import Exit, Stopped

_LARGEST = 4 << 20  # bytes of one settings file
_BROKEN = "ringfence: the hook broke, so the call is denied"


@dataclass(frozen=True, slots=True)
class HookOptions:
    """The options of `--install` that the hook gets.

    Attributes:
        mode: The mode as its label; empty for that of the configuration.
        redirect: True if a command is never rewritten: it is denied, and the one to run is named.
        warm: True if a process stays between calls, so that the answers come faster.
    """

    mode: str = ""
    redirect: bool = False
    warm: bool = True


def hook_line(agent: str, options: HookOptions) -> str:
    """Return the command line of the hook, which denies if the program is missing, killed, or ends in another way."""
    words = [os.path.abspath(sys.argv[0]), "guard", "hook", agent]
    words += ["--mode", options.mode] if options.mode else []
    words += ["--redirect"] if options.redirect else []
    words += ["--warm"] if options.warm else []
    return f'{shlex.join(words)}; case $? in 0) exit 0;; 2) exit 2;; *) echo "{_BROKEN}" >&2; exit 2;; esac'


def hook_file(agent: str, scope: str, cwd: str, environ: Mapping[str, str]) -> str:
    """Return the path of the file with the hooks of `agent`, for the scope `user` or `project`."""
    from runner.state.paths import home

    own = home(environ)
    config = environ.get("XDG_CONFIG_HOME", "")
    config = config if config.startswith("/") else f"{own}/.config"
    user = {
        "claude": f"{environ.get('CLAUDE_CONFIG_DIR') or f'{own}/.claude'}/settings.json",
        "codex": f"{environ.get('CODEX_HOME') or f'{own}/.codex'}/hooks.json",
        "gemini": f"{own}/.gemini/settings.json",
        "cursor": f"{own}/.cursor/hooks.json",
        "opencode": f"{config}/opencode/plugins/ringfence-guard.js",
    }
    project = {
        "claude": ".claude/settings.local.json",
        "codex": ".codex/hooks.json",
        "gemini": ".gemini/settings.json",
        "cursor": ".cursor/hooks.json",
        "opencode": ".opencode/plugins/ringfence-guard.js",
    }
    return os.path.abspath(user[agent] if scope == "user" else f"{cwd}/{project[agent]}")


def with_hooks(agent: str, path: str, text: str | None, line: str) -> str:
    """Return the content of the file at `path` with the hooks, for its present content (None: there is no file).

    Raise Stopped if the content cannot be changed.
    """
    return plugin(line) if agent == "opencode" else _with_hooks(agent, path, text, line)


def without_hooks(agent: str, path: str, text: str) -> str | None:
    """Return the content of the file at `path` without the hooks; None if nothing of the user's is left in it."""
    if agent == "opencode":
        return None
    left = _without_hooks(agent, path, text)
    return None if left.strip() in ("{}", "") and text != left else left


def _entries(agent: str, line: str) -> dict[str, dict[str, object]]:
    """Return the entry of each event of an agent whose settings are JSON."""
    if agent == "cursor":
        entry: dict[str, object] = {"command": line, "timeout": TIME_LIMIT, "failClosed": True}
        events = ("preToolUse", "beforeShellExecution", "beforeMCPExecution", "beforeReadFile")
        return dict.fromkeys(events, entry)
    if agent == "gemini":  # its time limits are in milliseconds
        hook: dict[str, object] = {
            "type": "command",
            "name": "ringfence",
            "command": line,
            "timeout": TIME_LIMIT * 1000,
        }
        found: dict[str, object] = {"matcher": ".*", "sequential": True, "hooks": [hook]}
        return {"BeforeTool": found, "AfterTool": {"matcher": "run_shell_command", "hooks": [hook]}}
    hook = {"type": "command", "command": line, "timeout": TIME_LIMIT}
    after: dict[str, object] = {"matcher": "Bash", "hooks": [hook]}
    before: dict[str, dict[str, object]] = {"PreToolUse": {"matcher": "*", "hooks": [hook]}, "PostToolUse": after}
    return before if agent == "codex" else {**before, "PostToolUseFailure": after}


def _with_hooks(agent: str, path: str, text: str | None, line: str) -> str:
    """Return the JSON settings with the hooks of this program, each as the last entry of its event."""
    settings = _parsed(path, _without_hooks(agent, path, text)) if text is not None else {}
    if agent == "cursor":
        settings.setdefault("version", 1)
    hooks = settings.setdefault("hooks", {})
    for event, entry in _entries(agent, line).items():
        listed = hooks.setdefault(event, []) if isinstance(hooks, dict) else None
        if not isinstance(listed, list):
            raise _unknown(path, f"its `hooks.{event}` is not a list")
        listed.append(entry)
    return _dumped(settings, text)


def _without_hooks(agent: str, path: str, text: str) -> str:
    """Return the JSON settings without the hooks of this program. Lists and tables that become empty are removed."""
    settings = _parsed(path, text)
    hooks = settings.get("hooks")
    if not isinstance(hooks, dict):
        return text
    changed = False
    for event, listed in list(hooks.items()):
        if isinstance(listed, list):
            left = [entry for entry in listed if not _is_ours(agent, entry)]
            if len(left) != len(listed):
                changed = True
                hooks[event] = left
                if not left:
                    del hooks[event]
    if not changed:
        return text
    if not hooks:
        del settings["hooks"]
    return _dumped(settings, text)


def _is_ours(agent: str, entry: object) -> bool:
    """Return True if an entry of an event has only hooks of this program."""
    if not isinstance(entry, dict):
        return False
    inner = entry.get("hooks", [entry])
    return (
        isinstance(inner, list)
        and bool(inner)
        and all(isinstance(hook, dict) and is_hook_line(agent, hook.get("command")) for hook in inner)
    )


def is_hook_line(agent: str, command: object) -> bool:
    """Return True if `command` is a line that `hook_line` made for this agent."""
    return isinstance(command, str) and f" guard hook {agent}" in command and _BROKEN in command


def _parsed(path: str, text: str) -> dict[str, object]:
    try:
        found = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise _unknown(path, f"it is not plain JSON ({error})") from None
    if not isinstance(found, dict):
        raise _unknown(path, "it is not a JSON object")
    return found


def _dumped(settings: dict[str, object], text: str | None) -> str:
    """Return the settings as JSON, with the indentation and the last line break of `text`."""
    indent = re.search(r'\{\s*\n([ \t]+)"', text or "")
    end = "\n" if text is None or text.endswith("\n") or not text.strip() else ""
    return json.dumps(settings, indent=indent[1] if indent else 2, ensure_ascii=False) + end


def _unknown(path: str, why: str) -> Stopped:
    fix = "correct the file, or remove its comments, then try again"
    return Stopped(Problem(f"`{path}` cannot be changed", why, fix), Exit.FAILED)


def plugin(line: str) -> str:
    """Return the plugin of opencode, which calls the hook program before and after each tool."""
    return _PLUGIN.replace("LINE", json.dumps(line)).replace("LIMIT", str(TIME_LIMIT * 1000))


_PLUGIN = """\
// Written by `agent guard opencode --install`. `agent guard opencode --remove` deletes this file.
import { spawnSync } from "node:child_process"

const line = LINE

function ask(event, input, args, directory) {
  const call = {
    hook_event_name: event,
    session_id: input.sessionID ?? "",
    tool_use_id: input.callID ?? "",
    tool_name: input.tool,
    tool_input: args ?? {},
    cwd: directory,
  }
  const options = { input: JSON.stringify(call), encoding: "utf8", timeout: LIMIT, maxBuffer: 64 << 20 }
  const done = spawnSync("/bin/sh", ["-c", line], options)
  if (done.error || done.status !== 0) {
    throw new Error((done.stderr || "").trim() || "ringfence: the hook broke, so the call is denied")
  }
  return JSON.parse(done.stdout || "{}")
}

export const RingfenceGuard = async ({ directory }) => ({
  "tool.execute.before": async (input, output) => {
    const answer = ask("before", input, output.args, directory)
    if (answer.command) output.args.command = answer.command
  },
  "tool.execute.after": async (input, output) => {
    if (input.tool === "bash" && input.args) ask("after", input, input.args, directory)
  },
})
"""


def read_settings(path: str) -> str | None:
    """Return the text of a settings file, or None if there is none. Raise Stopped if it cannot be used."""
    from runner.text.phrases import os_reason
    from sandbox.inside.regular_file import NotRegularError, read_whole

    try:
        return read_whole(path, _LARGEST, follow=True).decode()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except NotRegularError:
        raise _unknown(path, "it is not a regular file") from None
    except OSError as error:
        raise _unknown(path, os_reason(error)) from None
    except ValueError:
        raise _unknown(path, "it is not UTF-8 text, or it is too long") from None
