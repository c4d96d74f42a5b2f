"""The `Approver` protocol, its questions and answers, and the approvers for a plain terminal and for unattended
runs."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Protocol

from policy.model.action import RunScript
from policy.model.frozen import dataclass
from policy.model.tier import Mode, Ruling
from policy.model.verdict import Ask
from runner.approval.remembered import HELP, NOTHING, Offer
from runner.gate.explain import caret_lines
from runner.text.sanitize import visible

if TYPE_CHECKING:
    from rich.console import Console

    from runner.event_values import Card
    from runner.events import Emit
    from runner.gate.grants.store import RememberedAnswer


class Approver(Protocol):
    """An interface that answers questions of the gate.

    An approver that also has a method `ask_all(questions)` receives the questions of a turn as one sequence of
    `Question` and returns the answers in the same order.
    """

    @property
    def name(self) -> str:
        """Return the name of the approver in the audit log."""
        ...

    async def ask(self, ask: Ask, offer: Offer = NOTHING) -> "Answer":
        """Put the question `ask` to the user or program that decides.

        Return `Yes` only if the answer is clearly yes. An answer to remember must be one of those in `offer`.
        """
        ...

    async def leave_plan(self, plan: str) -> "PlanAnswer":
        """Show a plan, which is text of the model, and ask whether and in which mode to begin.

        Return a Stay unless the answer is clearly yes. Raise asyncio.CancelledError if the user stops the turn.
        """
        ...


@dataclass(frozen=True, slots=True)
class Question:
    """A question for an approver.

    Attributes:
        call: The key of the call, or an empty string if the action is not a call of the model.
        ask: The verdict that requires the question.
        offer: The answers that may be remembered.
        card: The description that the user sees.
        before: The text of the file that would be written, or None.
        again: The reason why the same call is asked about once more, or an empty string.
        id: The unique name of the question in this process, or an empty string for a question outside of a turn.
    """

    call: str
    ask: Ask
    offer: Offer
    card: "Card"
    before: str | None = None
    again: str = ""
    id: str = ""


# The modes that may follow plan mode. `dangerously` is not offered here: a user who wants this mode types /mode.
MODES_AFTER_PLAN = (Mode.DEFAULT, Mode.ACCEPT_EDITS, Mode.TRUST_PROJECT)
# The key that selects each mode: ask, edits, trust. Digits select no mode, and `d` refuses at other questions.
LETTERS = dict(zip("aet", MODES_AFTER_PLAN, strict=True))
QUESTION = "begin? " + ", ".join(f"{letter} {mode.value}" for letter, mode in LETTERS.items())


@dataclass(frozen=True, slots=True)
class Leave:
    """An approval of a plan: the model works on the plan in `mode`."""

    mode: Mode


@dataclass(frozen=True, slots=True)
class Stay:
    """A refusal of a plan. `feedback`, the user's own words, is sent to the model."""

    feedback: str | None = None


PlanAnswer = Leave | Stay


def parse_plan_answer(text: str) -> PlanAnswer | None:
    """Parse a typed answer to the question that ends plan mode.

    The letter or the name of one of MODES_AFTER_PLAN approves the plan. An empty line, and `n` and `no` in
    upper or lower case, refuse the plan without a reason. Other words refuse the plan, with these words as the reason.
    Return None, so that the question is put again, for a number and for `y` and `yes`, which name no mode.
    """
    said = text.strip()
    names = [mode.value for mode in MODES_AFTER_PLAN]
    if said.lower() in ("", "n", "no"):
        return Stay()
    if said.lower() in ("y", "yes"):
        return None
    if said in LETTERS:
        return Leave(LETTERS[said])
    if said.isnumeric():
        return None
    return Leave(Mode(said)) if said in names else Stay(said)


@dataclass(frozen=True, slots=True)
class Yes:
    """An approval, valid once for exactly this action. `keep` is the approval to remember for later actions, or
    None.
    """

    keep: "RememberedAnswer | None" = None


@dataclass(frozen=True, slots=True)
class No:
    """A refusal. `feedback`, the user's own words, is sent to the model. `keep` is the refusal to remember, or None."""

    feedback: str | None = None
    keep: "RememberedAnswer | None" = None


@dataclass(frozen=True, slots=True)
class Halt:
    """An answer that stops the turn: neither an approval nor a refusal."""


@dataclass(frozen=True, slots=True)
class Edited:
    """An answer that replaces the proposed script. `script` is evaluated from scratch, like any other action."""

    script: str


Answer = Yes | No | Halt | Edited

# Shows a prompt and returns one line. Raises EOFError at the end of input, KeyboardInterrupt for Ctrl-C.
ReadLine = Callable[[str], Awaitable[str]]


async def ask_approver(approver: Approver, questions: Sequence[Question]) -> tuple[Answer, ...]:
    """Return the answer to each question, in order.

    An invalid answer becomes a No. If `ask_all` returns a wrong number of answers, every answer becomes a No. An
    approver without `ask_all` is asked nothing after a Halt, and each remaining answer is a Halt.
    """
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
    return tuple(_valid_answer(answer, each) for answer, each in zip(found, questions, strict=True))


def _valid_answer(answer: object, question: Question) -> Answer:
    """Return `answer` if it is valid for `question`, else a No.

    THREAT: an answer may come from a program, too. An approval is valid only if `keep` is None or an approval.
    """
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
    """The approver of a run without a user, which refuses every question and emits a notice.

    The policy denies such questions before they are asked; this class refuses even if the policy did not.
    """

    name = "nobody"

    def __init__(self, emit: "Emit") -> None:
        self._emit = emit

    async def ask(self, ask: Ask, offer: Offer = NOTHING) -> Answer:
        from runner.events import Notice

        self._emit(Notice("the action needs an answer and there is no user, so it is refused"))
        return No("there is no user to answer; use actions that are allowed without a question")

    async def leave_plan(self, plan: str) -> PlanAnswer:
        return Stay("there is no user to answer; give the plan as your answer")


_SHORT = 12  # screen rows; after a longer command the question is printed again, because it may have scrolled away
_MANY = 40  # lines of a diff shown before the question; the answer `x` shows the whole diff


class Terminal:
    """The approver that asks on a terminal, line by line.

    Only `y`, `yes`, `all` and the letter of an approval approve. `e`, `x` and `explain` show the reasons, `edit`
    replaces the command, and Ctrl-C stops the turn. Enter, end of input and any other text refuse. After a number,
    which is not an answer, the question is put again.
    """

    name = "terminal"

    def __init__(self, console: "Console", read_line: ReadLine) -> None:
        self._console = console
        self._read_line = read_line

    async def ask(self, ask: Ask, offer: Offer = NOTHING) -> Answer:
        from runner.approval.card import card

        # The user typed the command and can type another one; no model waits for the edited command.
        shown_card = replace(card(ask, offer), editable=False)
        return (await self.ask_all((Question("", ask, offer, shown_card),)))[0]

    async def ask_all(self, questions: Sequence[Question]) -> tuple[Answer, ...]:
        """Ask the questions one after the other.

        If there are several, all are shown before the first is asked. The answer `all` approves this question and all
        later ones that are `alike`.
        """
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
            else:  # the card that was printed last belongs to another question
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
                        script = (await self._read_line("new command (empty: unchanged): ")).strip()
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
            if (answer := parse_plan_answer(text)) is not None:
                return answer

    def _show(self, question: Question, number: str = "") -> None:
        """Print the question with its reasons and rights. The whole command is shown, because a hidden end must not be
        approved.
        """
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
        if rows > _SHORT:  # the question may have scrolled off the screen
            self._print(f"again    {card.question}", indent=2)

    def _changes(self, card: "Card", most: int) -> list[str]:
        found = list(card.paths) if len(card.paths) > 1 else []
        if card.change is not None:
            lines, note = card.change.diff, card.change.note
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


def alike(card: "Card", other: "Card") -> bool:
    """Return True if one approval may answer both cards: equal tiers, and neither is dangerous or of unknown effect."""
    return card.tier is other.tier and card.tiers == other.tiers and not card.careful and not other.careful
