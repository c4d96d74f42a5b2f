"""Translation of the names in records of earlier versions. A record is translated when it is read; stored bytes stay.

Earlier versions named a rule by the file of its source (`policy/walk.py`, `policy/commands/git.toml:508`). The name of
a check in code is translated to the area of the check only, because the old name does not identify the check.

Earlier versions also had other names for the two sets of rights. The digest of the terms in such a record covers the
old name and is shown as recorded; it is never computed again, because a record holds no values of the environment.
"""

import re
from collections.abc import Iterable

_AREAS = {
    "policy/classify.py": "builtin:classification",
    "policy/decide.py": "builtin:decision",
    "policy/expand.py": "builtin:word-expansion",
    "policy/extra.py": "builtin:escalation",
    "policy/terms.py": "builtin:rights",
    "policy/walk.py": "builtin:shell-syntax",
    "runner/sandbox_show.py": "builtin:sandbox-show",
}
_RIGHTS = {"look": "read-only", "work": "workspace-write"}
_OLD_COMMANDS, _COMMANDS = "policy/commands/", "command:"
_OLD_COMMAND = re.compile(r"policy/commands/([\w-]+)\.toml:([0-9]+)", re.ASCII)


def current_rule(name: str) -> str:
    """Return the current text form of a rule reference from a record."""
    found = _OLD_COMMAND.fullmatch(name)
    return f"{_COMMANDS}{found[1]}:{found[2]}" if found else _AREAS.get(name, name)


def rule_beginnings(wanted: Iterable[str]) -> tuple[str, ...]:
    """Return `wanted`, which are beginnings of old or current rule references, with their other spellings added."""
    beginnings: dict[str, None] = {}
    for start in wanted:
        beginnings[start] = None
        for old, new in _AREAS.items():
            if old.startswith(start):
                beginnings[new] = None
            if new.startswith(start):
                beginnings[old] = None
        if start.startswith(_OLD_COMMANDS):
            beginnings[_COMMANDS + start.removeprefix(_OLD_COMMANDS).replace(".toml", ":").replace("::", ":")] = None
        elif _OLD_COMMANDS.startswith(start):
            beginnings[_COMMANDS] = None
        if start.startswith(_COMMANDS):
            name, colon, line = start.removeprefix(_COMMANDS).partition(":")
            beginnings[f"{_OLD_COMMANDS}{name}{f'.toml:{line}' if colon else ''}"] = None
        elif _COMMANDS.startswith(start):
            beginnings[_OLD_COMMANDS] = None
    return tuple(beginnings)


def current(body: dict[str, object]) -> dict[str, object]:
    """Replace names of earlier versions in the body of a record by current names, and return the body. Never raises."""
    for name in ("reasons", "rules"):
        reasons = body.get(name)
        if isinstance(reasons, list):
            body[name] = [_reason(each) for each in reasons]
    if "because" in body:
        body["because"] = _reason(body["because"])
    terms = body.get("terms")
    if isinstance(terms, dict) and isinstance(rights := terms.get("rights"), str):
        terms["rights"] = _RIGHTS.get(rights, rights)
    return body


def _reason(reason: object) -> object:
    if isinstance(reason, dict) and isinstance(rule := reason.get("rule"), str):
        reason["rule"] = current_rule(rule)
    return reason
