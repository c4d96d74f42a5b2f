"""A program's function as an Approver: it is given one question at a time, and only a clear yes is one."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

from policy.model.verdict import Ask
from runner.approval.approver import Answer, Approver, Edited, Halt, No, Question, Yes
from runner.approval.card import card
from runner.approval.plan_answer import PlanAnswer, Stay
from runner.approval.remember_options import NOTHING, Offer
from runner.problems import usage

# `True` is a yes for this once. An Answer says more; everything else is a no.
Said = Answer | bool | None
Decide = Callable[[Question], Awaitable[Said] | Said]


class Callback:
    """An Approver that calls the function `decide`.

    An exception of `decide` ends the run, and no further action is executed: a program that fails has allowed nothing.
    """

    name = "program"

    def __init__(self, decide: Decide) -> None:
        self._decide = decide

    async def ask(self, ask: Ask, offer: Offer = NOTHING) -> Answer:
        return (await self.ask_all((Question("", ask, offer, card(ask, offer)),)))[0]

    async def ask_all(self, questions: Sequence[Question]) -> tuple[Answer, ...]:
        """Ask the questions in order. After a Halt, ask no more of them."""
        answers: list[Answer] = []
        for each in questions:
            if answers and isinstance(answers[-1], Halt):
                answers.append(Halt())
                continue
            said = self._decide(each)
            if inspect.isawaitable(said):
                said = await said
            answers.append(said if isinstance(said, Yes | No | Halt | Edited) else Yes() if said is True else No())
        return tuple(answers)

    async def leave_plan(self, plan: str) -> PlanAnswer:
        return Stay("this program takes the plan as it is, and changes the mode itself")


def approver_of(given: Approver | Decide | None) -> Approver | None:
    """Return the Approver for `approver`, or None. Raise a usage error if the value cannot answer a question."""
    if given is None:
        return None
    if hasattr(given, "ask"):
        missing = [name for name in ("name", "ask", "leave_plan") if not hasattr(given, name)]
        if missing:
            why = f"it has `ask`, but no {' and no '.join(f'`{name}`' for name in missing)}"
            raise usage("this approver cannot answer", why, "give it those as well, or give a function of a Question")
        return cast("Approver", given)
    if not callable(given):
        raise usage("this approver cannot answer", "it is no function", "give a function of a Question")
    return Callback(given)
