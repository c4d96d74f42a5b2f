"""What is said about one of the users' rules."""

from enum import StrEnum

from policy.model.assessment import RuleRef
from policy.model.frozen import dataclass


class Severity(StrEnum):
    """An error stops a user's file from being loaded; a notice only tells."""

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
        return self.ref.id

    @property
    def line(self) -> int:
        return self.ref.line
