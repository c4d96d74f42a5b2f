"""The hooks of a session: those of `[[hook]]` entries, of the user's other programs, and of the trusted repository."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from policy.model.frozen import dataclass
from policy.toml.schema import TomlEntry
from runner.config.hook_table import hook_texts
from runner.config.hookfiles.hook import LONGEST_TIMEOUT, Hook, HookFault, HookForm, HookKind, HookScope
from runner.config.hookfiles.hook_scripts import named_scripts
from runner.config.hookfiles.read_hooks import HOOK_CLIENTS, hook_files, personal_files
from runner.config.inventory import EntryKind, Inventory
from runner.config.server_values import pairs_in
from runner.config.settings import Settings

if TYPE_CHECKING:
    from runner.bundles.bundle import Bundle

_RIGHTS = ("hosts", "read", "write", "on_failure")  # keys that only the user's own configuration may set


@dataclass(frozen=True, slots=True)
class ConfiguredHooks:
    """The hooks of a session.

    Attributes:
        hooks: The hooks in the order of their files: the user's first.
        faults: Entries that cannot be used.
        notices: Sentences about what other programs' files contain and is not taken over.
    """

    hooks: tuple[Hook, ...] = ()
    faults: tuple[HookFault, ...] = ()
    notices: tuple[str, ...] = ()

    @property
    def any(self) -> bool:
        """Return True if there is anything to run or to report."""
        return bool(self.hooks or self.faults)


def hooks_in_copy(found: ConfiguredHooks | None, original: str, copy: str) -> ConfiguredHooks | None:
    """Return the hooks for `copy`, a copy of the workspace `original`, with every path of the workspace moved there.

    THREAT T94: a hook of a session in a copy would otherwise change the workspace itself.
    """
    if found is None:
        return None
    place = re.compile(rf"(?<![A-Za-z0-9_.-]){re.escape(original)}(?=/|\Z|[^A-Za-z0-9_.-])")

    def moved(text: str) -> str:
        return place.sub(lambda _: copy, text)

    def all_moved(texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(moved, texts))

    hooks = tuple(
        replace(
            each,
            command=moved(each.command),
            argv=all_moved(each.argv),
            read=all_moved(each.read),
            write=all_moved(each.write),
            root=moved(each.root),
        )
        for each in found.hooks
    )
    return replace(found, hooks=hooks)


def find_hooks(
    settings: Settings,
    workspace: str,
    home: str,
    trusted: Inventory | None = None,
    bundles: "Iterable[Bundle]" = (),
) -> ConfiguredHooks:
    """Return the hooks of all files and bundles. `trusted` is the inventory that the user trusts, or None.

    `workspace` and `home` are real paths.
    """
    hooks: list[Hook] = []
    faults: list[HookFault] = []
    notices: list[str] = []
    repository = {given.document.source for given in settings.layers if given.layer.came_along}
    scripts = trusted.hashes(EntryKind.HOOK) if trusted is not None else {}
    for entry in settings.entries("hook"):
        found = table_hook(entry, workspace, home, repository=entry.source in repository)
        if isinstance(found, Hook) and found.scope is HookScope.REPOSITORY:
            named = named_scripts(found, workspace)
            found = replace(found, files=tuple((path, scripts[path]) for path in named if path in scripts))
        (hooks if isinstance(found, Hook) else faults).append(found)  # type: ignore[arg-type]  # each list gets its own type
    chosen = ("hooks", "files") in settings.values
    files = list(personal_files(home, settings.names("hooks", "files") if chosen else HOOK_CLIENTS))
    hooks += (hook for bundle in bundles for hook in bundle.hooks)
    files += hook_files(trusted) if trusted is not None else ()
    for file in files:
        hooks += file.hooks
        faults += file.faults
        notices += file.left
    return ConfiguredHooks(tuple(hooks), tuple(faults), tuple(notices))


def table_hook(entry: TomlEntry, workspace: str, home: str, *, repository: bool = False) -> Hook | HookFault:
    """Return the hook of a `[[hook]]` entry, which has passed `check_hook`, or its fault."""
    values = entry.values
    source = f"~{entry.source[len(home) :]}" if home != "/" and entry.source.startswith(f"{home}/") else entry.source
    event = str(values["event"])
    if repository and (wrong := next((key for key in _RIGHTS if key in values), None)):
        why = f"`{wrong}` counts only in your own configuration; copy the hook into it"
        return HookFault(f"{source}:{entry.line}", event, why)
    timeout = values.get("timeout", 60.0)
    kind = HookKind.HTTP if "url" in values else HookKind.PROMPT if "prompt" in values else HookKind.COMMAND
    return Hook(
        event=event,
        matcher=str(values.get("matcher", "")),
        kind=kind,
        form=HookForm(str(values.get("form", HookForm.OURS))),
        scope=HookScope.REPOSITORY if repository else HookScope.USER,
        source=source,
        line=entry.line,
        argv=hook_texts(values.get("run", ())),
        command=str(values.get("command", "")),
        url=str(values.get("url", "")),
        headers=pairs_in(values.get("headers")),
        prompt=str(values.get("prompt", "")),
        model=str(values.get("model", "")),
        timeout=min(float(timeout), LONGEST_TIMEOUT) if isinstance(timeout, int | float) else 60.0,
        lenient=values.get("on_failure") == "continue",
        hosts=hook_texts(values.get("hosts", ())),
        read=tuple(_absolute(values.get("read", ()), workspace, home)),
        write=tuple(_absolute(values.get("write", ()), workspace, home)),
        condition=str(values.get("if", "")),
        background=values.get("background") is True,
        once=values.get("once") is True,
    )


def _absolute(paths: object, workspace: str, home: str) -> Iterator[str]:
    for text in paths if isinstance(paths, tuple) else ():
        path = home + text[1:] if text == "~" or text.startswith("~/") else text
        yield os.path.normpath(os.path.join(workspace, path))


def hooks_here(
    cwd: str, settings: Settings, environ: Mapping[str, str], *, unattended: bool = False
) -> ConfiguredHooks:
    """Return the hooks of a session in the folder `cwd`, a real path, for commands that ask no question.

    Raise StateError or PlaceError.
    """
    from runner.bundles.pinned import usable_bundles
    from runner.config.trust.cached import trusted_inventory
    from runner.state.paths import home
    from runner.state.workspace import workspace_at

    trusted = None if unattended else trusted_inventory(cwd, environ)
    bundles = usable_bundles(environ) if not unattended else ()
    return find_hooks(settings, workspace_at(cwd, environ), os.path.realpath(home(environ)), trusted, bundles)
