"""Who answers when the gate asks. Whoever cannot answer says no."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from policy.matrix import Ruling
from policy.record import dataclass
from policy.verdict import Ask
from runner.approval_offer import HELP, NOTHING, Offer
from runner.explain import caret_lines
from runner.plan_mode import QUESTION, PlanAnswer, Stay, answered
from runner.visible import look_alikes, visible
from runner.wording import action_words, cell_words, terms_words

if TYPE_CHECKING:
    from rich.console import Console

    from runner.events import Emit
    from runner.grant_store import Keep


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


Answer = Yes | No | Halt

# Shows a prompt and returns one line. Raises EOFError at the end of input, KeyboardInterrupt for Ctrl-C.
ReadLine = Callable[[str], Awaitable[str]]


class Approver(Protocol):
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


class Terminal:
    """Asks on a terminal, line by line. Only `y`, `yes` and the number of a choice are a yes: Enter, end of input and
    any other text are a no."""

    name = "terminal"

    def __init__(self, console: "Console", read_line: ReadLine) -> None:
        self._console = console
        self._read_line = read_line

    async def ask(self, ask: Ask, offer: Offer = NOTHING) -> Answer:
        self._show(ask, offer)
        prompt = f"allow once? [y/N{offer.keys}/e(xplain)] or say what to do instead: "
        while True:
            try:
                text = (await self._read_line(prompt)).strip()
            except EOFError:
                return No()
            except KeyboardInterrupt:
                return Halt()
            match text.lower():
                case "y" | "yes":
                    return Yes()
                case "" | "n" | "no":
                    return No()
                case "e" | "explain":
                    self._explain(ask, offer)
                case _:
                    match offer.picked(text):
                        case None:
                            return No(text)
                        case str(mistake):
                            self._print(mistake, indent=2)
                        case kept:
                            return Yes(kept) if kept.ruling is Ruling.ALLOW else No(keep=kept)

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

    def _show(self, ask: Ask, offer: Offer) -> None:
        """The question, and everything it rests on. The command is shown whole: a hidden tail must not be approved."""
        self._print(ask.question, style="bold", badge=ask.cell.tier.label)
        action = action_words(ask.assessment.action, ask.terms.workspace)
        self._print(action, indent=2)
        self._print(f"why      {ask.reason.text} ({ask.reason.rule}; {cell_words(ask.cell)})", indent=2)
        for label, words in terms_words(ask.terms):
            self._print(f"{label:<8} {words}", indent=2)
        for line in look_alikes(action):
            self._print(f"letters  {line}", indent=2)
        for line in offer.lines:
            self._print(line, indent=4)
        rows = sum(1 + len(line) // self._console.width for line in action.split("\n"))
        if rows > _SHORT:  # its beginning may have left the screen, and the question with it
            self._print(f"again    {ask.question}", indent=2)

    def _explain(self, ask: Ask, offer: Offer) -> None:
        for reason in ask.assessment.reasons:
            for line in caret_lines(ask.assessment.action, reason):
                self._print(line, indent=2)
        for effect in ask.assessment.effects:
            bound = "" if effect.exact else " and below"
            self._print(f"{effect.kind.value} {effect.target}{bound} [{effect.scope.value}]", indent=2)
        if ask.assessment.tree:
            self._print(ask.assessment.tree, indent=2)
        if offer.numbered:
            self._print(HELP, indent=2)

    def _print(self, text: str, *, indent: int = 0, style: str = "", badge: str = "") -> None:
        from rich.padding import Padding
        from rich.text import Text

        line = Text(overflow="fold")
        if badge:
            line.append(f" {badge} ", style="black on yellow").append("  ")
        line.append(visible(text), style=style)
        self._console.print(Padding(line, (0, 0, 0, indent), expand=False), markup=False, highlight=False)
