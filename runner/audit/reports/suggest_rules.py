"""Suggested rules: exact rules for single actions, combined such that they allow nothing more."""

import itertools
import os.path
import shlex
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Literal

from policy.model.frozen import dataclass
from policy.model.tool_arguments import canonical_value
from policy.toml.schema import ValueType
from runner.config.toml_value import toml, value_toml

WordChoices = tuple[tuple[str, ...], ...]  # of a command line: each word with its alternatives

_ALTERNATIVES = 3  # alternatives of one word, or paths, from which on a pattern is suggested
_KEYS = ("read", "write", "host")


@dataclass(frozen=True, slots=True)
class SuggestedRule:
    """One `[[rule]]` of a configuration file. `read`, `write` and `host` match if one of their values matches."""

    verdict: Literal["allow", "deny"]
    run: WordChoices = ()
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    host: tuple[str, ...] = ()
    why: str = ""
    family: str = ""  # of reading commands, in place of `run`
    tool: tuple[str, ...] = ()
    arguments: tuple[tuple[str, str], ...] = ()
    values: tuple[tuple[str, str], ...] = ()
    only: tuple[str, ...] | None = None

    def text(self) -> str:
        """Return the rule as TOML for a configuration file."""
        lines = ["[[rule]]", f"{'verdict':<7} = {toml(self.verdict)}"]
        if self.run:
            words = ", ".join(toml(word[0] if len(word) == 1 else word) for word in self.run)
            lines.append(f"{'run':<7} = [{words}]")
        lines += [f"{'family':<7} = {toml(self.family)}"] if self.family else []
        lines += [f"{'tool':<7} = {toml(self.tool)}"] if self.tool else []
        lines += [f"arguments = {value_toml(self.arguments, ValueType.TABLE)}"] if self.arguments else []
        lines += [f"{'values':<7} = {value_toml(self.values, ValueType.VALUES)}"] if self.values else []
        lines += [f"{'only':<7} = {toml(self.only)}"] if self.only is not None else []
        lines += [f"{key:<7} = {toml(getattr(self, key))}" for key in _KEYS if getattr(self, key)]
        lines += [f"{'why':<7} = {toml(self.why)}"] if self.why else []
        return "\n".join(lines)

    def subject(self) -> str:
        """Return the subject of the rule in one line: `npm run {build,lint}`, `example.org`."""
        words = [word[0] if len(word) == 1 else "{" + ",".join(word) + "}" for word in self.run]
        about = f"commands of the family {self.family}" if self.family else " ".join(words)
        called = [f"{name} {value}" for name, value in (*self.arguments, *self.values)]
        about = about or " ".join([*self.tool, *called, *(["alone"] if self.only is not None else [])])
        named = [f"{key} {', '.join(getattr(self, key))}" for key in _KEYS if getattr(self, key)]
        return "; ".join([about, *named] if about else named)


def parse_rules(text: str, verdict: Literal["allow", "deny"]) -> tuple[SuggestedRule, ...]:
    """Return the `[[rule]]` tables of a suggestion for one action, with this verdict."""
    found = []
    for table in tomllib.loads(text)["rule"]:
        reads, writes, hosts = (tuple(table.get(key, ())) for key in _KEYS)
        run = tuple((word,) for word in table.get("run", ()))
        tool, pairs = tuple(table.get("tool", ())), tuple(sorted(table.get("arguments", {}).items()))
        made = SuggestedRule(verdict, run, reads, writes, hosts, tool=tool, arguments=pairs)
        if verdict == "allow" and "only" in table:  # a rule that denies has no exact values
            values = tuple((name, canonical_value(value)) for name, value in sorted(table.get("values", {}).items()))
            made = replace(made, values=values, only=tuple(table["only"]))
        found.append(made)
    return tuple(found)


def combine(rules: Iterable[SuggestedRule]) -> dict[SuggestedRule, SuggestedRule]:
    """Return for each rule the combined rule that contains it.

    The combined rules match exactly the same actions as `rules`. Rules for commands that differ in one
    word after the first are combined, and rules with only paths, or only hosts.
    """
    given = list(dict.fromkeys(rules))
    into: dict[SuggestedRule, SuggestedRule] = {}
    lists: defaultdict[tuple[str, str, str], list[SuggestedRule]] = defaultdict(list)
    alike: defaultdict[object, list[tuple[int, SuggestedRule]]] = defaultdict(list)
    for rule in given:
        named = [key for key in _KEYS if getattr(rule, key)]
        if not rule.run and not rule.family and not rule.tool and len(named) == 1:
            lists[rule.verdict, named[0], rule.why].append(rule)
        for place in range(1, len(rule.run)):
            around = (rule.run[:place], rule.run[place + 1 :])
            alike[replace(rule, run=()), len(rule.run), place, around].append((place, rule))
    for (_, key, why), group in lists.items():
        values = sorted({value for rule in group for value in getattr(rule, key)})
        reads, writes, hosts = (tuple(values) if each == key else () for each in _KEYS)
        joined = SuggestedRule(group[0].verdict, (), reads, writes, hosts, why)
        into.update(dict.fromkeys(group, joined))
    for found in sorted(alike.values(), key=len, reverse=True):
        group = [rule for _, rule in found if rule not in into]
        if len(group) > 1:
            place = found[0][0]
            words = tuple(sorted({word for rule in group for word in rule.run[place]}))
            joined = replace(group[0], run=(*group[0].run[:place], words, *group[0].run[place + 1 :]))
            into.update(dict.fromkeys(group, joined))
    return {rule: into.get(rule, rule) for rule in given}


def wider(rule: SuggestedRule) -> Iterator[SuggestedRule]:
    """Yield rules that allow more than a combined rule: any word instead of the listed words, any command that contacts
    the same host, all files below the common folder of the paths, or any call of the same tool. Yield nothing for a
    rule that denies.
    """
    if rule.verdict == "deny" or rule.family:
        return
    if rule.only is not None:
        yield replace(rule, values=(), only=None)
        return
    many = [place for place, word in enumerate(rule.run) if len(word) > 1]
    if many and rule.host:
        yield replace(rule, run=())
    elif len(many) == 1 and len(rule.run[many[0]]) >= _ALTERNATIVES:
        place = many[0]
        if not any(word.startswith("-") for word in rule.run[place]):
            yield replace(rule, run=(*rule.run[:place], ("*",), *rule.run[place + 1 :]))
    elif not rule.run and len(rule.write) >= _ALTERNATIVES and (folder := _shared(rule.write)):
        yield replace(rule, write=(f"{folder}/**",))


def command_lines(rule: SuggestedRule) -> Iterator[str]:
    """Yield the command lines that the rule matches, and none if the rule contains a pattern."""
    if rule.run and ("*",) not in rule.run:
        yield from (shlex.join(words) for words in itertools.product(*rule.run))


def probes(rule: SuggestedRule) -> Iterator[str]:
    """Yield scripts similar to those that the rule matches: with another flag, word, file or address, or with a second
    command."""
    words = [word[0] if word != ("*",) else "other" for word in rule.run]
    if not words:
        for path in rule.write[:1]:
            folder = path.removesuffix("/**") if path.endswith("/**") else os.path.dirname(path)
            yield f"echo x > {shlex.quote(f'{folder}/other.txt' if folder else 'other.txt')}"
        yield from (f"curl -s https://{host}/other" for host in _plain(rule.host)[:1])
        yield from (f"curl -s https://sub.{host}/" for host in _plain(rule.host)[:1])
        return
    whole = shlex.join(words)
    yield f"{whole} --force"
    yield f"{whole} other"
    yield shlex.join([*words[:-1], "other"]) if len(words) > 1 else f"{whole} -x"
    yield f"{whole} && curl https://example.net"
    yield f"cd .. && {whole}"


def _plain(hosts: tuple[str, ...]) -> list[str]:
    return [host for host in hosts if " " not in host and "*" not in host]


def _shared(paths: tuple[str, ...]) -> str:
    """Return the folder that contains all paths; empty if that is the workspace, the home or the root."""
    folders = [os.path.dirname(path) for path in paths]
    if len({path.startswith("/") for path in paths}) > 1:
        return ""
    shared = os.path.commonpath(folders) if all(folders) else ""
    return "" if shared in ("", "/", "~") else shared
