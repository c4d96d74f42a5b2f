"""A small reader of SBPL for the tests: s-expressions and the allowed parts of a profile.

The names of operations and filters are those of the profiles that macOS ships; `param` must have a value, and a text may
only be one of ours, since everything that varies is a parameter.
"""

import re
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""\s*(?:;[^\n]*|(?P<open>\()|(?P<close>\))|(?P<quote>')|\#?"(?P<text>(?:[^"\\]|\\.)*)"|(?P<word>[^\s()"';]+))"""
)

# fmt: off
OPERATIONS = {
    "default", "file*", "file-read*", "file-read-metadata", "file-write*", "file-write-data", "file-write-unlink",
    "file-write-setugid", "file-ioctl", "file-map-executable", "file-test-existence", "ipc-posix-sem", "mach-lookup",
    "network-bind", "network-inbound", "network-outbound", "process-exec*", "process-fork", "process-info*", "pseudo-tty",
    "signal", "sysctl-read", "system-socket",
}
# A filter, and what stands after it: a text or parameter, words, or further filters.
FILTERS = {
    "literal": "text", "subpath": "text", "regex": "text", "global-name": "text", "sysctl-name": "text",
    "sysctl-name-prefix": "text", "extension": "text", "target": "words", "socket-domain": "words", "local": "end",
    "remote": "end", "require-all": "filters",
}
# fmt: on


class Malformed(AssertionError):
    """A profile that sandbox-exec would refuse, or read differently from its intention."""


@dataclass(frozen=True)
class Text:
    value: str


Form = str | Text | list["Form"]


def read(source: str) -> list[Form]:
    stack: list[list[Form]] = [[]]
    at = 0
    while at < len(source.rstrip()):
        found = _TOKEN.match(source, at)
        if found is None:
            raise Malformed(f"no token at {source[at : at + 30]!r}")
        at = found.end()
        if found["open"]:
            stack.append([])
        elif found["close"]:
            if len(stack) == 1:
                raise Malformed("a form is closed that was not opened")
            form = stack.pop()
            stack[-1].append(form)
        elif found["text"] is not None:
            stack[-1].append(Text(found["text"]))
        elif found["word"] or found["quote"]:
            stack[-1].append(found["word"] or "'")
    if len(stack) != 1:
        raise Malformed(f"{len(stack) - 1} form(s) are not closed")
    return stack[0]


@dataclass(frozen=True)
class Rule:
    """`filters` as (name, value): a parameter's value in place of its name."""

    allows: bool
    operations: tuple[str, ...]
    filters: tuple[tuple[str, str], ...]


def check(source: str, parameters: dict[str, str]) -> list[Rule]:
    """The rules in order. Raises Malformed."""
    forms, used = read(source), set(re.findall(r'\(param "([^"]*)"\)', source))
    if forms[:2] != [["version", "1"], ["deny", "default"]]:
        raise Malformed("a profile starts with its version and denies by default")
    if used != set(parameters):
        raise Malformed(f"parameters used and given differ: {sorted(used ^ set(parameters))}")
    rules: list[Rule] = []
    for form in forms[2:]:
        if isinstance(form, list) and form[:1] == ["when"]:
            if not (isinstance(form[1], list) and form[1][:2] == ["defined?", "'"]):
                raise Malformed(f"a condition that is not known: {form[1]}")
            rules += [_rule(each, parameters) for each in form[2:]]
        else:
            rules.append(_rule(form, parameters))
    return rules


def _rule(form: Form, parameters: dict[str, str]) -> Rule:
    if not isinstance(form, list) or form[0] not in ("allow", "deny"):
        raise Malformed(f"neither allow nor deny: {form}")
    operations = tuple(each for each in form[1:] if isinstance(each, str))
    filters = tuple(_filter(each, parameters) for each in form[1:] if not isinstance(each, str))
    if not operations or form[1 : 1 + len(operations)] != list(operations):
        raise Malformed(f"operations come first: {form}")
    if unknown := set(operations) - OPERATIONS:
        raise Malformed(f"unknown operations: {sorted(unknown)}")
    return Rule(form[0] == "allow", operations, filters)


def _filter(form: Form, parameters: dict[str, str]) -> tuple[str, str]:
    if not isinstance(form, list) or not isinstance(form[0], str) or form[0] not in FILTERS:
        raise Malformed(f"unknown filter: {form}")
    kind, rest = FILTERS[form[0]], form[1:]
    if kind == "filters":
        return form[0], " ".join(f"{name}={value}" for name, value in (_filter(each, parameters) for each in rest))
    if kind == "end":  # of a connection: `ip "localhost:PORT"`, or `unix-socket` and a filter of paths
        if rest[0] == "ip" and isinstance(rest[1], Text) and re.fullmatch(r"localhost:(\*|\d{1,5})", rest[1].value):
            return form[0], rest[1].value
        if rest[0] == "unix-socket" and len(rest) == 2:
            return form[0], _filter(rest[1], parameters)[1]
        raise Malformed(f"an end that is not known: {form}")
    if len(rest) != 1:
        raise Malformed(f"one value each: {form}")
    (value,) = rest
    if kind == "words" and isinstance(value, str):
        return form[0], value
    if isinstance(value, Text):
        return form[0], value.value
    if isinstance(value, list) and value[0] == "param" and isinstance(value[1], Text):
        return form[0], parameters[value[1].value]
    raise Malformed(f"a value that is not known: {form}")


def answer(rules: list[Rule], operation: str, path: str) -> bool:
    """Return True if `operation` on `path` is allowed: the last matching rule decides, as in the kernel."""
    for rule in reversed(rules):
        concerned = any(_covers(each, operation) for each in rule.operations)
        if concerned and (not rule.filters or any(_matches(name, value, path) for name, value in rule.filters)):
            return rule.allows
    return False


def _covers(pattern: str, operation: str) -> bool:
    return (
        pattern == "default" or pattern == operation or (pattern.endswith("*") and operation.startswith(pattern[:-1]))
    )


def _matches(name: str, value: str, path: str) -> bool:
    if name == "subpath":
        return path == value or path.startswith(value.rstrip("/") + "/")
    return name == "literal" and path == value
