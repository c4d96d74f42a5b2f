"""Remembered answers: apply them to a verdict, offer new ones with a question, and store them."""

import re
from collections.abc import Sequence
from dataclasses import replace

from policy.evaluation import EvaluationContext
from policy.grants.grant import Grant, GrantScope
from policy.grants.offers import GrantChoice, choice_of_host, choices, never
from policy.grants.resolve import covering, resolve
from policy.model.assessment import Assessment
from policy.model.frozen import dataclass
from policy.model.tier import Ruling, Tier
from policy.model.verdict import Allow, Ask, Deny, Verdict
from runner.audit.records import AnswerSource, RecordedAnswer
from runner.gate.grants.store import USUAL_LIFE, GrantStore, RememberedAnswer
from runner.gate.grants.text import about
from runner.gate.wording import action_words
from runner.state.json_file import StateError
from runner.text.sanitize import one_line

HELP = (
    "the letter of a line remembers the answer. After it you may write for how long (`7d`, `12h`, `30m`), how often "
    "(`3x`), `user` for all your projects, and `because ...`: `p 7d because of the release`"
)
# The letters of the first, second and third choice in each scope; a capital covers more. Digits are never answers:
# questions are numbered, so a digit meant as the number of a question could grant something.
_LETTERS = {
    GrantScope.SESSION: "sSw", GrantScope.AGENTS: "gGh", GrantScope.PROJECT: "pPW", GrantScope.USER: "uUv",
}  # fmt: skip
_SECONDS = {"m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_LIFE = re.compile(r"([1-9][0-9]{0,3})([mhdw])")
_USES = re.compile(r"([1-9][0-9]{0,5})x")
_MOST_LIFE = 3650 * 86_400.0  # seconds
_DAYS = f"{USUAL_LIFE / 86_400:g} days"
_PLACES = {
    GrantScope.SESSION: "in this session",
    GrantScope.AGENTS: "in this session, for all agents",
    GrantScope.PROJECT: "in this project",
    GrantScope.USER: "in all your projects",
}


def where_words(span: GrantScope, *, yes: bool, short: bool = False) -> str:
    """Return the scope of a remembered answer in words.

    For an approval (`yes`), the lifetime follows, unless the scope is the session.
    With `short`, return fewer words, for a narrow screen.
    """
    place = _PLACES[span] if yes or span is not GrantScope.USER else "in any of your projects"
    lasts = yes and span in (GrantScope.PROJECT, GrantScope.USER)
    if short:
        return place.removeprefix("in ") + (f", {_DAYS}" if lasts else "")
    return place + (f" for {_DAYS}" if lasts else "")


@dataclass(frozen=True, slots=True)
class Offer:
    """The answers to one question that may be remembered.

    Attributes:
        choices: The sets of actions that an approval may cover.
        never: The set of actions that a remembered refusal covers, or None.
        spans: The scopes of an answer. The letter `d` uses the first of them.
    """

    choices: tuple[GrantChoice, ...]
    never: GrantChoice | None
    spans: tuple[GrantScope, ...]

    @property
    def lettered(self) -> tuple[tuple[str, GrantChoice, GrantScope], ...]:
        """Return each of the first three choices in each scope, with its letter."""
        return tuple(
            (_LETTERS[span][place], choice, span)
            for place, choice in enumerate(self.choices[: len(_LETTERS[GrantScope.SESSION])])
            for span in self.spans
        )

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the letters of the answers that may be remembered, such as s, p, S, P and d."""
        return (*(letter for letter, _, _ in self.lettered), *(("d",) if self.never is not None else ()))

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the choices as a plain terminal shows them, in the words of the screen."""
        found = [f"{letter}  {choice.label}, {where_words(span, yes=True)}" for letter, choice, span in self.lettered]
        return (*found, *self._refusal)

    @property
    def details(self) -> tuple[str, ...]:
        """Return exactly what each choice covers, with actions that it does not cover."""
        found = []
        for letter, choice, span in self.lettered:
            exceptions = f"; but not {' or '.join(choice.not_covered)}" if choice.not_covered else ""
            found.append(f"{letter}  {choice.words}, {where_words(span, yes=True)}{exceptions}")
        return (*found, *self._refusal)

    @property
    def _refusal(self) -> tuple[str, ...]:
        if self.never is None:
            return ()
        return (f"d  no, and never {where_words(self.spans[0], yes=False)}: {self.never.words}",)

    def picked(self, text: str) -> RememberedAnswer | str | None:
        """Parse a typed line: return the answer to remember that its letter selects.

        Return an error message for a number, alone or followed by options: a number is not an answer, and the question
        is put again. Return None for any other text. `text` must not be blank.
        """
        first, *rest = text.split()
        if first == "d" and self.never is not None:
            return _with_options(RememberedAnswer(self.never.whats, Ruling.DENY, self.spans[0]), rest)
        for letter, choice, span in self.lettered:
            if first == letter:
                keep = _with_options(RememberedAnswer(choice.whats, Ruling.ALLOW, span), rest)
                # THREAT T222: an approval for a sub-agent never outlives the session
                lasts = keep is not None and not keep.of_session
                return None if lasts and GrantScope.PROJECT not in self.spans else keep
        if (
            first.isnumeric()
            and _with_options(RememberedAnswer((), Ruling.ALLOW, GrantScope.PROJECT), rest) is not None
        ):
            return f"`{one_line(first, 20)}` is not an answer; answer {', '.join(['y', 'n', *self.keys])}"
        return None


NOTHING = Offer((), None, ())


def _with_options(keep: RememberedAnswer, words: list[str]) -> RememberedAnswer | None:
    """Return `keep` with the options typed after its letter.

    Return None if the words are not valid options of this answer, for example if they are the rest of a sentence.
    """
    seen: set[str] = set()  # two lifetimes, numbers of uses or scopes contradict each other
    for place, word in enumerate(words):
        lasting, often = _LIFE.fullmatch(word), _USES.fullmatch(word)
        if word == "because" and words[place + 1 :]:
            return replace(keep, reason=" ".join(words[place + 1 :]))
        kind = "life" if lasting else "uses" if often else "span"
        if kind in seen:
            return None
        seen.add(kind)
        if word in ("project", "user"):
            keep = replace(keep, span=GrantScope(word))
        elif lasting and int(lasting[1]) * _SECONDS[lasting[2]] <= _MOST_LIFE:
            keep = replace(keep, life=int(lasting[1]) * _SECONDS[lasting[2]])
        elif often and keep.ruling is Ruling.ALLOW:
            keep = replace(keep, uses=int(often[1]))
        else:
            return None
    return keep


@dataclass(frozen=True, slots=True)
class GrantLookup:
    """A verdict with remembered answers applied.

    Attributes:
        context: The context of the evaluation, with every remembered refusal as a rule.
        assessment: The effects, tiers and reasons of the action.
        verdict: The verdict.
        by: The grants that the verdict is based on.
        question: The question that would be asked without these grants, or None.
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
        yes = isinstance(self.verdict, Allow)
        by = f"{'grant' if yes else 'remembered no'} {', '.join(self.names)}"
        source = AnswerSource.GRANT if yes else AnswerSource.REFUSAL
        return RecordedAnswer(self.question.question, yes, by, source=source)


def with_grants(context: EvaluationContext, assessment: Assessment, verdict: Verdict, store: GrantStore) -> GrantLookup:
    """Apply the remembered answers in `store` to a verdict. Reads and denials stay as they are: they ask no
    question.
    """
    question = verdict if isinstance(verdict, Ask) else None
    reads = assessment.tiers[0] is Tier.READ and not assessment.asked
    grants = () if isinstance(verdict, Deny) or reads else store.live()
    if not grants:
        return GrantLookup(context, assessment, verdict, (), question)
    found = resolve(context, assessment, verdict, grants)
    question = found.verdict if isinstance(found.verdict, Ask) else found.question or question
    return GrantLookup(found.context, found.assessment, found.verdict, found.by, question)


def consume(lookup: GrantLookup, store: GrantStore) -> GrantLookup:
    """Consume one use of each grant that allows the action, before the action runs.

    If a grant is not valid any more, return the lookup with the question as its verdict.
    """
    if not lookup.by or not isinstance(lookup.verdict, Allow) or lookup.question is None or store.spend(lookup.by):
        return lookup
    return replace(lookup, verdict=lookup.question, by=())


def offer(context: EvaluationContext, question: Ask, spans: Sequence[GrantScope], store: GrantStore) -> Offer:
    """Return the answers to `question` that may be remembered. None of them contains a live secret."""
    found = tuple(
        each for each in choices(context, question) if not any(store.holds_secret(what) for what in each.whats)
    )
    forbidden = never(context, question)
    if forbidden is not None and any(store.holds_secret(what) for what in forbidden.whats):
        forbidden = None
    return Offer(found, forbidden, tuple(spans))


def offer_of_host(context: EvaluationContext, question: Ask, spans: Sequence[GrantScope], store: GrantStore) -> Offer:
    """Return the one answer about an additional host that may be remembered (`choice_of_host`), or NOTHING."""
    found = choice_of_host(context, question)
    if found is None or any(store.holds_secret(what) for what in found.whats):
        return NOTHING
    return Offer((found,), None, tuple(spans))


def keep(
    context: EvaluationContext, question: Ask, wanted: RememberedAnswer, store: GrantStore
) -> tuple[tuple[str, ...], str]:
    """Store an answer. Return the names of the grants and a notice for the user.

    A stored approval is tested on `question`, and revoked if the approval would not answer `question`. An answer that
    cannot be stored counts once, and the notice says so.
    """
    script = action_words(question.assessment.action, question.terms.workspace)
    try:
        made = store.keep(wanted, script)
        if wanted.ruling is Ruling.ALLOW and covering(context, question, made) is None:
            for grant in made:
                store.revoke(grant.id)
            return (), "this was not remembered: it would not answer the same question again; the approval counts once"
    except StateError as error:
        return (), f"this was not remembered: {error.problem.what}: {error.problem.why}; the answer counts once"
    names = tuple(grant.id for grant in made)
    no = "" if wanted.ruling is Ruling.ALLOW else "never "
    told = " and ".join(f"{grant.id}: {no}{about(grant)}" for grant in made)
    where = where_words(wanted.span, yes=False)
    if wanted.of_session:
        back = " and ".join(f"`/grants revoke {name}`" for name in names)
    else:
        back = f"`agent grants revoke {' '.join(names)}`"
    return names, f"remembered as {told}, {where}; undo with {back}"
