"""Query for decisions. A store evaluates the conditions on index columns; `Query.matches` evaluates all conditions."""

from fnmatch import fnmatchcase

from policy.model.frozen import dataclass
from policy.model.profile import MAIN
from runner.audit.fields import beginning, items, mapping
from runner.audit.legacy import rule_beginnings

_REASONS = ("reasons", "because", "rules")


@dataclass(frozen=True, slots=True)
class Query:
    """Conditions for decisions. An empty field matches all; otherwise one of its values must match. All fields must
    match.

    `tiers`: one of the action's tiers. `rules`: beginnings of rule references, of any reason. `paths`, `hosts`: glob
    patterns for targets of effects and for connections. `sessions`: beginnings of ids. `workspaces`: folders or their
    parents. `since` (inclusive), `until` (exclusive): UTC times in the format of records, or the beginning of a time.
    `asked`: only questions. `agents`: names of acting agents. `commands`: the first word of a command line. `jobs`: ids
    of scheduled jobs.
    """

    verdicts: tuple[str, ...] = ()
    tiers: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    workspaces: tuple[str, ...] = ()
    since: str = ""
    until: str = ""
    asked: bool = False
    agents: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()

    def matches(self, decision: dict[str, object], session: dict[str, object], outcome: dict[str, object]) -> bool:
        """Return True if the bodies of a decision, its session and its outcome match. The last two may be empty."""
        time = str(decision.get("time", ""))
        places = [f"{session.get(name) or ''}/" for name in ("workspace", "original")]
        folders = tuple(f"{folder.rstrip('/')}/" for folder in self.workspaces)
        hosts = [*_targets(decision, connects=True), *_named(outcome, "host", "connections")]
        return (
            _is_one_of(self.verdicts, str(decision.get("verdict", "")))
            and _is_one_of(self.modes, str(decision.get("mode", "")))
            and _is_one_of(self.agents, str(decision.get("agent") or MAIN))
            and _is_one_of(self.tools, str(decision.get("tool", "")))
            and (not self.since or time >= self.since)
            and (not self.until or time < self.until)
            and (not self.sessions or _begins(self.sessions, [str(decision.get("session", ""))]))
            and _is_one_of(self.jobs, str(session.get("job", "")))
            and (not self.workspaces or _begins(folders, places))
            and (not self.tiers or any(str(tier) in self.tiers for tier in items(decision.get("tiers"))))
            and (not self.commands or command_of(decision) in self.commands)
            and (not self.rules or _begins(rule_beginnings(self.rules), _named(decision, "rule", *_REASONS)))
            and (not self.paths or _globs(self.paths, _targets(decision, connects=False)))
            and (not self.hosts or _globs(self.hosts, hosts))
            and (not self.asked or was_question(decision))
        )


def was_question(decision: dict[str, object]) -> bool:
    """Return True if the matrix required a question: the user or a grant answered, or there was no user."""
    return bool(decision.get("answer")) or mapping(decision.get("cell")).get("ruling") == "ask"


def _is_one_of(wanted: tuple[str, ...], value: str) -> bool:
    return not wanted or value in wanted


def _begins(wanted: tuple[str, ...], values: list[str]) -> bool:
    return any(value.startswith(wanted) for value in values)


def _globs(wanted: tuple[str, ...], values: list[str]) -> bool:
    return any(fnmatchcase(value, pattern) for value in values for pattern in wanted)


def _objects(body: dict[str, object], *names: str) -> list[dict[str, object]]:
    found: list[object] = []
    for value in map(body.get, names):
        found += value if isinstance(value, list) else [value]
    return [item for item in found if isinstance(item, dict)]


def _targets(decision: dict[str, object], *, connects: bool) -> list[str]:
    return [
        str(effect.get("target", ""))
        for effect in _objects(decision, "effects")
        if (effect.get("kind") == "connects") is connects
    ]


def _named(body: dict[str, object], name: str, *lists: str) -> list[str]:
    """Return the field `name` of every object in the fields `lists`."""
    return [str(each.get(name, "")) for each in _objects(body, *lists)]


def command_of(decision: dict[str, object]) -> str:
    """Return the first word of the command; empty for a file tool."""
    action = mapping(decision.get("action"))
    words = action.get("argv")
    if words is None:
        words = beginning(action.get("script")).split(None, 1)
    elif not isinstance(words, list):
        words = beginning(words).split("\0", 1)  # long argv is recorded as one text, see `records.action_body`
    return str(words[0]) if words else ""
