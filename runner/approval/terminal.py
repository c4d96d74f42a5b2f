"""The approver for a plain terminal, which asks line by line with the letters of the screen."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from policy.describe.phrases import named
from policy.model.action import RunScript
from policy.model.tier import Mode, Ruling
from policy.model.verdict import Ask
from runner.approval.approver import (
    QUESTION,
    Answer,
    Edited,
    Halt,
    Kept,
    Later,
    No,
    PlanAnswer,
    Question,
    ReadLine,
    Stay,
    Try,
    Yes,
    alike,
    kept_items,
    parse_plan_answer,
)
from runner.approval.card_text import EDIT_PROMPT, REASON_PROMPT, SHOWN_LINES, AnswerKeys, CardPrinter
from runner.approval.remembered import HELP, NOTHING, Offer
from runner.gate.explain import caret_lines, effect_words

if TYPE_CHECKING:
    from rich.console import Console


class Terminal:
    """The approver that asks on a terminal, line by line.

    Only `y`, `yes`, `a`, `A`, `all` and the letter of an approval approve. `t` tries a command; then `r` and numbers of
    changes approve as well. `x` shows the reasons, `e` replaces the command, and Ctrl-C stops the turn. Enter and end
    of input refuse. Any other text refuses as well, and the model
    reads it, but after a single character and after a number, which are never a reason, the question is put again. If
    no model waits for the answer (`model` is False, or the user typed the command), it is put again after any text.
    """

    name = "terminal"
    tries = True

    def __init__(self, console: "Console", read_line: ReadLine, *, model: bool = True) -> None:
        self._cards = CardPrinter(console)
        self._read_line = read_line
        self._model = model

    async def ask(self, ask: Ask, offer: Offer = NOTHING) -> Answer:
        from runner.approval.card import card

        # The user typed the command and can type another one; no model waits for the edited command.
        shown_card = replace(card(ask, offer), editable=False)
        return (await self.ask_all((Question("", ask, offer, shown_card),)))[0]

    async def ask_all(self, questions: Sequence[Question]) -> tuple[Answer, ...]:
        """Ask the questions one after the other.

        If there are several, all are shown before the first is asked.
        """
        answers: dict[int, Answer] = {}
        if len(questions) > 1:
            self._cards.print(f"{len(questions)} questions", style="bold")
            for place, each in enumerate(questions, 1):
                self.show(each, f"{place} of {len(questions)}: ")
        for place, each in enumerate(questions):
            if place in answers:
                continue
            later = [other for other in range(place + 1, len(questions)) if other not in answers]
            like = [other for other in later if alike(each.card, questions[other].card)]
            if len(questions) == 1:
                self.show(each)
            else:  # the card that was printed last belongs to another question
                self._cards.print(f"{place + 1} of {len(questions)}: {each.card.line}", badge=each.card.tier.label)
            match await self._answer(each, like=len(like), rest=len(later)):
                case Halt():
                    return tuple(Halt() for _ in questions)
                case "all":
                    answers.update(dict.fromkeys((place, *like), Yes()))
                case "rest":
                    answers.update(dict.fromkeys((place, *later), No()))
                case Yes(mode=mode) as answer if mode is not None:
                    answers.update({other: Later() for other in later if questions[other].card.edits})
                    answers[place] = answer
                case Yes() | No() | Later() | Edited() | Try() | Kept() as answer:
                    answers[place] = answer
        return tuple(answers[place] for place in range(len(questions)))

    async def _answer(self, question: Question, *, like: int, rest: int) -> "Answer | Literal['all', 'rest']":
        """Return the answer to one question: "all" for it and `like` later ones, "rest" to refuse `rest` later ones."""
        card, offer = question.card, question.offer
        reasons = self._model and not card.own
        keys = AnswerKeys(card, offer.keys, reasons=reasons, like=like, rest=rest)
        self._cards.print(keys.words, indent=2)
        while True:
            try:
                text = (await self._read_line(keys.prompt)).strip()
                if card.tried is not None and (chosen := kept_items(text.lower(), card.tried)) is not None:
                    return chosen
                match text:
                    case "t" if card.tries:
                        return Try()
                    case "r" if card.tried is not None and card.tried.runs:
                        return Yes()
                    case "a" if card.edits:
                        return Yes(mode=Mode.ACCEPT_EDITS)
                    case "A" | "all" if like:
                        return "all"
                    case "N" if rest:
                        return "rest"
                    case "x" | "explain":
                        self._explain(question)
                        continue
                    case "e" | "edit" if card.editable:
                        script = (await self._read_line(EDIT_PROMPT)).strip()
                        if script:
                            return Edited(script)
                        continue
                    case "f" if reasons:
                        return No((await self._read_line(REASON_PROMPT)).strip() or None)
                if text.lower() in ("y", "yes") and card.tried is None:
                    return Yes()
                if text.lower() in ("", "n", "no"):
                    return No()
                match offer.picked(text):
                    case None if reasons and len(text) > 1 and not (card.tried is not None and text[:1].isdigit()):
                        return No(text)
                    case None | str():
                        self._cards.print(keys.mistake(text), indent=2)
                    case kept:
                        return Yes(kept) if kept.ruling is Ruling.ALLOW else No(keep=kept)
            except EOFError:
                return No()
            except KeyboardInterrupt:
                return Halt()

    async def ask_text(self, lines: Sequence[str], prompt: str) -> str | None:
        """Show `lines`, and return the text that the user types at `prompt`, or None at the end of input."""
        for line in lines:
            self._cards.print(line, indent=2)
        try:
            return (await self._read_line(prompt)).strip()
        except (EOFError, KeyboardInterrupt):
            return None

    async def leave_plan(self, plan: str) -> PlanAnswer:
        self._cards.print(plan)
        while True:
            try:
                text = await self._read_line(f"{QUESTION}; N(o), or say what to change: ")
            except EOFError:
                return Stay()
            except KeyboardInterrupt:
                raise asyncio.CancelledError from None
            if (answer := parse_plan_answer(text)) is not None:
                return answer

    def show(self, question: Question, number: str = "", *, whole: bool = False) -> None:
        """Print the question with its rights and answers. With `whole`, a long change is shown as the answer `x` shows
        it.
        """
        action = question.ask.assessment.action
        self._cards.show(
            question.card,
            question.offer.lines,
            script=isinstance(action, RunScript),
            name=lambda: named(action, question.ask.terms),
            again=question.again,
            number=number,
            whole=whole,
        )

    def _explain(self, question: Question) -> None:
        ask, offer, card = question.ask, question.offer, question.card
        self._cards.print(f"why      {card.why} ({card.place}); {card.asks}", indent=2)
        for label, words in card.terms:
            self._cards.print(f"{label:<8} {words}", indent=2)
        for line in offer.details:
            self._cards.print(line, indent=2)
        for reason in ask.assessment.reasons:
            for line in caret_lines(ask.assessment.action, reason, brief=True):
                self._cards.print(line, indent=2)
        for effect in ask.assessment.effects:
            self._cards.print(effect_words(effect), indent=2)
        if ask.assessment.tree:
            self._cards.print(ask.assessment.tree, indent=2)
        if (change := question.card.change) is not None and len(change.diff) > SHOWN_LINES:
            for line in change.diff:
                self._cards.print(line, indent=2)
        if offer.lettered:
            self._cards.print(HELP, indent=2)
