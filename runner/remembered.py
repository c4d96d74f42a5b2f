"""Between the gate and a question: what was answered before, what may be answered for later, and keeping it."""

from collections.abc import Sequence
from dataclasses import replace

from policy.assessment import Assessment
from policy.grant import Grant, Span
from policy.grant_choices import choices, never
from policy.grants import covering, resolve
from policy.hearing import EvaluationContext
from policy.matrix import Ruling
from policy.record import dataclass
from policy.tier import Tier
from policy.verdict import Allow, Ask, Deny, Verdict
from runner.approval_offer import Offer, where_words
from runner.audit.records import Answer
from runner.grant_store import GrantStore, Keep
from runner.grant_words import about
from runner.state_file import StateError
from runner.wording import action_words


@dataclass(frozen=True, slots=True)
class Recalled:
    """A verdict with what was answered before. `by`: the grants it rests on. `question`: what would be asked without
    them, or None when nothing is asked."""

    context: EvaluationContext
    assessment: Assessment
    verdict: Verdict
    by: tuple[Grant, ...] = ()
    question: Ask | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The grants it rests on, for the record."""
        return tuple(grant.id for grant in self.by)

    @property
    def answer(self) -> Answer | None:
        """The question that a grant answered, for the record."""
        if self.question is None or not self.by or isinstance(self.verdict, Ask):
            return None
        by = f"{'grant' if isinstance(self.verdict, Allow) else 'remembered no'} {', '.join(self.names)}"
        return Answer(self.question.question, isinstance(self.verdict, Allow), by)


def recalled(context: EvaluationContext, assessment: Assessment, verdict: Verdict, store: GrantStore) -> Recalled:
    """The verdict once the store was asked. Reading alone, and what is refused anyway, is nobody's question."""
    question = verdict if isinstance(verdict, Ask) else None
    if isinstance(verdict, Deny) or (assessment.tiers[0] is Tier.READ and not assessment.asked):
        return Recalled(context, assessment, verdict, (), question)
    grants = store.live()
    if not grants:
        return Recalled(context, assessment, verdict, (), question)
    found = resolve(context, assessment, verdict, grants)
    if isinstance(found.verdict, Ask):
        question = found.verdict
    return Recalled(found.context, found.assessment, found.verdict, found.by, question)


def spent(given: Recalled, store: GrantStore) -> Recalled:
    """Just before an action runs by grants: take a use of each. When one holds no more, the question is asked after
    all."""
    if not given.by or not isinstance(given.verdict, Allow) or given.question is None or store.spend(given.by):
        return given
    return replace(given, verdict=given.question, by=())


def offer(context: EvaluationContext, question: Ask, spans: Sequence[Span], store: GrantStore) -> Offer:
    """What this question may leave behind. Nothing that holds a live secret is offered."""
    found = tuple(
        each for each in choices(context, question) if not any(store.holds_secret(what) for what in each.whats)
    )
    forbidden = never(context, question)
    if forbidden is not None and any(store.holds_secret(what) for what in forbidden.whats):
        forbidden = None
    return Offer(found, forbidden, tuple(spans))


def keep(context: EvaluationContext, question: Ask, wanted: Keep, store: GrantStore) -> tuple[tuple[str, ...], str]:
    """Remember an answer; the names of the grants, and what a person is told.

    A yes is tried once more as it was kept. What cannot be written down holds this once, and that is said.
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
    if wanted.span is Span.SESSION:
        back = " and ".join(f"`/grants revoke {name}`" for name in names)
    else:
        back = f"`agent grants revoke {' '.join(names)}`"
    return names, f"remembered as {told}, {where}; {back} {'takes it' if len(names) == 1 else 'take them'} back"
