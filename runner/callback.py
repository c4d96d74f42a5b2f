"""A program's function as an Approver: it is given one question at a time, and only a clear yes is one."""

from collections.abc import Awaitable, Callable, Sequence

from policy.verdict import Ask
from runner.approval import Answer, Edited, Halt, No, Question, Yes
from runner.approval_offer import NOTHING, Offer
from runner.card import card
from runner.plan_mode import PlanAnswer, Stay

# `True` is a yes for this once. An Answer says more; everything else is a no.
Decide = Callable[[Question], Awaitable[Answer | bool | None]]


class Callback:
    """What `decide` raises ends the run, and nothing more of it is done: a program that fails has allowed nothing."""

    name = "program"

    def __init__(self, decide: Decide) -> None:
        self._decide = decide

    async def ask(self, ask: Ask, offer: Offer = NOTHING) -> Answer:
        return (await self.ask_all((Question("", ask, offer, card(ask, offer)),)))[0]

    async def ask_all(self, questions: Sequence[Question]) -> tuple[Answer, ...]:
        """In order; after a Halt nothing more is asked."""
        answers: list[Answer] = []
        for each in questions:
            if answers and isinstance(answers[-1], Halt):
                answers.append(Halt())
                continue
            said = await self._decide(each)
            answers.append(said if isinstance(said, Yes | No | Halt | Edited) else Yes() if said is True else No())
        return tuple(answers)

    async def leave_plan(self, plan: str) -> PlanAnswer:
        return Stay("this program takes the plan as it is, and changes the mode itself")
