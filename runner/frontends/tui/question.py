"""The questions at the terminal: those of the gate, trust in a repository, and the start of a plan."""

import asyncio
from collections.abc import Sequence
from typing import Generic, TypeVar

from policy.model.frozen import dataclass
from policy.model.verdict import Ask
from runner.approval.approver import Answer, Question
from runner.approval.card import card
from runner.approval.plan_answer import PlanAnswer
from runner.approval.remember_options import NOTHING, Offer
from runner.config.trust.evaluate import Brought
from runner.config.trust.prompt import TrustReply
from runner.config.trust.text import contents, description, summary
from runner.events import Display
from runner.frontends.tui.app import App
from runner.frontends.tui.approval import ApprovalPanel
from runner.frontends.tui.fragments import Fragments, fit, wrapped
from runner.frontends.tui.keypress_guard import Guard
from runner.frontends.tui.panel import Done, Edit, Stay
from runner.frontends.tui.plan_question import PlanQuestion
from runner.frontends.tui.theme import DARK
from runner.text.sanitize import visible


class Panels:
    """The Approver that asks at an App. A question that disappears without an answer is a no."""

    name = "terminal"

    def __init__(self, app: App) -> None:
        self._app = app

    async def ask(self, ask: Ask, offer: Offer = NOTHING) -> Answer:
        return (await self.ask_all((Question("", ask, offer, card(ask, offer)),)))[0]

    async def ask_all(self, questions: Sequence[Question]) -> tuple[Answer, ...]:
        """Ask every question in one panel."""
        theme = getattr(self._app.screen, "theme", DARK)  # no screen yet: no session, and so no question
        return await self._app.ask(ApprovalPanel(questions, theme=theme))

    async def leave_plan(self, plan: str) -> PlanAnswer:
        return await self._app.ask(PlanQuestion())


async def trusted(app: App, brought: Brought) -> TrustReply:
    """Ask if the repository's content may be used, exactly as it is now."""
    head = "this repository brings things that count only when you trust them"
    app.emit(Display("\n".join([head, *description(brought, brief=True), "", summary(brought)]), "text"))
    ways: list[Way[str]] = [
        Way("y", "yes, until one byte of it changes", "yes"),
        Way("n", "no, go on without it; you are not asked about this content again", "no"),
        Way("s", "show the files whole", "show"),
        Way("q", "leave", "quit"),
    ]
    while True:
        answer = await app.ask(Choice("use what the repository brings, exactly as it is now?", ways, "quit"))
        if answer != "show":
            return TrustReply(answer)
        app.emit(Display("\n".join(contents(brought)), "text"))


def asker(app: App, loop: asyncio.AbstractEventLoop, brought: Brought) -> TrustReply:
    """Ask as `trusted` does, from another thread."""
    return asyncio.run_coroutine_threadsafe(trusted(app, brought), loop).result()


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Way(Generic[T]):
    """One answer to a Choice. With `edit`, the user writes a text, and `value` is not used."""

    key: str
    words: str
    value: T | None = None
    edit: bool = False


class Choice(Generic[T]):
    """A Panel whose answer is the value of a Way, a written text, or `left` for Escape.

    Enter answers nothing. A key that is pressed before the question can have been read answers nothing either.
    """

    def __init__(self, question: str, ways: Sequence[Way[T]], left: T) -> None:
        self._question = visible(question)
        self._ways = tuple(ways)
        self._left = left
        self._guard = Guard()

    def lines(self, width: int, rows: int) -> list[Fragments]:
        self._guard.drawn()
        room = max(rows - len(self._ways), 1)
        drawn = wrapped("bold", self._question, width)[:room]
        drawn += [[("bold ansicyan", f"  {way.key}"), ("", f"  {way.words}")] for way in self._ways]
        return [fit(row, width) for row in drawn]

    def key(self, key: str) -> Stay | Done[T | str] | Edit:
        if self._guard.early():
            return Stay()
        if key in ("escape", "c-d"):
            return Done(self._left)
        for way in self._ways:
            if key == way.key:
                return Edit("", way.words) if way.edit else Done(way.value if way.value is not None else self._left)
        return Stay()

    def edited(self, text: str | None) -> Stay | Done[T | str] | Edit:
        return Done(text) if text and text.strip() else Stay()
