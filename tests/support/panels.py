"""A panel of the screen that shows questions."""

from collections.abc import Callable, Sequence

from policy.model.verdict import Ask
from runner.approval.approver import Answer, Question
from runner.approval.remembered import NOTHING, Offer

Script = Callable[[Question], object]


class Panel:
    """Answers lists of questions: `first` by what it makes of each question, and so on for the next list."""

    name = "panel"

    def __init__(self, *lists: Script) -> None:
        self._lists = list(lists)
        self.asked: list[tuple[Question, ...]] = []

    async def ask_all(self, questions: Sequence[Question]) -> list[Answer]:
        self.asked.append(tuple(questions))
        answer = self._lists.pop(0)
        return [answer(each) for each in questions]  # type: ignore[misc]  # wrong answers are part of the tests

    async def ask(self, ask: Ask, offer: Offer = NOTHING) -> Answer:
        raise AssertionError("a list is asked as a list")
