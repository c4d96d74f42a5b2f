"""Authorization of one evaluated action: ask if the verdict is a question, and evaluate again after an approval.

INVARIANT: an approval counts for exactly what the user saw. If the evaluation after the approval differs from the one
before the question, the question is asked again. A refusal holds in any case.
"""

import asyncio
from dataclasses import replace
from typing import Protocol

from policy.decide import preview_of
from policy.evaluation import EvaluationContext
from policy.grants.grant import Grant
from policy.grants.resolve import approve, refuse
from policy.model.action import Action, EditFile, RunScript, WriteFile
from policy.model.assessment import Assessment
from policy.model.frozen import dataclass
from policy.model.tier import Mode
from policy.model.verdict import Allow, Ask, Deny, Verdict
from runner.approval.approver import Answer, Edited, Halt, Kept, Later, No, Question, Try, Yes
from runner.approval.remembered import GrantLookup, consume, keep
from runner.audit import records
from runner.audit.fact_recorder import FactRecorder
from runner.gate.grants.store import GrantStore, RememberedAnswer
from sandbox.inside.regular_file import read_whole

_CHANGED = "the files or settings that decide about this action have changed since the question"
EDITED = "the question is now about the command that you edited"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The verdict on one action at one moment, with remembered answers applied.

    Attributes:
        assessment: The effects, tiers and reasons of the action.
        verdict: The verdict.
        recalled: The remembered answers that were found, and the context of the evaluation.
        noted: The facts about the machine that the verdict depends on.
        policy: The fingerprint of the policy, if it has changed since the session began; else empty.
    """

    assessment: Assessment
    verdict: Verdict
    recalled: GrantLookup
    noted: FactRecorder
    policy: str = ""


@dataclass(frozen=True, slots=True)
class EarlyAnswer:
    """An answer that was given before its call was due.

    Attributes:
        question: The question that was answered.
        answer: The answer.
        seconds: The time that the user took for the answers of the turn.
    """

    question: Question
    answer: Answer
    seconds: float


@dataclass(frozen=True, slots=True)
class Authorization:
    """The decision about one action.

    Attributes:
        evaluation: The evaluation that the decision rests on.
        verdict: The decision.
        answer: The answer of a user or a grant for the record, or None if the policy alone decided.
        names: The names of the grants that answered, or that the answer created.
        by: The grants that the decision rests on.
        proposed: The action before the user replaced it, or None.
        kept: The numbers of the changes of a try that the user kept, or None. Then the action has run already.
        waits: True if the action runs on the layer of its turn, where its changes wait for a decision.
    """

    evaluation: Evaluation
    verdict: Allow | Deny
    answer: records.RecordedAnswer | None = None
    names: tuple[str, ...] = ()
    by: tuple[Grant, ...] = ()
    proposed: Action | None = None
    kept: frozenset[int] | None = None
    waits: bool = False


class Tries(Protocol):
    """The runs of an action on a layer, before the user decides about it."""

    async def offered(self, question: Question) -> Question:
        """Return the question, with the answer `try` if the action can run on a layer."""

    async def run(
        self, evaluation: Evaluation, answer: records.RecordedAnswer | None, question: Question
    ) -> Question | str:
        """Run the action on a layer, and return the question about what it changed, or why it was not tried."""

    async def waits(self, evaluation: Evaluation) -> str:
        """Prepare the layer on which an action that a rule tries runs. Return why it cannot run there, or nothing."""


class Requester(Protocol):
    """The part of the program that wants an action to run. It evaluates the action, asks about it and reports."""

    @property
    def approver(self) -> str:
        """Return the name of the approver for the record."""

    @property
    def grants(self) -> GrantStore:
        """Return the store of remembered answers."""

    def evaluate(self, action: Action) -> Evaluation:
        """Return the verdict on `action` as of now."""

    def decided(self, evaluation: Evaluation, verdict: Verdict) -> None:
        """Report a verdict before a question is asked."""

    def question(self, context: EvaluationContext, ask: Ask, again: str) -> Question:
        """Return the question for the user. `again` is the reason why the same action is asked about once more."""

    async def ask(self, question: Question) -> tuple[Answer, float]:
        """Put the question to the user, and return the answer and the time that it took in seconds."""

    def answered(self, yes: bool, feedback: str | None, client: records.AnsweringClient | None = None) -> None:
        """Report an answer. `client` is the client of a hosted session that answered, or None."""

    def accept_edits(self) -> None:
        """Change the mode of the session to accept-edits, because the user said so in an answer."""

    def replaced(self, action: RunScript, script: str) -> Action:
        """Report that the user replaced the script of `action`, and return the action with the new script."""

    def notice(self, text: str) -> None:
        """Show `text` to the user."""


async def authorize(
    evaluation: Evaluation, requester: Requester, early: EarlyAnswer | None = None, tries: Tries | None = None
) -> Authorization:
    """Decide about an evaluated action.

    Ask if the verdict is a question. Ask again if the evaluation after the answer is different, or if the user
    replaced the script, or after a try. `early` is an answer that the user gave before. Raise asyncio.CancelledError if
    the user stops the turn.
    """
    proposed, again = None, ""
    while True:
        lookup = consume(evaluation.recalled, requester.grants)
        verdict = lookup.verdict
        requester.decided(evaluation, verdict)
        recorded = lookup.answer
        if isinstance(verdict, Allow) and early is not None and isinstance(early.answer, Yes) and early.answer.mode:
            # The answer changed the mode, which allows the action by now.
            requester.answered(True, None, early.answer.client)
            recorded = _recorded_yes(early.question, early.answer, requester, early.seconds)
        if isinstance(verdict, Deny) or (
            isinstance(verdict, Allow) and (early is None or isinstance(early.answer, Yes))
        ):
            return Authorization(evaluation, verdict, recorded, lookup.names, lookup.by, proposed)
        if early is not None and (not isinstance(verdict, Ask) or not isinstance(early.answer, Yes)
                                  or _same(early.question, verdict, evaluation)):  # fmt: skip
            question, answer, seconds = early.question, early.answer, early.seconds
        else:
            assert isinstance(verdict, Ask)  # an Allow has returned, or has an early answer
            question = requester.question(lookup.context, verdict, again or (_CHANGED if early else ""))
            question = await tries.offered(question) if tries is not None else question
            if tries is not None and verdict.tries and question.card.tries and not again:
                # A rule wants the command to be tried, and the question to be about its changes.
                asked = replace(evaluation, verdict=verdict)
                if not (why := await tries.waits(asked)):
                    ran = preview_of(verdict)
                    requester.decided(asked, ran)
                    return Authorization(asked, ran, recorded, lookup.names, lookup.by, proposed, waits=True)
                question = await tries.offered(requester.question(lookup.context, verdict, why))
            answer, seconds = await requester.ask(question)
        early = None
        match answer:
            case Halt():
                raise asyncio.CancelledError  # no decision was made, no action ran, and the turn is over
            case No(feedback, wanted):
                requester.answered(False, feedback, answer.client)
                names = _remember(lookup.context, question.ask, wanted, requester)
                recorded = records.RecordedAnswer(
                    question.ask.question, False, requester.approver, feedback, seconds, client=answer.client
                )
                no = refuse(question.ask, feedback, requester.approver)
                return Authorization(evaluation, no, recorded, names, (), proposed)
            case Later():
                raise AssertionError("`ask_ahead` drops this answer, and a single question has no other answer")
            case Edited(script, then):
                action = evaluation.assessment.action
                if not isinstance(action, RunScript):  # `Edited` was not offered for this action, so it is a refusal
                    early = EarlyAnswer(question, No(), seconds)
                    continue
                proposed = proposed or action
                evaluation, again = requester.evaluate(requester.replaced(action, script)), EDITED
                if then is not None:
                    early = EarlyAnswer(then.question, then.answer, seconds)
            case Try():
                now = requester.evaluate(evaluation.assessment.action)
                if isinstance(now.verdict, Allow) or tries is None:
                    # What the user wanted to see first does not run at once.
                    early = EarlyAnswer(question, No(_CHANGED, client=answer.client), seconds)
                    continue
                evaluation, again = now, _CHANGED
                if isinstance(now.verdict, Ask) and _same(question, now.verdict, now):
                    shown = await tries.run(now, _recorded_yes(question, answer, requester, seconds), question)
                    if isinstance(shown, str):
                        again = shown
                    else:
                        early = EarlyAnswer(shown, *await requester.ask(shown))
            case Kept(numbers):
                now = requester.evaluate(evaluation.assessment.action)
                if isinstance(now.verdict, Allow) or (
                    isinstance(now.verdict, Ask) and _same(question, now.verdict, now)
                ):
                    requester.answered(True, None, answer.client)
                    recorded = _recorded_yes(question, answer, requester, seconds)
                    return Authorization(now, preview_of(now.verdict), recorded, proposed=proposed, kept=numbers)
                evaluation, again = now, _CHANGED
            case Yes(wanted, mode):
                now = requester.evaluate(evaluation.assessment.action)
                if isinstance(now.verdict, Ask) and _same(question, now.verdict, now):
                    if mode is not None:  # before the answer, which begins the rows of the call on a plain terminal
                        requester.accept_edits()
                    requester.answered(True, None, answer.client)
                    names = _remember(now.recalled.context, now.verdict, wanted, requester)
                    recorded = _recorded_yes(question, answer, requester, seconds)
                    return Authorization(now, approve(now.verdict), recorded, names, (), proposed)
                evaluation, again = now, _CHANGED


def _recorded_yes(
    question: Question, answer: Yes | Try | Kept, requester: Requester, seconds: float
) -> records.RecordedAnswer:
    mode = answer.mode.value if isinstance(answer, Yes) and answer.mode is not None else None
    return records.RecordedAnswer(
        question.ask.question, True, requester.approver, None, seconds, mode=mode, client=answer.client
    )


def _same(question: Question, ask: Ask, evaluation: Evaluation) -> bool:
    """Return True if the answer to `question` is an answer to `ask`.

    Both are about the same action, effects, reasons and rights, and about the same text of a file that is overwritten.
    The mode may have changed to accept-edits, which is stricter about nothing, by an answer to another question.
    """
    asked = question.ask
    if asked.cell.mode is Mode.DEFAULT and ask.cell.mode is Mode.ACCEPT_EDITS:
        asked = replace(asked, cell=replace(asked.cell, mode=Mode.ACCEPT_EDITS))
    return asked == ask and question.before == text_before(evaluation.assessment.action)


def _remember(
    context: EvaluationContext, ask: Ask, wanted: RememberedAnswer | None, requester: Requester
) -> tuple[str, ...]:
    """Remember the answer that the user `wanted`, if any, and return the names of the new grants for the record."""
    if wanted is None:
        return ()
    names, notice = keep(context, ask, wanted, requester.grants)
    requester.notice(notice)
    return names


_MOST = 1 << 20  # bytes of a file; no diff of a larger file is shown


def text_before(action: Action) -> str | None:
    """Return the current text of the file that `action` changes, or None if there is none of at most 1 MiB in UTF-8."""
    if not isinstance(action, WriteFile | EditFile):
        return None
    try:
        return read_whole(action.path, _MOST, follow=True).decode()
    except (OSError, ValueError):  # UnicodeDecodeError is a ValueError
        return None
