"""The person at the screen, as the gate asks them: every question takes the place of the input."""

from collections.abc import Awaitable, Callable, Sequence

from policy.verdict import Ask
from runner.approval import Answer, No, Question
from runner.approval_offer import NOTHING, Offer
from runner.plan_mode import PlanAnswer, Stay
from runner.tui.approval import ApprovalPanel
from runner.tui.panel import Panel
from runner.tui.theme import DARK, Theme

# Shows a panel until it is answered; None when it went away without an answer.
Show = Callable[[Panel[object]], Awaitable[object]]


class CardApprover:
    """An Approver that shows cards by `show`. A panel that goes away without an answer is a no."""

    name = "terminal"

    def __init__(self, show: Show, theme: Callable[[], Theme] = lambda: DARK) -> None:
        self._show = show
        self._theme = theme

    async def ask(self, ask: Ask, offer: Offer = NOTHING) -> Answer:
        from runner.card import card

        return (await self.ask_all((Question("", ask, offer, card(ask, offer)),)))[0]

    async def ask_all(self, questions: Sequence[Question]) -> tuple[Answer, ...]:
        """One panel for all of them."""
        found = await self._show(ApprovalPanel(questions, theme=self._theme()))
        if not isinstance(found, tuple):
            return tuple(No() for _ in questions)
        return found

    async def leave_plan(self, plan: str) -> PlanAnswer:
        """Ask below the plan, which the screen shows as it comes."""
        from runner.tui.plan_question import PlanQuestion

        found = await self._show(PlanQuestion())
        return found if isinstance(found, PlanAnswer) else Stay()
