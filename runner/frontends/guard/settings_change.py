"""The settings files of guarded agents, with the hook of this program and without it."""

import hashlib
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
VARIABLE = "CLAUDE_CODE_SHELL_PREFIX"
_PREFIX_NAME = "claude-shell-"
_BROKEN = "ringfence: the hook broke, so the call is denied"


@dataclass(frozen=True, slots=True)
class HookOptions:
    """The options of `--install` that the hook gets.

    Attributes:
        mode: The mode as its label; empty for that of the configuration.
        redirect: True if a command is never rewritten: it is denied, and the one to run is named.
        warm: True if a process stays between calls, so that the answers come faster.
        hooks_only: True if Claude Code gets no shell prefix.
        replace_shell: True if the shell tool of Codex or Gemini CLI is switched off and that of this program offered.
    """

    mode: str = ""
    redirect: bool = False
    warm: bool = True
    hooks_only: bool = False
    replace_shell: bool = False


def hook_line(agent: str, options: HookOptions) -> str:
    """Return the command line of the hook, which denies if the program is missing, killed, or ends in another way."""
    words = [os.path.abspath(sys.argv[0]), "guard", "hook", agent]
    words += ["--mode", options.mode] if options.mode else []
    words += ["--redirect"] if options.redirect else []
    words += ["--warm"] if options.warm else []
    words += ["--replaced"] if options.replace_shell else []
    return f'{shlex.join(words)}; case $? in 0) exit 0;; 2) exit 2;; *) echo "{_BROKEN}" >&2; exit 2;; esac'


def shell_line(options: HookOptions) -> str:
    """Return the words that run the shell prefix of Claude Code, up to its argument."""
    words = [os.path.abspath(sys.argv[0]), "guard", "shell", "claude"]
    return shlex.join([*words, *(["--mode", options.mode] if options.mode else []), "--"])


def prefix_program(options: HookOptions) -> str:
    """Return the program that Claude Code runs before each command. It passes on the hook of this program itself."""
    line = shlex.quote(hook_line("claude", options))
    return _PREFIX.replace("LINE", line).replace("PROGRAM", shell_line(options))


_PREFIX = """\
#!/bin/sh
# Written by `agent guard claude --install`. `agent guard claude --remove` deletes this file.
[ "$#" -eq 1 ] && [ "$1" = LINE ] && exec /bin/sh -c "$1"
exec PROGRAM "$@"
"""


def prefix_file(settings: str, environ: Mapping[str, str]) -> str:
    """Return the path of the shell prefix for the settings file `settings` of Claude Code."""
    from runner.frontends.guard.tokens import guard_folder

    digest = hashlib.sha256(settings.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{guard_folder(environ)}/{_PREFIX_NAME}{digest}"


def claude_folder(environ: Mapping[str, str]) -> str:
    """Return the folder with the user's settings of Claude Code."""
    from runner.state.paths import home

    return environ.get("CLAUDE_CONFIG_DIR") or f"{home(environ)}/.claude"


def hook_file(agent: str, scope: str, cwd: str, environ: Mapping[str, str]) -> str:
    """Return the path of the file with the hooks of `agent`, for the scope `user` or `project`."""
    from runner.state.paths import home

    own = home(environ)
    config = environ.get("XDG_CONFIG_HOME", "")
    config = config if config.startswith("/") else f"{own}/.config"
    user = {
        "claude": f"{claude_folder(environ)}/settings.json",
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


def with_hooks(
    agent: str, path: str, text: str | None, options: HookOptions, prefix: str, environ: Mapping[str, str]
) -> str:
    """Return the content of the file at `path` with the hooks, for its present content (None: there is no file).

    `prefix` is the program that Claude Code gets as its shell prefix, or empty. Raise Stopped if the content cannot be
    changed.
    """
    if agent == "opencode":
        return plugin(hook_line(agent, options))
    return _with_hooks(agent, path, text, options, prefix, environ)


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


def _with_hooks(
    agent: str, path: str, text: str | None, options: HookOptions, prefix: str, environ: Mapping[str, str]
) -> str:
    """Return the JSON settings with the hooks of this program, each as the last entry of its event."""
    settings = _parsed(path, _without_hooks(agent, path, text)) if text is not None else {}
    if agent == "cursor":
        settings.setdefault("version", 1)
    hooks = settings.setdefault("hooks", {})
    for event, entry in _entries(agent, hook_line(agent, options)).items():
        listed = hooks.setdefault(event, []) if isinstance(hooks, dict) else None
        if not isinstance(listed, list):
            raise _unknown(path, f"its `hooks.{event}` is not a list")
        listed.append(entry)
    if agent == "gemini" and options.replace_shell:
        from runner.frontends.guard.replaced_shell import with_gemini_shell

        with_gemini_shell(path, settings, options.mode, environ)
    if prefix:
        variables = settings.setdefault("env", {})
        if not isinstance(variables, dict):
            raise _unknown(path, "its `env` is not an object")
        if VARIABLE in variables:
            what, why = f"`{path}` cannot be changed", f"it has another `{VARIABLE}` already"
            raise Stopped(Problem(what, why, "remove it, or add --hooks-only to do without it"), Exit.FAILED)
        variables[VARIABLE] = prefix
    return _dumped(settings, text)


def shell_prefix_of(text: str | None) -> str | None:
    """Return the shell prefix in the settings of Claude Code, or None. Text that is not valid JSON has none."""
    try:
        settings = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return None
    variables = settings.get("env") if isinstance(settings, dict) else None
    found = variables.get(VARIABLE) if isinstance(variables, dict) else None
    return found if isinstance(found, str) else None


def _without_prefix(settings: dict[str, object]) -> bool:
    """Remove the shell prefix of this program from the settings. Return True if there was one."""
    variables = settings.get("env")
    found = variables.get(VARIABLE) if isinstance(variables, dict) else None
    if not isinstance(variables, dict) or not isinstance(found, str):
        return False
    if not os.path.basename(found).startswith(_PREFIX_NAME):
        return False
    del variables[VARIABLE]
    if not variables:
        del settings["env"]
    return True


def _without_hooks(agent: str, path: str, text: str) -> str:
    """Return the JSON settings without the hooks of this program. Lists and tables that become empty are removed."""
    settings = _parsed(path, text)
    changed = agent == "claude" and _without_prefix(settings)
    if agent == "gemini":
        from runner.frontends.guard.replaced_shell import without_gemini_shell

        changed = without_gemini_shell(settings)
    hooks = settings.get("hooks")
    if not isinstance(hooks, dict):
        return _dumped(settings, text) if changed else text
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
