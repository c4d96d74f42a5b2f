"""The gate as it stands at one moment, to judge an action again with further rules: what a grant is tried before."""

from dataclasses import field, replace

from policy.action import Action
from policy.assessment import Assessment
from policy.classify import classify
from policy.decide import decide
from policy.facts import Facts
from policy.matrix import MATRIX, Matrix
from policy.permission.rule import PermissionRule, Source
from policy.profile import Profile
from policy.record import dataclass
from policy.rules import RuleBook
from policy.tier import Mode
from policy.verdict import Limits, Verdict

TYPE_CHECKING = False  # the name that type checkers know, without the import of `typing`
if TYPE_CHECKING:
    from policy.typed import Typed


@dataclass(frozen=True, slots=True)
class Hearing:
    """Everything that a verdict rests on but the action. `typed`: what a person added to the action by flags.
    `unattended`: nobody is there, so nothing is asked."""

    facts: Facts
    rules: RuleBook
    profile: Profile
    mode: Mode
    environment: tuple[tuple[str, str], ...]
    limits: Limits | None = None
    source: Source = Source.MODEL
    typed: "Typed | None" = None
    unattended: bool = False
    matrix: Matrix = field(default_factory=lambda: MATRIX)

    def beside(self, rules: tuple[PermissionRule, ...]) -> "Hearing":
        """The same, were `rules` among the person's own."""
        if not rules:
            return self
        return replace(self, profile=replace(self.profile, permissions=(*self.profile.permissions, *rules)))

    def judge(
        self, action: Action, more: tuple[PermissionRule, ...] = (), *, unattended: bool = False
    ) -> tuple[Assessment, Verdict]:
        """The verdict on `action` were `more` among the person's own rules."""
        profile = self.beside(more).profile
        assessment = classify(action, self.facts, self.rules, profile, self.source, self.typed)
        verdict = decide(
            assessment,
            self.facts,
            profile,
            self.mode,
            unattended=unattended or self.unattended,
            environment=self.environment,
            limits=self.limits,
            matrix=self.matrix,
        )
        return assessment, verdict
