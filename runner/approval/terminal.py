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
    ALL_EDITS,
    QUESTION,
    Answer,
    Edited,
    Halt,
    Later,
    No,
    PlanAnswer,
    Question,
    ReadLine,
    Stay,
    Yes,
    alike,
    parse_plan_answer,
)
from runner.approval.remembered import HELP, NOTHING, Offer
from runner.gate.explain import caret_lines, effect_words
from runner.text.sanitize import one_line, visible

if TYPE_CHECKING:
    from rich.console import Console

    from runner.event_values import Card

_SHORT = 12  # screen rows; after a longer command the question is printed again, because it may have scrolled away
_MANY = 40  # lines of a diff shown before the question; the answer `x` shows the whole diff


class Terminal:
    """The approver that asks on a terminal, line by line.

    Only `y`, `yes`, `a`, `A`, `all` and the letter of an approval approve. `x` shows the reasons, `e` replaces the
    command, and Ctrl-C stops the turn. Enter and end of input refuse. Any other text refuses as well, and the model
    reads it, but after a single character and after a number, which are never a reason, the question is put again. If
    no model waits for the answer (`model` is False, or the user typed the command), it is put again after any text.
    """

    name = "terminal"

    def __init__(self, console: "Console", read_line: ReadLine, *, model: bool = True) -> None:
        self._console = console
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
            self._print(f"{len(questions)} questions", style="bold")
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
                self._print(f"{place + 1} of {len(questions)}: {each.card.line}", badge=each.card.tier.label)
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
                case Yes() | No() | Later() | Edited() as answer:
                    answers[place] = answer
        return tuple(answers[place] for place in range(len(questions)))

    async def _answer(self, question: Question, *, like: int, rest: int) -> "Answer | Literal['all', 'rest']":
        """Return the answer to one question: "all" for it and `like` later ones, "rest" to refuse `rest` later ones."""
        card, offer = question.card, question.offer
        reasons = self._model and not card.own
        keys = [("y", "yes, once"), ("n/Enter", "no")]
        keys += [("f", "no, and say why")] if reasons else []
        keys += [("e", "edit")] if card.editable else []
        keys += [("x", "explain")]
        keys += [("A", f"approve all {like + 1} alike")] if like else []
        keys += [("N", "no to the rest")] if rest else []
        self._print(" · ".join(" ".join(each) for each in keys), indent=2)
        letters = ["y", "N", *(["a"] if card.edits else []), *offer.keys]
        letters += [key for key, _ in keys if key in ("f", "e", "x", "A")]
        prompt = f"allow once? [{'/'.join(letters)}]{' or say what to do instead' if reasons else ''}: "
        while True:
            try:
                text = (await self._read_line(prompt)).strip()
                match text:
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
                        script = (await self._read_line("new command (empty: unchanged): ")).strip()
                        if script:
                            return Edited(script)
                        continue
                    case "f" if reasons:
                        return No((await self._read_line("what to do instead, or why not: ")).strip() or None)
                if text.lower() in ("y", "yes"):
                    return Yes()
                if text.lower() in ("", "n", "no"):
                    return No()
                match offer.picked(text):
                    case None if reasons and len(text) > 1:
                        return No(text)
                    case None | str():
                        listed = ", ".join(["y", "n", *letters[2:], *(["N"] if rest else [])])
                        self._print(f"`{one_line(text, 20)}` is not an answer here; answer {listed}", indent=2)
                    case kept:
                        return Yes(kept) if kept.ruling is Ruling.ALLOW else No(keep=kept)
            except EOFError:
                return No()
            except KeyboardInterrupt:
                return Halt()

    async def ask_text(self, lines: Sequence[str], prompt: str) -> str | None:
        """Show `lines`, and return the text that the user types at `prompt`, or None at the end of input."""
        for line in lines:
            self._print(line, indent=2)
        try:
            return (await self._read_line(prompt)).strip()
        except (EOFError, KeyboardInterrupt):
            return None

    async def leave_plan(self, plan: str) -> PlanAnswer:
        self._print(plan)
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
        """Print the question with its rights and answers. The whole command is shown, because a hidden end must not be
        approved. With `whole`, a long change is shown as the answer `x` shows it.
        """
        card, offer = question.card, question.offer
        if question.again:
            self._print(question.again, style="italic")
        self._print(f"{number}{card.line}", style="bold", badge=card.tier.label)
        self._print(
            card.command,
            indent=2,
            marks=tuple((mark.start, mark.end) for mark in card.marks),
            lead="$ " if isinstance(question.ask.assessment.action, RunScript) else "",
        )
        for line in self._changes(card, len(card.change.diff) if whole and card.change is not None else _MANY):
            self._print(line, indent=2)
        self._print(f"why      {card.why if card.special else card.asks}", indent=2)
        for label, words in (*card.rights, *(("but", caveat) for caveat in card.caveats)):
            self._print(f"{label:<8} {words}", indent=2)
        for line in card.letters:
            self._print(f"letters  {line}", indent=2)
        for line in (*([f"a  {ALL_EDITS}"] if card.edits else []), *offer.lines):
            self._print(line, indent=2)
        rows = sum(1 + len(line) // self._console.width for line in card.command.split("\n"))
        if rows > _SHORT:  # the question may have scrolled off the screen
            # THREAT T38: empty lines or comments may have pushed the beginning of the command off the screen as well.
            command = named(question.ask.assessment.action, question.ask.terms)
            self._print(f"again    {command}: {card.line}", indent=2)

    def _changes(self, card: "Card", most: int) -> list[str]:
        found = list(card.paths) if len(card.paths) > 1 else []
        if card.change is not None:
            lines, note = card.change.diff, card.change.note
            found += [note] if note else []
            found += lines if len(lines) <= most else [*lines[: most - 5], f"… {len(lines) - most} lines", *lines[-5:]]
        return found

    def _explain(self, question: Question) -> None:
        ask, offer, card = question.ask, question.offer, question.card
        self._print(f"why      {card.why} ({card.place}); {card.asks}", indent=2)
        for label, words in card.terms:
            self._print(f"{label:<8} {words}", indent=2)
        for line in offer.details:
            self._print(line, indent=2)
        for reason in ask.assessment.reasons:
            for line in caret_lines(ask.assessment.action, reason, brief=True):
                self._print(line, indent=2)
        for effect in ask.assessment.effects:
            self._print(effect_words(effect), indent=2)
        if ask.assessment.tree:
            self._print(ask.assessment.tree, indent=2)
        if (change := question.card.change) is not None and len(change.diff) > _MANY:
            for line in change.diff:
                self._print(line, indent=2)
        if offer.lettered:
            self._print(HELP, indent=2)

    def _print(
        self,
        text: str,
        *,
        indent: int = 0,
        style: str = "",
        badge: str = "",
        marks: tuple[tuple[int, int], ...] = (),
        lead: str = "",
    ) -> None:
        from rich.padding import Padding
        from rich.text import Text

        line = Text(overflow="fold")
        if badge:
            line.append(f" {badge} ", style="black on yellow").append("  ")
        body = Text(visible(text), style=style)
        for start, end in marks:
            body.stylize("bold red", start, end)
        line.append(lead).append_text(body)
        self._console.print(Padding(line, (0, 0, 0, indent), expand=False), markup=False, highlight=False)
