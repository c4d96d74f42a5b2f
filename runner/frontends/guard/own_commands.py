"""The commands of hooks and tool servers in the user's own settings of Claude Code, which its shell prefix passes on.

The files of a repository do not count: a hook or a server that a repository configures is judged like any command.
"""

import json
import os
import shlex
from collections.abc import Iterator, Mapping

from runner.frontends.guard.settings_change import claude_folder, read_settings

_MANAGED = ("/etc/claude-code/managed-settings.json", "/etc/claude-code/managed-mcp.json")
_ROOT = "${CLAUDE_PLUGIN_ROOT}"


def own_command(given: str, environ: Mapping[str, str]) -> list[str] | None:
    """Return the words to execute for a command that the user's own settings name, else None.

    A hook must be the same text. A tool server must have the same words, and runs without a shell.
    """
    try:
        words = shlex.split(given)
    except ValueError:
        words = []
    for command, args in _commands(environ):
        if args is None and command == given:
            return ["/bin/sh", "-c", given]
        if words and words == [command, *(args or ())]:
            return words
    return None


def _commands(environ: Mapping[str, str]) -> Iterator[tuple[str, list[str] | None]]:
    """Yield each command in the user's settings, with its arguments if it is that of a tool server."""
    from runner.state.paths import home

    folder = claude_folder(environ)
    for path in (f"{folder}/settings.json", *_MANAGED):
        yield from _within(_json(path))
    own = environ.get("CLAUDE_CONFIG_DIR")
    state = _json(f"{own}/.claude.json" if own else f"{home(environ)}/.claude.json")
    if isinstance(state, dict):
        projects = state.get("projects")
        rows = list(projects.values()) if isinstance(projects, dict) else []
        for row in (state, *rows):
            yield from _within(row.get("mcpServers") if isinstance(row, dict) else None)
    # THREAT T200: a sandboxed command can write in the workspace, so a plugin there counts as part of the repository.
    places = [os.path.realpath(place) for place in (environ.get("CLAUDE_PROJECT_DIR") or "", ".") if place]
    for root in _plugins(_json(f"{folder}/plugins/installed_plugins.json")):
        if any(f"{os.path.realpath(root)}/".startswith(f"{place.rstrip('/')}/") for place in places):
            continue
        for name in ("hooks/hooks.json", ".mcp.json", ".claude-plugin/plugin.json"):
            for command, args in _within(_json(f"{root}/{name}")):
                yield command, args
                if args is not None:  # Claude Code replaces the variable of a server itself
                    yield command.replace(_ROOT, root), [arg.replace(_ROOT, root) for arg in args]


def _within(value: object) -> Iterator[tuple[str, list[str] | None]]:
    if isinstance(value, list):
        for each in value:
            yield from _within(each)
    if not isinstance(value, dict):
        return
    command, args = value.get("command"), value.get("args")
    if isinstance(command, str) and command:
        yield command, None
        words = args if isinstance(args, list) else []
        if all(isinstance(word, str) for word in words):
            yield command, words
    for each in value.values():
        yield from _within(each)


def _plugins(value: object) -> Iterator[str]:
    """Yield the folders of the installed plugins."""
    if isinstance(value, dict):
        path = value.get("installPath")
        if isinstance(path, str) and path.startswith("/"):
            yield path
        value = list(value.values())
    for each in value if isinstance(value, list) else ():
        yield from _plugins(each)


def _json(path: str) -> object:
    """Return the content of a JSON file; None if there is none, or if it cannot be used: nothing of it passes then."""
    from runner.problems import Stopped

    try:
        return json.loads(read_settings(path) or "null")
    except (ValueError, RecursionError, Stopped):
        return None
