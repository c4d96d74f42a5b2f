"""The parser of `[[rule]]`: TOML to PermissionRules, strictly."""

from collections.abc import Mapping
from datetime import date
from typing import TypeVar

from policy.model.assessment import RuleKind, RuleRef
from policy.model.profile import REST, Layer, PermissionRule, Source, Tool
from policy.model.tier import Ruling, Tier
from policy.model.tool_arguments import bounds_folder
from policy.model.tool_names import SERVER, names_server_tools, names_tool
from policy.toml.profile import patterns, texts
from policy.toml.schema import TomlDocument, TomlEntry, ValueType, read, similar_name

# fmt: off
KEYS: Mapping[str, ValueType] = {
    "verdict":   ValueType.TEXT,
    "run":       ValueType.WORDS,
    "family":    ValueType.TEXT,
    "rights":    ValueType.TEXTS,
    "tool":      ValueType.TEXTS,
    "arguments": ValueType.TABLE,
    "values":    ValueType.VALUES,
    "below":     ValueType.TABLE,
    "only":      ValueType.TEXTS,
    "read":      ValueType.TEXTS,
    "write":     ValueType.TEXTS,
    "host":      ValueType.TEXTS,
    "tier":      ValueType.TEXTS,
    "source":    ValueType.TEXTS,
    "why":       ValueType.TEXT,
    "until":     ValueType.DATE,
}
# fmt: on
LISTS: Mapping[str, Mapping[str, ValueType]] = {"rule": KEYS}

_CONDITIONS = ("arguments", "values", "below", "only")  # keys about the arguments of calls

MOST = 1000  # rules of one file: every action is compared with all of them

_Named = TypeVar("_Named")


def read_permissions(text: str, source: str, layer: Layer) -> tuple[PermissionRule, ...]:
    """Return the rules of a text that contains only `[[rule]]` tables. Raises TomlError."""
    return permissions(read(text, source, {}, LISTS), layer)


def permissions(document: TomlDocument, layer: Layer) -> tuple[PermissionRule, ...]:
    """Return every `[[rule]]` of one file. Raises TomlError, with file and line, for an invalid one.

    `permission.lint.check` finds the rules that can never take effect.
    """
    entries = [entry for entry in document.entries if entry.name == "rule"]
    if len(entries) > MOST:
        raise entries[MOST].error_at("", f"a file holds at most {MOST} rules", "merge or remove rules")
    return tuple(_rule(entry, layer) for entry in entries)


def _rule(entry: TomlEntry, layer: Layer) -> PermissionRule:
    label = entry.values.get("verdict")
    if label is None:
        raise entry.error_at("", "`verdict` is missing", 'add verdict = "allow", "try", "ask" or "deny"')
    tries = label == "try"
    verdict = Ruling.ASK if tries else {ruling.name.lower(): ruling for ruling in Ruling}.get(str(label))
    if verdict is None:
        raise entry.error_at("verdict", f"there is no verdict `{label}`", "write `allow`, `try`, `ask` or `deny`")
    words = patterns(entry.values.get("run", ()))
    more = words[-1:] == ((REST,),)
    words = words[:-1] if more else words
    why, until = entry.values.get("why", ""), entry.values.get("until")
    rule = PermissionRule(
        verdict=verdict,
        ref=RuleRef(RuleKind.USER, entry.source, entry.line),
        layer=layer,
        run=words,
        more=more,
        tool=_tools(entry),
        arguments=_pairs(entry, "arguments"),
        values=_pairs(entry, "values"),
        below=tuple((name, f"{folder.rstrip('/')}/") for name, folder in _pairs(entry, "below")),
        only=texts(entry.values["only"]) if "only" in entry.values else None,
        read=_list(entry, "read"),
        write=_list(entry, "write"),
        host=tuple(map(_host, _list(entry, "host"))),
        tier=_named(entry, "tier", {tier.label: tier for tier in Tier}),
        source=_named(entry, "source", {source.value: source for source in Source}),
        why=why.strip() if isinstance(why, str) else "",
        until=until if isinstance(until, date) else None,
        family=str(entry.values.get("family", "")),
        rights=_list(entry, "rights"),
        tries=tries,
    )
    if "run" in entry.values and not rule.run:
        fix = 'name the program, such as run = ["npm", "test", "**"], or use tool = ["bash"] for every command'
        raise entry.error_at("run", "the list names no program", fix)
    if rule.limits_arguments:
        _check_limits(entry, rule)
    if rule.rights:
        _check_rights(entry, rule)
    if tries:
        _check_try(entry)
    if "family" in entry.values:
        _check_family(entry, rule)
    if not any((rule.run, rule.tool, rule.read, rule.write, rule.host, rule.tier)):
        fix = "add one of `run`, `tool`, `read`, `write`, `host`, `tier`"
        raise entry.error_at("", "the rule names no action", fix)
    if verdict is not Ruling.ALLOW and not rule.why:
        raise entry.error_at("", "`why` is missing", 'explain the rule to a user whom it stops: why = "..."')
    if any(not char.isprintable() for char in rule.why):
        raise entry.error_at("why", "it is not one line of printable text", "write it as one line")
    return rule


def _check_limits(entry: TomlEntry, rule: PermissionRule) -> None:
    """Raise TomlError unless the rule allows calls of servers' tools, and bounds each of their arguments once."""
    key = next(key for key in ("values", "below", "only") if key in entry.values)
    if rule.verdict is not Ruling.ALLOW:
        why = "only a rule that allows can bound arguments in this way: an argument may have many spellings"
        raise entry.error_at(key, why, 'use patterns, such as arguments = { repo = "acme/*" }')
    if rule.run or rule.read or rule.write or rule.host or not rule.tool or not all(map(names_server_tools, rule.tool)):
        why = "only a call of a tool of a server has these arguments"
        raise entry.error_at(key, why, f'name only tools of servers, such as tool = ["{SERVER}github__*"]')
    if wrong := next((folder for _, folder in rule.below if not bounds_folder(folder)), None):
        fix = "name a folder without `.`, `..` and patterns, or the start of all addresses of a host: `https://x.org/`"
        raise entry.error_at("below", f"`{wrong}` is not one folder", fix)
    named = [name for name, _ in (*rule.arguments, *rule.values, *rule.below)]
    if rule.only is not None and (missing := [name for name in named if name not in rule.only]):
        why = f"a call must have the argument `{missing[0]}`, and `only` does not contain it"
        raise entry.error_at("only", why, "name all arguments that a call may have")


def _check_family(entry: TomlEntry, rule: PermissionRule) -> None:
    """Raise TomlError unless the rule allows a family of commands on certain hosts, and nothing else."""
    if rule.verdict is not Ruling.ALLOW:
        why = "a family contains only the commands that certainly belong to it, so it cannot forbid"
        raise entry.error_at("family", why, 'name the program with `run`, such as run = ["gh", "**"]')
    others = [key for key in ("run", "tool", *_CONDITIONS, "read", "write", "tier", "rights") if key in entry.values]
    if others or not rule.family:
        fix = f"remove `{others[0]}`" if others else 'name it, such as family = "gh-read"'
        raise entry.error_at("family", "a rule about a family names the family and its hosts", fix)
    if not rule.host:
        raise entry.error_at("", "a rule about a family names its hosts", 'add host = ["api.github.com"]')


def _check_try(entry: TomlEntry) -> None:
    """Raise TomlError unless the rule names a command, and nothing that a command on a layer does not get."""
    known = ("verdict", "run", "tier", "source", "why", "until")
    if other := next((key for key in entry.values if key not in known), None):
        why = "a command that is tried has no network and no path outside of the workspace"
        raise entry.error_at(other, why, f"remove `{other}`, or write `ask` or `allow`")
    if "run" not in entry.values:
        raise entry.error_at("", "only a command can be tried", 'name it, such as run = ["make", "**"]')


def _check_rights(entry: TomlEntry, rule: PermissionRule) -> None:
    """Raise TomlError unless the rights are those of one command whose words the rule states completely."""
    if rule.verdict is not Ruling.ALLOW:
        raise entry.error_at("rights", "only a rule that allows can add rights", "remove `rights`")
    if rule.more or not rule.run or any(len(word) > 1 or {"*", "?"} & set(word[0]) for word in rule.run):
        why = "further rights need the complete words of one command, without patterns and alternatives"
        raise entry.error_at("rights", why, 'write each word, such as run = ["bash", "install.sh"]')
    for text in rule.rights:
        flag, _, target = text.partition(" ")
        if flag not in ("--host", "--read", "--write") or not target.strip():
            raise entry.error_at(
                "rights", f"`{text}` is not a right", 'write "--host x.org", "--read PATH" or "--write PATH"'
            )


def _host(text: str) -> str:
    """Return the host in the form for comparison: the canonical spelling of Terms, or lower case for a pattern and for
    a text that is not a host.
    """
    from policy.model.host_rule import host_rule  # imported here: only rules about hosts need it
    from policy.model.verdict import Problem

    found = host_rule(text)
    return text.lower() if isinstance(found, Problem) else str(found)


def _list(entry: TomlEntry, key: str) -> tuple[str, ...]:
    items = texts(entry.values.get(key, ()))
    if key in entry.values and not items:
        raise entry.error_at(key, "the list is empty, so the rule would never match", f"add one, or remove `{key}`")
    return tuple(dict.fromkeys(items))


def _tools(entry: TomlEntry) -> tuple[str, ...]:
    """Return the patterns of names of tools. A name that no tool can have is an error."""
    names = _list(entry, "tool")
    unknown = next((name for name in names if not names_tool(name)), None)
    if unknown is None:
        return names
    known = [tool.value for tool in Tool]
    if unknown.startswith(SERVER):
        fix = f'write tool = ["{SERVER}SERVER__TOOL"], or `{unknown.rstrip("_")}__*` for every tool of that server'
    elif near := similar_name(unknown, known):
        fix = f"did you mean `{near}`?"
    else:
        fix = f"the names are {', '.join(f'`{name}`' for name in known)}, and `{SERVER}SERVER__TOOL` for others"
    raise entry.error_at("tool", f"there is no tool `{unknown}`", fix)


def _pairs(entry: TomlEntry, key: str) -> tuple[tuple[str, str], ...]:
    """Return the conditions on arguments that the table `key` has, in the order of the names."""
    found = tuple(item for item in patterns(entry.values.get(key, ())) if len(item) == 2)
    return tuple(sorted((name, pattern) for name, pattern in found))


def _named(entry: TomlEntry, key: str, names: Mapping[str, _Named]) -> tuple[_Named, ...]:
    """Return the members that the list `key` names. `names` maps each name to its member."""
    texts = _list(entry, key)
    unknown = next((text for text in texts if text not in names), None)
    if unknown is None:
        return tuple(names[text] for text in texts)
    near = similar_name(unknown, names)
    fix = f"did you mean `{near}`?" if near else f"the names are {', '.join(f'`{name}`' for name in names)}"
    raise entry.error_at(key, f"there is no {key} `{unknown}`", fix)
