"""Who answers when the gate asks. Whoever cannot answer says no."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Protocol

from policy.model.action import RunScript
from policy.model.frozen import dataclass
from policy.model.matrix import Ruling
from policy.model.verdict import Ask
from runner.approval.plan_answer import QUESTION, PlanAnswer, Stay, answered
from runner.approval.remember_options import HELP, NOTHING, Offer
from runner.gate.explain import caret_lines
from runner.text.sanitize import visible

if TYPE_CHECKING:
    from rich.console import Console

    from runner.events import Card, Emit
    from runner.gate.grants.store import Keep


@dataclass(frozen=True, slots=True)
class Yes:
    """Once, for exactly this action; with `keep`, also for what that says."""

    keep: "Keep | None" = None


@dataclass(frozen=True, slots=True)
class No:
    """`feedback` goes to the model in the person's own words."""

    feedback: str | None = None
    keep: "Keep | None" = None


@dataclass(frozen=True, slots=True)
class Halt:
    """Neither: the person stopped the turn."""


@dataclass(frozen=True, slots=True)
class Edited:
    """Neither: the person wrote another script in the place of the model's. The gate judges it as any other."""

    script: str


Answer = Yes | No | Halt | Edited

# Shows a prompt and returns one line. Raises EOFError at the end of input, KeyboardInterrupt for Ctrl-C.
ReadLine = Callable[[str], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Question:
    """What is put to whoever answers: `card` is what they see, `offer` what may be remembered of it. `call` names the
    call. `before` is the text of the file that would be written. `again` says why the same call is asked about once
    more. `id` names the question itself, in this process."""

    call: str
    ask: Ask
    offer: Offer
    card: "Card"
    before: str | None = None
    again: str = ""
    id: str = ""


class Approver(Protocol):
    """Who also has `ask_all(questions)` is given the questions of a turn as one list, and answers each in its place."""

    @property
    def name(self) -> str:
        """Who answers, as the audit log names it."""
        ...

    async def ask(self, ask: Ask, offer: Offer = NOTHING) -> Answer:
        """Put the question to whoever decides. Anything that is not a clear yes is a No or a Halt; what is to be kept
        is something that `offer` offers."""
        ...

    async def leave_plan(self, plan: str) -> PlanAnswer:
        """Show a plan, which is the model's words, and ask whether and how to begin. Anything that is not a clear yes
        is a Stay. Raises asyncio.CancelledError when the person stops the turn."""
        ...


async def ask_approver(approver: Approver, questions: Sequence[Question]) -> tuple[Answer, ...]:
    """The answer to each question. What is no answer, or one too few, is a no; after a Halt nothing more is asked."""
    ask_all = getattr(approver, "ask_all", None)
    if ask_all is not None:
        found = tuple(await ask_all(questions))
        if len(found) != len(questions):
            return tuple(No() for _ in questions)
    else:
        answers: list[Answer] = []
        for each in questions:
            stopped = bool(answers) and isinstance(answers[-1], Halt)
            answers.append(Halt() if stopped else await approver.ask(each.ask, each.offer))
        found = tuple(answers)
    return tuple(_sound(answer, each) for answer, each in zip(found, questions, strict=True))


def _sound(answer: object, question: Question) -> Answer:
    """THREAT: an answer comes from a program, too. Only a Yes that keeps a yes, or nothing, is one."""
    match answer:
        case Yes(kept) if kept is None or kept.ruling is Ruling.ALLOW:
            return answer
        case Edited(script) if question.card.editable and isinstance(script, str) and script.strip():
            return answer
        case No() | Halt():
            return answer
        case _:
            return No()


class Unattended:
    """Nobody is there: always no, and says so. The policy denies before asking; this holds even if it did not."""

    name = "nobody"

    def __init__(self, emit: "Emit") -> None:
        self._emit = emit

    async def ask(self, ask: Ask, offer: Offer = NOTHING) -> Answer:
        from runner.events import Notice

        self._emit(Notice("a question came up and nobody is there to answer it, so the answer is no"))
        return No("nobody is there to answer; use what is allowed without a question")

    async def leave_plan(self, plan: str) -> PlanAnswer:
        return Stay("nobody is there to answer; give the plan as your answer")


_SHORT = 12  # rows of a command that leave the question above it on any screen
_MANY = 40  # lines of a diff shown before the question; `x` shows all of it


class Terminal:
    """Asks on a terminal, line by line. Only `y`, `yes`, `all` and the letter of a choice are a yes: Enter, end of
    input and any other text are a no. A number is no answer, and the question is put again."""

    name = "terminal"

    def __init__(self, console: "Console", read_line: ReadLine) -> None:
        self._console = console
        self._read_line = read_line

    async def ask(self, ask: Ask, offer: Offer = NOTHING) -> Answer:
        from runner.approval.card import card

        # Who typed the command themselves types another one; there is no model that would have to hear of it.
        told = replace(card(ask, offer), editable=False)
        return (await self.ask_all((Question("", ask, offer, told),)))[0]

    async def ask_all(self, questions: Sequence[Question]) -> tuple[Answer, ...]:
        """Each in turn. Of several, all are shown before the first is asked, and `all` says yes to those that are like
        the one that is asked: of the same tier, and none that cannot be undone."""
        answers: dict[int, Answer] = {}
        if len(questions) > 1:
            self._print(f"{len(questions)} questions", style="bold")
            for place, each in enumerate(questions, 1):
                self._show(each, f"{place} of {len(questions)}: ")
        for place, each in enumerate(questions):
            if place in answers:
                continue
            like = {
                other: Yes()
                for other, one in enumerate(questions[place:], place)
                if other not in answers and alike(each.card, one.card)
            }
            if len(questions) == 1:
                self._show(each)
            else:  # the last one that was shown is another
                self._print(f"{place + 1} of {len(questions)}: {each.ask.question}", badge=each.card.tier.label)
            answer = await self._answer(each, like=len(like) > 1)
            answers.update(like if answer == "all" else {place: answer})
            if isinstance(answer, Halt):
                return tuple(Halt() for _ in questions)
        return tuple(answers[place] for place in range(len(questions)))

    async def _answer(self, question: Question, *, like: bool) -> "Answer | Literal['all']":
        offer = question.offer
        more = f"{'/all' if like else ''}{offer.keys}{'/edit' if question.card.editable else ''}/e(xplain)"
        prompt = f"allow once? [y/N{more}] or say what to do instead: "
        while True:
            try:
                text = (await self._read_line(prompt)).strip()
                match text.lower():
                    case "y" | "yes":
                        return Yes()
                    case "" | "n" | "no":
                        return No()
                    case "all" if like:
                        return "all"
                    case "e" | "x" | "explain":
                        self._explain(question)
                    case "edit" if question.card.editable:
                        script = (await self._read_line("the command instead (empty: as it was): ")).strip()
                        if script:
                            return Edited(script)
                    case _:
                        match offer.picked(text):
                            case None:
                                return No(text)
                            case str(mistake):
                                self._print(mistake, indent=2)
                            case kept:
                                return Yes(kept) if kept.ruling is Ruling.ALLOW else No(keep=kept)
            except EOFError:
                return No()
            except KeyboardInterrupt:
                return Halt()

    async def leave_plan(self, plan: str) -> PlanAnswer:
        self._print(plan)
        while True:
            try:
                text = await self._read_line(f"{QUESTION}; N(o), or say what to change: ")
            except EOFError:
                return Stay()
            except KeyboardInterrupt:
                raise asyncio.CancelledError from None
            if (answer := answered(text)) is not None:
                return answer

    def _show(self, question: Question, number: str = "") -> None:
        """The question, and everything it rests on. The command is shown whole: a hidden tail must not be approved."""
        card, offer = question.card, question.offer
        if question.again:
            self._print(question.again, style="italic")
        self._print(f"{number}{card.question}", style="bold", badge=card.tier.label)
        self._print(
            card.command,
            indent=2,
            marks=tuple((mark.start, mark.end) for mark in card.marks),
            lead="$ " if isinstance(question.ask.assessment.action, RunScript) else "",
        )
        for line in self._changes(card, _MANY):
            self._print(line, indent=2)
        self._print(f"why      {card.why} ({card.rule}; {card.cell})", indent=2)
        for label, words in card.terms:
            self._print(f"{label:<8} {words}", indent=2)
        for line in card.letters:
            self._print(f"letters  {line}", indent=2)
        for line in offer.lines:
            self._print(line, indent=4)
        rows = sum(1 + len(line) // self._console.width for line in card.command.split("\n"))
        if rows > _SHORT:  # its beginning may have left the screen, and the question with it
            self._print(f"again    {card.question}", indent=2)

    def _changes(self, card: "Card", most: int) -> list[str]:
        found = list(card.paths) if len(card.paths) > 1 else []
        if card.change is not None:
            lines, note = card.change.lines, card.change.note
            found += [note] if note else []
            found += lines if len(lines) <= most else [*lines[: most - 5], f"… {len(lines) - most} lines", *lines[-5:]]
        return found

    def _explain(self, question: Question) -> None:
        ask, offer = question.ask, question.offer
        for reason in ask.assessment.reasons:
            for line in caret_lines(ask.assessment.action, reason):
                self._print(line, indent=2)
        for effect in ask.assessment.effects:
            bound = "" if effect.exact else " and below"
            self._print(f"{effect.kind.value} {effect.target}{bound} [{effect.scope.value}]", indent=2)
        if ask.assessment.tree:
            self._print(ask.assessment.tree, indent=2)
        if (told := question.card.change) is not None and len(told.lines) > _MANY:
            for line in told.lines:
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


def alike(card: "Card", other: "Card") -> bool:
    """Whether one yes may answer both: the same kind of risk, and none that cannot be taken back or told."""
    return card.tier is other.tier and card.tiers == other.tiers and not card.careful and not other.careful
