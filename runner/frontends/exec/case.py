"""The case of one `agent exec`: the judged action with everything that its record holds."""

import sys
from typing import TYPE_CHECKING

from policy.model.assessment import Assessment
from policy.model.frozen import dataclass
from policy.model.permission_rule import Source
from policy.model.verdict import Allow, Deny
from policy.rules.fingerprint import fingerprint
from runner.audit.fact_recorder import FactRecorder
from runner.audit.records import Answer, Decision, SessionInfo
from runner.facts.git.head import head_commit
from runner.frontends.exec.argv import without_values
from runner.gate.gate import Gate
from sandbox.backend import Enforcement

if TYPE_CHECKING:
    from policy.grants.grant import Grant


@dataclass(frozen=True, slots=True)
class Case:
    """One judged action.

    Attributes:
        gate: The settings and facts that the verdict rests on.
        assessment: The effects, tiers and reasons of the action.
        verdict: The decision.
        answer: The answer of a user, or None if no question was asked.
        attended: True if a person could answer a question.
        noted: The facts about the machine that the verdict depends on.
        grants: The names of the grants that answered, or that the answer created.
        granted: The grants that the verdict rests on.
    """

    gate: Gate
    assessment: Assessment
    verdict: Allow | Deny
    answer: Answer | None
    attended: bool
    noted: FactRecorder
    grants: tuple[str, ...] = ()
    granted: "tuple[Grant, ...]" = ()

    @property
    def typed(self) -> tuple[str, ...]:
        """Return the rights that flags added, for the record."""
        return self.gate.typed.words if self.gate.typed else ()

    def decision(self, verdict: Allow | Deny, backend: str) -> Decision:
        """Return the decision for the record; `backend` is `none` if the action will not run."""
        return Decision(
            "exec",
            self.assessment,
            verdict,
            backend,
            self.answer,
            self.typed,
            self.grants,
            self.granted,
            Source.PERSON,
            self.gate.backend,
            self.noted,
        )

    def policy(self) -> str:
        """Return the fingerprint of the settings that decided."""
        return fingerprint(self.gate.settings.profile, self.gate.settings.rules)

    def session(self, enforcement: Enforcement | None, policy: str) -> SessionInfo:
        """Return the session for the record; `enforcement` is None if the action will not run."""
        return SessionInfo(
            mode=self.gate.mode.value,
            workspace=self.gate.facts.workspace,
            unattended=not self.attended,
            enforcement=enforcement,
            argv=("agent", *without_values(sys.argv[1:])),
            commit=head_commit(self.gate.facts.workspace),
            sources=self.gate.settings.sources,
            policy=policy,
            hashes=self.gate.settings.hashes,
        )
