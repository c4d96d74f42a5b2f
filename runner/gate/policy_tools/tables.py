"""Tables of expected verdicts, parsed strictly: TOML with `[[test]]`, or JSON Lines."""

import json
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from typing import TypeVar

from policy.model.action import Action, RunArgv, RunScript, file_action
from policy.model.facts import Facts
from policy.model.frozen import dataclass
from policy.model.profile import Source, Tool
from policy.model.tier import Mode, Ruling, Tier
from runner.config.toml_tables import TableItem, read_items, unknown_key, wrong
from runner.gate.policy_tools.reference_machine import FILES
from runner.problems import usage
from runner.text.phrases import nearest

TOOLS = tuple(tool.value for tool in Tool if tool not in (Tool.AGENT, Tool.WEB_FETCH, Tool.WEB_SEARCH))
_TOP = ("mode", "unattended", "files", "today")
_ROW = (
    "id", "run", "cmd", "argv", "tool", "path", "verdict", "verdicts", "tier", "effects", "mode", "unattended",
    "source", "why",
)  # fmt: skip
_RULINGS = {
    **{ruling.name.lower(): frozenset({ruling}) for ruling in Ruling},
    "not-allow": frozenset(Ruling) - {Ruling.ALLOW},
}
_TIERS = {tier.label: tier for tier in Tier}
_SOURCES = {source.value: source for source in Source}
_MODES = {mode.value: mode for mode in Mode}
_T = TypeVar("_T")

ExpectedRulings = frozenset[Ruling]  # the verdicts that are as expected; `not-allow` is either of two


def wanted_word(wanted: ExpectedRulings) -> str:
    """Return the expected verdict as tables write it."""
    return next(word for word, found in _RULINGS.items() if found == wanted)


@dataclass(frozen=True, slots=True)
class Expectation:
    """One expectation. `expected` has at least one mode unless only the tier and effects are given.

    Attributes:
        expected: verdict by mode; the mode None is the mode of the run
        tier: highest tier
        effects: some of the effects that the action must have
    """

    source: str
    line: int
    id: str
    argv: tuple[str, ...]
    script: str
    tool: str
    path: str
    expected: tuple[tuple[Mode | None, ExpectedRulings], ...] = ()
    tier: Tier | None = None
    effects: tuple[str, ...] = ()
    unattended: bool = False
    why: str = ""
    proposer: Source = Source.MODEL

    @property
    def shown(self) -> str:
        """Return the action as a user would write it."""
        if self.argv:
            import shlex

            return "-- " + shlex.join(self.argv)
        return self.script if self.tool == "bash" else f"{self.tool} {self.path}"

    def action(self, facts: Facts, cwd: str) -> Action:
        """Return the action to judge in the folder `cwd` of the machine that `facts` describe."""
        if self.argv:
            return RunArgv(self.argv, cwd)
        if self.tool == "bash":
            return RunScript(self.script, cwd)
        path = self.path if self.path.startswith("/") else f"{cwd}/{self.path}"
        if self.path == "~" or self.path.startswith("~/"):
            path = facts.home + self.path[1:]
        return file_action(self.tool, path, content="new\n", old="old", glob="**/*", regex="word")


@dataclass(frozen=True, slots=True)
class Table:
    """One file of expectations.

    Attributes:
        files: more names in the workspace
        rules: text of the file's own `[[rule]]`s, on their original lines
        today: day on which the table is judged, for rules that expire
        base: initial content of the workspace
    """

    source: str
    tests: tuple[Expectation, ...]
    mode: Mode | None = None
    files: tuple[str, ...] = ()
    rules: str = ""
    today: date | None = None
    base: str = FILES


def parse_table(text: str, source: str) -> Table:
    """Parse a table. Raises a usage error that names the file, the line and the nearest key."""
    table = _json_lines(text, source) if text.lstrip()[:1] == "{" else _toml(text, source)
    seen: dict[str, int] = {}
    for test in table.tests:
        if test.id and test.id in seen:
            what = f"{source}:{test.line}: the id `{test.id}` is used twice"
            raise usage(what, f"line {seen[test.id]} has the same id", "give each test an id of its own, or none")
        seen[test.id] = test.line
    return table


def _toml(text: str, source: str) -> Table:
    top, *items = read_items(text, source, ("test", "rule"))
    for key in top.values:
        if key not in _TOP:
            raise unknown_key(source, top, key, (*_TOP, "test", "rule"))
    unattended = _switch(top, "unattended", source)
    rows = [_row(item, source, unattended) for item in items if item.name == "test"]
    if not rows:
        fix = 'write [[test]], run = "ls", verdict = "allow"'
        raise usage(f"{source} contains no test", "it has no [[test]] table", fix)
    lines: list[str] = []  # of the rules alone, each on its original line, so that errors name the right place
    for item in items:
        if item.name == "rule":
            lines += [""] * (item.line - 1 - len(lines)) + item.text.split("\n")
    mode, files = _named(top, "mode", source, _MODES), _texts(top, "files", source)
    today = top.values.get("today")
    if today is not None and (not isinstance(today, date) or isinstance(today, datetime)):
        why = "it must be a date without quotes and without a time"
        raise wrong(source, top, "today", why, "write today = 2027-01-31")
    return Table(source, tuple(rows), mode, files, "\n".join(lines), today)


def _json_lines(text: str, source: str) -> Table:
    rows = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            why = "each line must be a JSON object"
            raise usage(f"{source}:{number} cannot be read", why, 'write {"cmd": "git status", "verdict": "allow"}')
        rows.append(_row(TableItem("test", number, values, {}), source, False))
    return Table(source, tuple(rows))


def _row(item: TableItem, source: str, unattended: bool) -> Expectation:
    for key in item.values:
        if key not in _ROW:
            raise unknown_key(source, item, key, _ROW)
    script, path = _text(item, "run", source) or _text(item, "cmd", source), ""
    tool = _text(item, "tool", source) or "bash"
    if tool not in TOOLS:
        raise wrong(source, item, "tool", f"there is no tool `{tool}`", _nearest(tool, TOOLS))
    argv = _texts(item, "argv", source)
    asked = [key for key in ("run", "cmd", "argv", "tool") if key in item.values and not (key == "tool" and script)]
    if len(asked) != 1 or (tool != "bash" and "tool" not in asked):
        why, fix = "it must contain one action to judge", 'write run = "..." or tool = "read", path = "..."'
        raise wrong(source, item, asked[-1] if asked else "run", why, fix)
    if "tool" in asked:
        path = _text(item, "path", source)
        if tool == "bash":
            raise wrong(source, item, "tool", "`bash` needs a script", 'write run = "..."')
        if not path:
            fix = f'write tool = "{tool}", path = "src/main.py"'
            raise wrong(source, item, "tool", f"`{tool}` needs a path", fix)
    elif "path" in item.values:
        fix = 'write it into the script, or name a tool: tool = "read"'
        raise wrong(source, item, "path", "a script has no path", fix)
    tier = _named(item, "tier", source, _TIERS)
    id = item.values.get("id", "")
    if isinstance(id, bool) or not isinstance(id, str | int):
        raise wrong(source, item, "id", "it must be a text or a number", 'write id = "..."')
    row = Expectation(
        source=source,
        line=item.line,
        id=str(id),
        argv=argv,
        script=script,
        tool=tool,
        path=path,
        expected=_expected(item, source),
        tier=tier,
        effects=_texts(item, "effects", source),
        unattended=_switch(item, "unattended", source) if "unattended" in item.values else unattended,
        why=_text(item, "why", source),
        proposer=_named(item, "source", source, _SOURCES) or Source.MODEL,
    )
    if not row.expected and tier is None and not row.effects:
        fix = 'write verdict = "allow", "ask", "deny" or "not-allow", or verdicts = {default = "ask", plan = "deny"}'
        raise wrong(source, item, "verdict", "the test has no expected result", fix)
    return row


def _expected(item: TableItem, source: str) -> tuple[tuple[Mode | None, ExpectedRulings], ...]:
    mode = _named(item, "mode", source, _MODES)
    both = item.values.get("verdicts")
    if both is None:
        wanted = _named(item, "verdict", source, _RULINGS)
        return ((mode, wanted),) if wanted is not None else ()
    if "verdict" in item.values or mode is not None or not isinstance(both, dict) or not both:
        why = "it is a table of modes, and replaces `verdict` and `mode`"
        raise wrong(source, item, "verdicts", why, 'write verdicts = {default = "ask", trust-project = "allow"}')
    expected = []
    for name, value in both.items():
        if name not in _MODES:
            raise wrong(source, item, "verdicts", f"there is no mode `{name}`", _nearest(name, _MODES))
        if not isinstance(value, str) or value not in _RULINGS:
            raise wrong(source, item, "verdicts", f"there is no verdict `{value}`", _nearest(str(value), _RULINGS))
        expected.append((_MODES[name], _RULINGS[value]))
    return tuple(expected)


def _text(item: TableItem, key: str, source: str) -> str:
    value = item.values.get(key, "")
    if not isinstance(value, str) or (key in item.values and not value and key not in ("run", "cmd")):
        raise wrong(source, item, key, "it must be a text in quotes", f'write {key} = "..."')
    return value


def _texts(item: TableItem, key: str, source: str) -> tuple[str, ...]:
    value = item.values.get(key, [])
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value) or (key, value) == ("argv", [""]):
        raise wrong(source, item, key, "it must be a list of texts in quotes", f'write {key} = ["...", "..."]')
    return tuple(value)


def _switch(item: TableItem, key: str, source: str) -> bool:
    value = item.values.get(key, False)
    if not isinstance(value, bool):
        raise wrong(source, item, key, "it must be true or false", f"write {key} = true")
    return value


def _named(item: TableItem, key: str, source: str, known: Mapping[str, _T]) -> _T | None:
    value = item.values.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or value not in known:
        raise wrong(source, item, key, f"there is no {key} `{value}`", _nearest(str(value), known))
    return known[value]


def _nearest(value: str, known: Iterable[str]) -> str:
    names = list(known)
    return nearest(value, names) or f"choose one of {', '.join(f'`{name}`' for name in names)}"
