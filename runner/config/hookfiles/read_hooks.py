"""The files that contain hooks: those of the repository, which need trust, and the user's own."""

import os
from collections.abc import Mapping
from dataclasses import replace

from policy.toml.schema import TomlError, parse
from runner.config.hookfiles.hook import Hook, HookFault, HookFile, HookForm, HookScope
from runner.config.hookfiles.hook_scripts import named_scripts
from runner.config.hookfiles.json_hooks import json_hooks, toml_hooks
from runner.config.inventory import EntryKind, Inventory
from sandbox.inside.regular_file import read_whole

# The files of a repository, and the program that each is for.
HOOK_FILES: Mapping[str, HookForm] = {
    ".claude/settings.json": HookForm.CLAUDE,
    ".claude/settings.local.json": HookForm.CLAUDE,
    ".codex/hooks.json": HookForm.CODEX,
    ".codex/config.toml": HookForm.CODEX,
    ".gemini/settings.json": HookForm.GEMINI,
}
# The files of the user, below the home.
OWN_HOOK_FILES: Mapping[str, HookForm] = {
    ".claude/settings.json": HookForm.CLAUDE,
    ".codex/hooks.json": HookForm.CODEX,
    ".codex/config.toml": HookForm.CODEX,
    ".gemini/settings.json": HookForm.GEMINI,
}
HOOK_CLIENTS = (HookForm.CLAUDE.value, HookForm.CODEX.value, HookForm.GEMINI.value)
_MOST = 1 << 20  # bytes of a file
_WORDS = ("command", "url", "prompt")  # keys of an entry with what it runs, sends to or asks


def read_hooks(data: bytes, path: str, form: HookForm, scope: HookScope) -> HookFile:
    """Return the hooks of one file. A file that cannot be used has one fault for all of its hooks."""
    if b"hooks" not in data:
        return HookFile(path)
    try:
        return toml_hooks(data, path, scope) if path.endswith(".toml") else json_hooks(data, path, form, scope)
    except ValueError as error:
        return HookFile(path, faults=(HookFault(f"{path}:1", "", str(error)),))


def contains_hooks(path: str, data: bytes) -> bool:
    """Return False if the file of a repository certainly configures no hook, such as settings of another kind."""
    found = read_hooks(data, path, HOOK_FILES[path], HookScope.REPOSITORY)
    return bool(found.hooks or found.faults)


def scripts_of(path: str, data: bytes, workspace: str) -> tuple[str, ...]:
    """Return the paths in the repository that the hooks of one of its files name as programs or scripts."""
    found = read_hooks(data, path, HOOK_FILES[path], HookScope.REPOSITORY)
    return tuple(name for hook in found.hooks for name in named_scripts(hook, workspace))


def scripts_of_table(data: bytes, workspace: str) -> tuple[str, ...]:
    """Return the paths in the repository that the `[[hook]]` entries of its own configuration name as scripts."""
    return tuple(name for hook in table_hooks_of(data, "") for name in named_scripts(hook, workspace))


def table_hooks_of(data: bytes, path: str) -> tuple[Hook, ...]:
    """Return the `[[hook]]` entries of a repository's configuration with their commands alone, for lists.

    The entries are not checked: a faulty file is reported when the configuration is loaded.
    """
    try:
        document = parse(data.decode("utf-8-sig"), path)
    except (TomlError, UnicodeDecodeError):
        return ()
    entries = document.get("hook")
    found = []
    for each in entries if isinstance(entries, list) else ():
        if isinstance(each, dict):
            run = each.get("run")
            argv = tuple(word for word in run if isinstance(word, str)) if isinstance(run, list) else ()
            words = next((text for key in _WORDS if isinstance(text := each.get(key), str)), "")
            matcher = str(each.get("matcher", ""))
            found.append(Hook(str(each.get("event", "")), matcher, source=path, argv=argv, command=words))
    return tuple(found)


def hook_files(inventory: Inventory) -> tuple[HookFile, ...]:
    """Return the files of a repository that configure hooks. Each hook has the hashes of the scripts that it names."""
    found = []
    hashes = {each.path: each.sha256 for each in inventory.entries if not each.refused}
    scripts = inventory.hashes(EntryKind.HOOK)
    for path, form in HOOK_FILES.items():
        if path not in hashes:
            continue
        file = read_hooks(inventory.contents[path], path, form, HookScope.REPOSITORY)
        if file.hooks or file.faults:
            hooks = tuple(replace(each, files=_files(each, scripts, inventory.workspace)) for each in file.hooks)
            found.append(replace(file, hooks=hooks))
    return tuple(found)


def _files(hook: Hook, scripts: Mapping[str, str], workspace: str) -> tuple[tuple[str, str], ...]:
    """Return the trusted files that a hook may run: those it names, and the others of the same folder of hooks."""
    named = [path for path in named_scripts(hook, workspace) if path in scripts]
    folders = {f"{os.path.dirname(path)}/" for path in named if "/hooks/" in path}
    beside = [path for path in scripts if path not in named and any(path.startswith(each) for each in folders)]
    return tuple((path, scripts[path]) for path in (*named, *beside))


def personal_files(home: str, clients: tuple[str, ...] = HOOK_CLIENTS) -> tuple[HookFile, ...]:
    """Return the user's own files of these clients that configure hooks. A file that cannot be read is a fault."""
    found = []
    for name, form in OWN_HOOK_FILES.items():
        path = os.path.join(home, name)
        if form.value not in clients or not os.path.lexists(path):
            continue
        try:
            data = read_whole(path, _MOST, follow=True)
        except (OSError, ValueError) as error:
            found.append(HookFile(f"~/{name}", faults=(HookFault(f"~/{name}:1", "", f"it cannot be read: {error}"),)))
            continue
        file = read_hooks(data, f"~/{name}", form, HookScope.USER)
        if file.hooks or file.faults:
            found.append(file)
    return tuple(found)
