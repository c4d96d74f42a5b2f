"""Findings about the users' rules."""

from enum import StrEnum

from policy.model.assessment import RuleRef
from policy.model.frozen import dataclass


class Severity(StrEnum):
    """The severity of a finding: an error keeps a user's file from being loaded, a notice only informs."""

    ERROR = "error"
    WARNING = "warning"
    NOTICE = "notice"


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """One finding about one rule.

    Attributes:
        code: a stable identifier of the kind of finding.
        text: the finding as text for the user.
        fix: the fix as text for the user.
        other: the second rule, if the finding is about two.
    """

    severity: Severity
    code: str
    ref: RuleRef
    text: str
    fix: str
    other: RuleRef | None = None

    @property
    def file(self) -> str:
        return self.ref.id

    @property
    def line(self) -> int:
        return self.ref.line
