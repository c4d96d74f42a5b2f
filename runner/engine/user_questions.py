"""Questions of the model for the user: who is asked, and the answer as text for the model."""

from functools import partial
from typing import TYPE_CHECKING

from policy.model.action import AskUser
from policy.model.model_questions import ModelQuestion, asked_questions
from policy.model.profile import MAIN
from policy.model.tool_arguments import canonical_value
from policy.model.verdict import Problem
from runner.approval.model_questions import AskedByModel, ModelAnswer, QuestionAsker, ask_at_terminal
from runner.events import Notice
from sandbox.backend import Outcome

if TYPE_CHECKING:
    from runner.audit.records import AnsweringClient
    from runner.engine.run_context import RunContext

_NOBODY = "nobody can answer questions here: decide yourself, and say in your answer what you assumed"
_LEFT = "the user gave no answer: decide yourself or do without it, and say in your answer what you assumed"
_NO_APPROVAL = "An answer approves no action: the gate asks the user about actions by itself."


async def ask_user(action: AskUser, ctx: "RunContext") -> "tuple[Outcome, AnsweringClient | None]":
    """Put the questions to the user. Return the answers as text for the model, and the client of a hosted session that
    answered, or None.

    Without a user, the text says that nobody can answer. Raise asyncio.CancelledError if the user stops the turn.
    """
    questions = asked_questions(action)
    if not questions:
        return Outcome(1, problem=Problem("nothing was asked", "the questions cannot be read", "ask again")), None
    ask = _asker(ctx)
    if ask is None:
        what = "a question" if len(questions) == 1 else f"{len(questions)} questions"
        who = "the model" if ctx.agent == MAIN else f"the agent {ctx.agent}"
        ctx.emit(Notice(f"{who} asked {what}, and there is no user to answer"))
        return Outcome(0, _NOBODY.encode()), None
    async with ctx.asking:  # one question at a time on the screen
        answers = await ask(AskedByModel(questions, ctx.agent))
    if answers is None or len(answers) != len(questions):
        return Outcome(0, _LEFT.encode()), None
    if ctx.flow is not None:  # a selected choice is a text of the model
        for answer in answers:
            ctx.flow.hear(answer.words)
    text = ctx.redactor.text(answers_text(questions, answers))
    return Outcome(0, text.encode("utf-8", "replace")), answers[0].client


def answers_text(questions: tuple[ModelQuestion, ...], answers: tuple[ModelAnswer, ...]) -> str:
    """Return the answers for the model: each question with the choices that the user selected, and the user's words."""
    lines = ["the user answered:"]
    for question, answer in zip(questions, answers, strict=True):
        lines.append(f"- {' '.join(question.question.split())}")
        lines += [f"  selected: {canonical_value(label)}" for label in answer.chosen]
        if answer.words:
            lines.append("  in the user's own words: " + answer.words.replace("\n", "\n    "))
        if not answer.chosen and not answer.words:
            lines.append("  none of the choices")
    return "\n".join((*lines, _NO_APPROVAL))


def _asker(ctx: "RunContext") -> QuestionAsker | None:
    """Return the function that asks the user, or None if there is no user who could answer."""
    if ctx.unattended:
        return None
    ask: QuestionAsker | None = getattr(ctx.approver, "ask_model_questions", None)
    text = getattr(ctx.approver, "ask_text", None)
    return ask or (partial(ask_at_terminal, ask=text) if text is not None else None)
