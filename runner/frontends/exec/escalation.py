"""Escalation of `agent exec`: a command that started without network runs once more with the host that it lacked.

The question and its conditions are those of a conversation (`runner.engine.execute`): `ask_for` creates it, for exactly
one more host, and an answer is remembered only for the host of reading commands.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from policy.decide import starts_without_network
from policy.evaluation import EvaluationContext
from policy.grants.extra_right import ExtraRight, added, ask_for, extra_of
from policy.model.action import Action
from policy.model.verdict import Allow, Ask, Terms
from policy.permission.flag_rights import FlagRights
from runner.approval.approver import Question
from runner.approval.card import card
from runner.approval.remembered import NOTHING, GrantLookup, offer_of_host
from runner.engine.authorize import Evaluation, authorize
from runner.frontends.exec.grants import SCOPES, TerminalRequester, finish_now, open_store
from runner.frontends.exec.report import ExecCase
from runner.gate.gate import Gate
from runner.text.sanitize import one_line
from sandbox.backend import Outcome, Violation

_MOST_HOSTS = 4  # hosts that one command may gain; a download may need a registry and the host of its files
_LONGEST_REPORT = 300  # characters of the report about what was blocked, in the question


def request_host(
    case: ExecCase, verdict: Allow, outcome: Outcome, gained: Sequence[ExtraRight]
) -> tuple[ExecCase, ExtraRight] | None:
    """Ask on the terminal for the first host that the sandbox refused to a command, and return the new decision and the
    right.

    `verdict` allowed the run that ended with `outcome`, and `gained` are the rights that earlier answers added. Return
    None if nothing is asked: the command succeeded or was interrupted, no connection was refused, or no user can grant
    the host. Raise KeyboardInterrupt if the user stops instead of answering.
    """
    if not case.attended or len(gained) >= _MOST_HOSTS or not (gained or starts_without_network(verdict)):
        return None
    if outcome.status == 0 or outcome.ended_by is not None:
        return None
    had, action = verdict.permit.terms, verdict.permit.action
    for violation in outcome.violations:
        extra = extra_of(violation.right)
        if violation.inferred or extra is None or extra.flag != "--host":
            continue
        requester = _HostRequester(case.gate, had, extra, tuple(gained), violation)
        try:
            decision = finish_now(authorize(requester.evaluate(action), requester))
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        except _NotOffered:
            continue
        right, typed = added(requester.asked, had), case.gate.typed or FlagRights()
        gate = replace(requester.gate, typed=replace(typed, hosts=(*typed.hosts, right.target)))
        evaluation = decision.evaluation
        return (
            ExecCase(gate, evaluation.assessment, decision.verdict, decision.answer, True, evaluation.noted),
            right,
        )
    return None


class _NotOffered(Exception):
    """The host cannot be asked for: no user may grant it, or the settings or the machine changed."""


class _HostRequester(TerminalRequester):
    """The requester of one more run with one more host."""

    def __init__(
        self, gate: Gate, had: Terms, extra: ExtraRight, gained: tuple[ExtraRight, ...], violation: Violation
    ) -> None:
        super().__init__(gate, open_store(gate))
        self.had, self.extra, self.gained, self.violation = had, extra, gained, violation
        self.asked: Ask

    def evaluate(self, action: Action) -> Evaluation:
        """Return the question about the host as of now. Raise _NotOffered if there is none."""
        now = super().evaluate(action)
        ask = ask_for(now.recalled.context, action, self.had, self.extra, self.gained)
        if ask is None:
            raise _NotOffered
        self.asked = ask
        lookup = GrantLookup(now.recalled.context, ask.assessment, ask, (), ask)
        return Evaluation(ask.assessment, ask, lookup, now.noted)

    def question(self, context: EvaluationContext, ask: Ask, again: str) -> Question:
        """Return the question about the host, which cannot be answered with another command. An answer can be
        remembered only for the host of reading commands.
        """
        offered = NOTHING if self.gained else offer_of_host(context, ask, SCOPES, self.grants)
        asked = replace(card(ask, offered, around=context.facts), editable=False)
        report = f"the command ran without network and was stopped: {one_line(self.violation.what, _LONGEST_REPORT)}"
        return Question("", ask, offered, asked, None, again or report)
