"""Who answers at the terminal: the gate's questions, what a repository brings, and whether a plan begins."""

import asyncio

from policy.verdict import Ask
from runner.approval import Answer, Halt, No, Yes
from runner.approval_offer import NOTHING, Offer
from runner.events import Shown
from runner.plan_mode import PlanAnswer
from runner.trust.brought import Brought
from runner.trust.question import Said
from runner.trust.words import contents, description, summary
from runner.tui.app import App
from runner.tui.choice import Choice, Way
from runner.tui.fragments import Fragments, fit, wrapped
from runner.tui.panel import Done, Edit, Stay
from runner.tui.plan_question import PlanQuestion
from runner.visible import visible
from runner.wording import action_words, terms_words


class Question:
    """y, n, f; nothing else."""

    def __init__(self, ask: Ask, offer: Offer) -> None:
        self._ask = ask
        self._offer = offer

    def lines(self, width: int, rows: int) -> list[Fragments]:
        ask = self._ask
        drawn = [[("reverse", f" {ask.cell.tier.label} "), ("bold", f" {visible(ask.question)}")]]
        drawn += wrapped("", visible(action_words(ask.assessment.action, ask.terms.workspace)), width)
        drawn += wrapped("dim", f"why  {ask.reason.text} ({ask.reason.rule})", width)
        for label, words in terms_words(ask.terms):
            drawn += wrapped("dim", visible(f"{label}  {words}"), width)
        drawn = [*drawn[: rows - 1], [("bold", "y yes, once   n no   f no, and say what to do instead")]]
        return [fit(row, width) for row in drawn]

    def key(self, key: str) -> Stay | Done[Answer] | Edit:
        match key:
            case "y":
                return Done(Yes())
            case "n" | "escape":
                return Done(No())
            case "f":
                return Edit("", "what to do instead")
            case "c-c":
                return Done(Halt())
            case _:
                return Stay()

    def edited(self, text: str | None) -> Stay | Done[Answer] | Edit:
        return Done(No(text)) if text else Stay()


class Panels:
    """Asks the person at an App."""

    name = "terminal"

    def __init__(self, app: App) -> None:
        self._app = app

    async def ask(self, ask: Ask, offer: Offer = NOTHING) -> Answer:
        return await self._app.ask(Question(ask, offer))

    async def leave_plan(self, plan: str) -> PlanAnswer:
        return await self._app.ask(PlanQuestion())


async def trusted(app: App, brought: Brought) -> Said:
    """Whether what the repository brings may be used, exactly as it is now."""
    head = "this repository brings things that count only when you trust them"
    app.emit(Shown("\n".join([head, *description(brought, brief=True), "", summary(brought)]), "text"))
    ways: list[Way[str]] = [
        Way("y", "yes, until one byte of it changes", "yes"),
        Way("n", "no, go on without it; you are not asked about this content again", "no"),
        Way("s", "show the files whole", "show"),
        Way("q", "leave", "quit"),
    ]
    while True:
        answer = await app.ask(Choice("use what the repository brings, exactly as it is now?", ways, "quit"))
        if answer != "show":
            return Said(answer)
        app.emit(Shown("\n".join(contents(brought)), "text"))


def asker(app: App, loop: asyncio.AbstractEventLoop, brought: Brought) -> Said:
    """As `trusted`, for another thread."""
    return asyncio.run_coroutine_threadsafe(trusted(app, brought), loop).result()
