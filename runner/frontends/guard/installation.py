"""Installation and removal of the hooks of this program in the settings of a guarded agent.

The user sees each change as a diff first. What was written is recorded with the content before it, so that a removal
restores the files byte for byte if nobody changed them meanwhile, and takes out exactly the hooks otherwise.
"""

import difflib
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from runner.frontends.guard.codex_trust import trust_entries, with_trust, without_trust
from runner.frontends.guard.replaced_shell import POLICY, policy_file, with_codex_shell, without_codex_shell
from runner.frontends.guard.settings_change import (
    HookOptions,
    hook_file,
    prefix_file,
    prefix_program,
    read_settings,
    with_hooks,
    without_hooks,
)
from runner.frontends.guard.tokens import guard_folder
from runner.problems import Exit, Stopped
from runner.state.json_file import StateFile
from runner.text.phrases import os_reason


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A settings file as this program wrote it.

    Attributes:
        path: The path of the file.
        before: The content before, or None if there was no file.
        sha256: The hash of the content that was written.
        keys: The keys of what was added to the configuration of Codex: those of trusted hooks, and of the shell.
    """

    path: str
    before: str | None
    sha256: str
    keys: tuple[str, ...] = ()

    def matches(self, text: str) -> bool:
        """Return True if `text` is what this program wrote."""
        return _sha256(text) == self.sha256


@dataclass(frozen=True, slots=True)
class SettingsChange:
    """The change of one file: its content now and afterwards. None stands for no file."""

    path: str
    now: str | None
    then: str | None
    before: str | None = None
    keys: tuple[str, ...] = ()
    mode: int = 0o600  # of a new file

    def diff(self) -> str:
        """Return the change as a unified diff; empty if nothing changes."""
        old, new = ((text or "").splitlines(keepends=True) for text in (self.now, self.then))
        names = ("/dev/null" if self.now is None else self.path, "/dev/null" if self.then is None else self.path)
        lines = difflib.unified_diff(old, new, *names)
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


_Written = Mapping[str, tuple[WrittenFile, ...]]  # by agent and the path of its hook file


def planned_installation(
    agent: str, scope: str, options: HookOptions, cwd: str, environ: Mapping[str, str]
) -> tuple[SettingsChange, ...]:
    """Return the changes that install the hooks. Raise Stopped if a file cannot be changed."""
    path = hook_file(agent, scope, cwd, environ)
    now = read_settings(path)
    before = _without(agent, path, now, environ)
    prefix = prefix_file(path, environ) if agent == "claude" else ""
    wants_prefix = bool(prefix) and not options.hooks_only
    if wants_prefix and (" -" in prefix or "\n" in prefix):
        why = "Claude Code would read a part of its path as an option"
        fix = "set RINGFENCE_STATE_DIR to another folder, or add --hooks-only"
        raise Stopped(Problem(f"`{prefix}` cannot be the shell prefix", why, fix), Exit.FAILED)
    then = with_hooks(agent, path, before, options, prefix if wants_prefix else "", environ)
    changes = [SettingsChange(path, now, then, before)]
    if prefix:
        program = read_settings(prefix)
        text = prefix_program(options) if wants_prefix else None
        if program is not None or text is not None:
            changes.insert(0, SettingsChange(prefix, program, text, mode=0o700))  # first: the settings name it
    if agent == "codex":
        entries = trust_entries(path, then, environ)
        config = codex_config(environ)
        now = read_settings(config)
        kept = _without_trust(agent, path, config, now, environ)
        after, keys = with_trust(config, kept, entries) if entries else kept, tuple(entries)
        if options.replace_shell:
            after, added = with_codex_shell(config, after, options.mode, environ)
            keys += added
        if keys or after != now:
            changes.append(SettingsChange(config, now, after, kept, keys))
    if agent == "gemini":
        changes += _policy_change(scope, environ, POLICY if options.replace_shell else None)
    return tuple(changes)


def _policy_change(scope: str, environ: Mapping[str, str], then: str | None) -> list[SettingsChange]:
    """Return the change of the rule that denies the shell tool of Gemini CLI, which only the user's scope has."""
    path = policy_file(environ)
    now = read_settings(path) if scope == "user" else None
    return [SettingsChange(path, now, then)] if now is not None or then is not None else []


def planned_removal(agent: str, scope: str, cwd: str, environ: Mapping[str, str]) -> tuple[SettingsChange, ...]:
    """Return the changes that remove the hooks."""
    path = hook_file(agent, scope, cwd, environ)
    now = read_settings(path)
    changes = [SettingsChange(path, now, _without(agent, path, now, environ))]
    if agent == "claude":
        prefix = prefix_file(path, environ)
        changes.append(SettingsChange(prefix, read_settings(prefix), None))
    if agent == "gemini":
        changes += _policy_change(scope, environ, None)
    if agent == "codex":
        config = codex_config(environ)
        text = read_settings(config)
        changes.append(SettingsChange(config, text, _without_trust(agent, path, config, text, environ)))
    return tuple(change for change in changes if change.now != change.then)


def apply_changes(
    agent: str,
    scope: str,
    changes: tuple[SettingsChange, ...],
    cwd: str,
    environ: Mapping[str, str],
    *,
    installed: bool,
) -> None:
    """Write the files, and record what was written. Raise Stopped or StateError.

    The record is written first: a removal after an interrupted installation finds what it needs.
    """
    name = _name(agent, hook_file(agent, scope, cwd, environ))
    rows = tuple(
        WrittenFile(change.path, change.before, _sha256(change.then), change.keys)
        for change in changes
        if change.then is not None
    )

    def edit(before: _Written) -> tuple[_Written, None]:
        rest = {key: value for key, value in before.items() if key != name}
        return ({**rest, name: rows} if installed else rest), None

    if installed:
        _store(environ).change(edit)
    for change in changes:
        if read_settings(change.path) != change.now:
            why, fix = "another program changed it meanwhile", "try again"
            raise Stopped(Problem(f"`{change.path}` was not changed", why, fix), Exit.FAILED)
        _write(change)
    if not installed:
        _store(environ).change(edit)


def written(agent: str, scope: str, cwd: str, environ: Mapping[str, str]) -> tuple[WrittenFile, ...]:
    """Return the files that this program wrote for an agent and a scope."""
    return _store(environ).read().value.get(_name(agent, hook_file(agent, scope, cwd, environ)), ())


def _name(agent: str, path: str) -> str:
    return f"{agent}:{path}"


def codex_config(environ: Mapping[str, str]) -> str:
    """Return the path of the user's configuration of Codex, which holds the trust in hooks of every scope."""
    return os.path.join(os.path.dirname(hook_file("codex", "user", "/", environ)), "config.toml")


def _row(agent: str, hooks: str, path: str, environ: Mapping[str, str]) -> WrittenFile | None:
    rows = _store(environ).read().value.get(_name(agent, hooks), ())
    return next((row for row in rows if row.path == path), None)


def _without(agent: str, path: str, now: str | None, environ: Mapping[str, str]) -> str | None:
    """Return the content without the hooks: the one before if nobody changed the file, else without its hooks."""
    row = _row(agent, path, path, environ)
    if row is not None and now is not None and _sha256(now) == row.sha256:
        return row.before
    return without_hooks(agent, path, now) if now is not None else None


def _without_trust(agent: str, hooks: str, path: str, now: str | None, environ: Mapping[str, str]) -> str | None:
    row = _row(agent, hooks, path, environ)
    if row is None or now is None:
        return now
    if _sha256(now) == row.sha256:
        return row.before
    return without_codex_shell(path, without_trust(path, now, row.keys), row.keys)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _write(change: SettingsChange) -> None:
    """Write one file as a whole, with the mode that it has. Other programs see the old content or the new one."""
    path = os.path.realpath(change.path)
    fresh = f"{path}.ringfence-{os.getpid()}"
    try:
        if change.then is None:
            if change.now is not None:
                os.unlink(path)
            return
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        mode = os.stat(path).st_mode & 0o777 if change.now is not None else change.mode
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        with open(handle, "wb") as file:
            os.fchmod(handle, mode)
            file.write(change.then.encode())
            file.flush()
            os.fsync(handle)
        os.replace(fresh, path)
    except OSError as error:
        if os.path.lexists(fresh):
            os.unlink(fresh)
        fix = "check who owns the folder"
        raise Stopped(Problem(f"`{change.path}` was not changed", os_reason(error), fix), Exit.FAILED) from None


def _store(environ: Mapping[str, str]) -> StateFile[_Written]:
    path = Path(guard_folder(environ)) / "installed.json"
    return StateFile(path, "the list of installed hooks", 1, dict, _parsed, _dump)


def _parsed(content: dict[str, object], version: int) -> _Written:
    found: dict[str, tuple[WrittenFile, ...]] = {}
    for name, rows in content.items():
        if not isinstance(rows, list):
            raise ValueError("an entry is not a list")
        found[name] = tuple(_parsed_row(row) for row in rows)
    return found


def _parsed_row(row: object) -> WrittenFile:
    if not isinstance(row, dict):
        raise ValueError("a file is not an object")
    path, before, sha256, keys = row.get("path"), row.get("before"), row.get("sha256"), row.get("keys")
    texts = isinstance(path, str) and isinstance(sha256, str) and (before is None or isinstance(before, str))
    if not texts or not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise ValueError("a file has not the fields of this version")
    return WrittenFile(str(path), before, str(sha256), tuple(keys))


def _dump(value: _Written) -> dict[str, object]:
    return {
        name: [{"path": row.path, "before": row.before, "sha256": row.sha256, "keys": list(row.keys)} for row in rows]
        for name, rows in value.items()
    }
