"""Rules for dashboards: stable id, meaning, remedy and level.

An id is `TIER/NAME`. The tier is the deciding one; the name does not depend on line numbers: it is the rule file of a
command (`secret/coreutils`, `network/hosts`), the area of a check (`unknown/shell-syntax`), `flags`, `grant`,
`denied-list`, or `settings` for rules of configuration files.
"""

import re
from typing import assert_never

from policy.model.assessment import RuleKind, RuleRef
from policy.model.frozen import dataclass
from runner.audit.decisions import DecisionTrail

# fmt: off
# tier: level, severity (0-10, on the scale of CVSS), predicate of a sentence about an action of this tier
_TIERS: dict[str, tuple[str, str, str]] = {
    "read":          ("note",    "2.0", "reads the workspace or system files"),
    "write":         ("warning", "4.0", "changes files of the workspace"),
    "execute":       ("warning", "5.0", "runs code that is not analysed"),
    "agent-spawn":   ("warning", "5.0", "starts another agent"),
    "read-outside":  ("warning", "5.5", "reads files outside of the workspace"),
    "mcp-external":  ("warning", "6.0", "calls a server that acts outside of the sandbox"),
    "network":       ("warning", "6.5", "connects to a host that is not on the allowlist"),
    "unknown":       ("error",   "7.0", "cannot be read with certainty"),
    "write-outside": ("error",   "7.5", "changes files outside of the workspace"),
    "denied":        ("error",   "8.0", "is on the denied list"),
    "dangerous":     ("error",   "8.5", "cannot be undone, takes privilege, or runs a download"),
    "secret":        ("error",   "9.0", "reads or changes credentials, keys or the agent's own state"),
    "malformed":     ("note",    "1.0", "is not a valid call of a tool"),
    "other":         ("warning", "5.0", "needs a decision"),
}
# tier: remedy
_FIXES = {
    "read":          "allow the path by a rule, or use a mode that reads",
    "write":         "use `--mode accept-edits`, or allow the path by a rule",
    "execute":       "use `--mode trust-project`, or allow the command by a rule",
    "agent-spawn":   "use `--mode trust-project`, or avoid the action",
    "read-outside":  "allow the path by a rule, or copy the file into the workspace",
    "mcp-external":  "allow the tool by a rule if the task needs it",
    "network":       "allow the host by a rule if the task needs it",
    "unknown":       "write it simply: one command, without computed words",
    "write-outside": "allow the path by a rule if the task needs it",
    "denied":        "remove it from the list if it should be allowed",
    "dangerous":     "run it yourself; no rule allows this tier",
    "secret":        "do it yourself if you want it; no mode and no rule allows it",
    "malformed":     "nothing: no action ran, and the model got an error",
    "other":         "read the record",
}
# fmt: on


@dataclass(frozen=True, slots=True)
class Rule:
    """Rule of a dashboard. `id` is `tier`/`name`."""

    id: str
    tier: str
    name: str

    @property
    def level(self) -> str:
        return _TIERS[self.tier][0]

    def descriptor(self) -> dict[str, object]:
        """Return the `reportingDescriptor` of SARIF for this rule. It contains fixed text only."""
        level, severity, what = _TIERS[self.tier]
        full = f"The action {what} (tier `{self.tier}`, rule `{self.name}`)."
        fix = f"What to do: {_FIXES[self.tier]}."
        help_ = f"{full}\n\n{fix}\n\nSee the record with `agent audit show ID`; the ID is in the result."
        return {
            "id": self.id,
            "name": "".join(part.capitalize() for part in re.split(r"[^A-Za-z0-9]+", self.id)),
            "shortDescription": {"text": f"An action that {what}"},
            "fullDescription": {"text": full},
            "help": {"text": help_, "markdown": help_},
            "defaultConfiguration": {"level": level},
            "properties": {
                "tags": ["security", "agent", self.tier],
                "security-severity": severity,
                "precision": "very-high",
            },
        }


def rule_of(deed: DecisionTrail) -> Rule:
    """Return the rule of a decision. A tier that this version does not know is `other`."""
    tier = deed.tier or "unknown"
    tier = tier if tier in _TIERS else "other"
    name = "call" if deed.record.kind == "refused" else _name(deed.rule)
    return Rule(f"{tier}/{name}", tier, name)


def _name(rule: str) -> str:
    """Return the part of the SARIF id that names the rule: `git` for `command:git:508`, the area of a check.

    All rules of configuration files have the same name, so that no path is part of an id.
    """
    ref = RuleRef.parse(rule)
    match ref.kind:
        case RuleKind.COMMAND:
            return _plain(ref.id)
        case RuleKind.BUILTIN:
            return _plain(ref.id.partition("/")[0])
        case RuleKind.FLAG:
            return "flags"
        case RuleKind.GRANT:
            return "grant"
        case RuleKind.USER:
            return "denied-list" if ref.id.startswith("[") else "settings"
        case never:
            assert_never(never)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9_-]", "-", name.lower())[:60] or "unnamed"
