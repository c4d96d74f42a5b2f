"""Looks over the users' rules: which can never take effect, which say more, or less, than they seem to."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum

from policy.assessment import RuleRef
from policy.permission import PermissionRule
from policy.rules import RuleBook


class Severity(StrEnum):
    """An error stops a user's file from being loaded; a notice only says that a rule is over."""

    ERROR = "error"
    WARNING = "warning"
    NOTICE = "notice"


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """One thing about one rule. `code` is stable; `text` and `fix` are in the user's words; `other` is the second rule
    when it is about two."""

    severity: Severity
    code: str
    ref: RuleRef
    text: str
    fix: str
    other: RuleRef | None = None

    @property
    def file(self) -> str:
        return self.ref.file

    @property
    def line(self) -> int:
        return self.ref.line


def check(rules: Sequence[PermissionRule], rulebook: RuleBook, today: date | None = None) -> tuple[RuleFinding, ...]:
    """Everything that is to be said about `rules`, the worst first, in the order of the files among equals.

    `rules` are those of all layers together, lowest layer first; `rulebook` holds the facts about commands.
    """
    found = [
        RuleFinding(
            Severity.NOTICE,
            "expired",
            rule.ref,
            f"its last day was {rule.until}",
            "remove it, or give it a later day",
        )
        for rule in rules
        if rule.until is not None and rule.expired(today)
    ]
    return tuple(found)
