"""The settings for a copy of a folder, made from the settings for the folder."""

import os
from dataclasses import replace
from functools import lru_cache

from policy.model.glob import glob
from policy.model.profile import PermissionRule
from policy.model.tier import Ruling
from policy.permission.paths import parts_of
from policy.toml.schema import KeyPath, Value
from runner.config import Settings

_UNDO_OFF: dict[KeyPath, Value] = {("undo", "enabled"): False, ("undo", "required"): False}


def map_settings(settings: Settings, original: str, copy: str, home: str) -> Settings:
    """Return the settings for `copy`, a copy of the folder `original`. All three paths are real and absolute.

    Every path rule about the original applies to the copy too, the original itself is secret, and nothing is recorded
    for `agent undo`, because the copy is temporary.
    """
    profile = settings.profile
    rules = tuple(_rule(rule, original, copy, home) for rule in profile.permissions)
    # THREAT: the original stays unreadable even if a mode, a grant or an answer allows paths outside the workspace.
    secret = (*profile.secret_paths, *_moved(profile.secret_paths, original, copy, home), original)
    return replace(
        settings,
        profile=replace(profile, permissions=rules, secret_paths=tuple(dict.fromkeys(secret))),
        values={**settings.values, **_UNDO_OFF},
        original=original,
    )


def _rule(rule: PermissionRule, original: str, copy: str, home: str) -> PermissionRule:
    loose = rule.verdict is not Ruling.ALLOW
    read, write = (_moved(paths, original, copy, home, loose=loose) for paths in (rule.read, rule.write))
    if not read and not write:
        return rule
    return replace(rule, read=(*rule.read, *read), write=(*rule.write, *write))


def _moved(patterns: tuple[str, ...], original: str, copy: str, home: str, *, loose: bool = True) -> tuple[str, ...]:
    """Return the patterns about the copy that correspond to absolute patterns about the original.

    With `loose`, for denials, upper and lower case are equal, and a folder includes everything inside.
    """
    names = parts_of(original, "", "")
    names = tuple(name.casefold() for name in names) if loose else names
    moved: dict[str, None] = {}
    for pattern in patterns:
        if not pattern.startswith(("/", "~/")):
            continue  # a relative pattern already applies to any workspace
        for parts in _readings(parts_of(pattern, original, home)):
            for rest in _rests(names, parts, loose):
                end = "/" if rest and pattern.endswith("/") else ""
                moved["/".join((copy, *rest)) + end] = None
    return tuple(moved)


def _readings(parts: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Return the pattern, and the pattern with symbolic links resolved in the part before the first wildcard."""
    certain = next((index for index, part in enumerate(parts) if "*" in part or "?" in part), len(parts))
    real = parts_of(os.path.realpath("/" + "/".join(parts[:certain])), "", "")
    return tuple(dict.fromkeys((parts, (*real, *parts[certain:]))))


@lru_cache(maxsize=1024)
def _rests(names: tuple[str, ...], parts: tuple[str, ...], loose: bool) -> tuple[tuple[str, ...], ...]:
    """Return the rest of a pattern after its beginning has matched all of `names`, for each possible match."""
    if not names:
        return (parts,)
    if not parts:
        return ((),) if loose else ()  # the pattern is a folder above the original
    if parts[0] == "**":
        return tuple(dict.fromkeys((*_rests(names[1:], parts, loose), *_rests(names, parts[1:], loose))))
    first = parts[0].casefold() if loose else parts[0]
    return _rests(names[1:], parts[1:], loose) if glob(names[0], first) else ()
