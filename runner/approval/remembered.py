"""Remembered answers: apply them to a verdict, offer new ones with a question, and store them."""

from collections.abc import Sequence
from dataclasses import replace

from policy.evaluation import EvaluationContext
from policy.grants.grant import Grant, GrantScope
from policy.grants.offers import choices, never
from policy.grants.resolve import covering, resolve
from policy.model.assessment import Assessment
from policy.model.frozen import dataclass
from policy.model.tier import Ruling, Tier
from policy.model.verdict import Allow, Ask, Deny, Verdict
from runner.approval.remember_options import Offer, where_words
from runner.audit.records import RecordedAnswer
from runner.gate.grants.store import GrantStore, RememberedAnswer
from runner.gate.grants.text import about
from runner.gate.wording import action_words
from runner.state.json_file import StateError


@dataclass(frozen=True, slots=True)
class GrantLookup:
    """A verdict with remembered answers applied.

    Attributes:
        context: The context of the evaluation, with every remembered no among the rules.
        assessment: The effects, tiers and reasons of the action.
        verdict: The verdict.
        by: The grants that the verdict rests on.
        question: The question that would be asked without them, or None.
    """

    context: EvaluationContext
    assessment: Assessment
    verdict: Verdict
    by: tuple[Grant, ...] = ()
    question: Ask | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the grants for the record."""
        return tuple(grant.id for grant in self.by)

    @property
    def answer(self) -> RecordedAnswer | None:
        """Return the answer of a grant for the record, or None if no grant answered a question."""
        if self.question is None or not self.by or isinstance(self.verdict, Ask):
            return None
        by = f"{'grant' if isinstance(self.verdict, Allow) else 'remembered no'} {', '.join(self.names)}"
        return RecordedAnswer(self.question.question, isinstance(self.verdict, Allow), by)


def recalled(context: EvaluationContext, assessment: Assessment, verdict: Verdict, store: GrantStore) -> GrantLookup:
    """Apply the remembered answers in `store` to a verdict. Reads and denials never are a question."""
    question = verdict if isinstance(verdict, Ask) else None
    if isinstance(verdict, Deny) or (assessment.tiers[0] is Tier.READ and not assessment.asked):
        return GrantLookup(context, assessment, verdict, (), question)
    grants = store.live()
    if not grants:
        return GrantLookup(context, assessment, verdict, (), question)
    found = resolve(context, assessment, verdict, grants)
    if isinstance(found.verdict, Ask):
        question = found.verdict
    return GrantLookup(found.context, found.assessment, found.verdict, found.by, question)


def consume(given: GrantLookup, store: GrantStore) -> GrantLookup:
    """Take one use of each grant before an action runs by them.

    If a grant has no use left, the verdict becomes the question again.
    """
    if not given.by or not isinstance(given.verdict, Allow) or given.question is None or store.spend(given.by):
        return given
    return replace(given, verdict=given.question, by=())


def offer(context: EvaluationContext, question: Ask, spans: Sequence[GrantScope], store: GrantStore) -> Offer:
    """Return the answers to `question` that may be remembered. None of them contains a live secret."""
    found = tuple(
        each for each in choices(context, question) if not any(store.holds_secret(what) for what in each.whats)
    )
    forbidden = never(context, question)
    if forbidden is not None and any(store.holds_secret(what) for what in forbidden.whats):
        forbidden = None
    return Offer(found, forbidden, tuple(spans))


def keep(
    context: EvaluationContext, question: Ask, wanted: RememberedAnswer, store: GrantStore
) -> tuple[tuple[str, ...], str]:
    """Store an answer. Return the names of the grants and a notice for the user.

    A yes is tried as it was stored. An answer that cannot be stored counts once, and the notice says so.
    """
    script = action_words(question.assessment.action, question.terms.workspace)
    try:
        made = store.keep(wanted, script)
        if wanted.ruling is Ruling.ALLOW and covering(context, question, made) is None:
            for grant in made:
                store.revoke(grant.id)
            return (), "this was not remembered: it would not answer the same question again; the yes counts once"
    except StateError as error:
        return (), f"this was not remembered: {error.problem.what}: {error.problem.why}; the answer counts once"
    names = tuple(grant.id for grant in made)
    no = "" if wanted.ruling is Ruling.ALLOW else "never "
    told = " and ".join(f"{grant.id}: {no}{about(grant)}" for grant in made)
    where = where_words(wanted.span, yes=False)
    if wanted.span is GrantScope.SESSION:
        back = " and ".join(f"`/grants revoke {name}`" for name in names)
    else:
        back = f"`agent grants revoke {' '.join(names)}`"
    return names, f"remembered as {told}, {where}; {back} {'takes it' if len(names) == 1 else 'take them'} back"
