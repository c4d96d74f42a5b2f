"""The questions about calls of a client: by a form in the client, else by `agent approve` in another terminal.

THREAT T197: nothing but a clear answer approves. An approval is the choice `yes` of the form, alone, for the question
that is open. Another choice, another field, a declined or broken form, an error of the client and the end of the time
are refusals. Without a way to ask, the call is refused and the reason names the way.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Protocol

from policy.model.action import EditFile, WriteFile
from policy.model.frozen import dataclass
from policy.model.verdict import Ask
from runner.approval.approver import Answer, No, PlanAnswer, Question, Stay, Yes
from runner.approval.open_questions import OpenQuestions, question_text
from runner.approval.remembered import NOTHING, Offer

CHOICE = "answer"  # the field of the form
CHOICES = ("no", "yes")  # `no` comes first, because a client may select the first choice
_LONGEST_FORM = 8_000  # characters; a client may cut a longer text, and the user must see the whole action
_WIDE = 5_000  # columns of the text in a form, which the client wraps
_HEAD = "ringfence asks before this action of the model. Answer `yes` to allow it once, exactly as shown."


class AskWay(StrEnum):
    """The place of questions. `client`: a form in the client if it shows forms, else another terminal. `terminal`:
    another terminal only, so that no answer of the client counts.
    """

    CLIENT = "client"
    TERMINAL = "terminal"


class ClientForms(Protocol):
    """The forms of the client of one call."""

    @property
    def supported(self) -> bool:
        """Return True if the client shows forms."""
        ...

    async def show(self, name: str, text: str) -> Mapping[str, object] | None:
        """Show a form, and return the fields that the user submitted; None if the user submitted nothing.

        Raise FormFailed if the client could not show the form.
        """
        ...


class FormFailed(Exception):
    """The error for a form that the client did not show, or whose answer is not valid. Its text names the reason."""


@dataclass(frozen=True, slots=True)
class AskSettings:
    """The way of questions of one server, and the seconds that each question waits for its answer."""

    way: AskWay = AskWay.CLIENT
    seconds: float = 120.0


class ClientApprover:
    """The Approver of one call. `name` is the author of the latest answer."""

    def __init__(
        self,
        client: str,
        forms: ClientForms,
        elsewhere: OpenQuestions,
        settings: AskSettings,
        told: Callable[[str], None],
    ) -> None:
        """`told` reports to the client that the call waits for another terminal."""
        self.name = "client"
        self._client = client
        self._forms = forms
        self._elsewhere = elsewhere
        self._settings = settings
        self._told = told

    async def ask(self, ask: Ask, offer: Offer = NOTHING) -> Answer:
        """Return no: the question has no name that an answer could refer to."""
        return No("there is no user to answer")

    async def ask_all(self, questions: Sequence[Question]) -> tuple[Answer, ...]:
        """Ask one question after the other."""
        return tuple([await self._answer(each) for each in questions])

    async def leave_plan(self, plan: str) -> PlanAnswer:
        return Stay("a client of `agent mcp serve` cannot end plan mode")

    async def _answer(self, question: Question) -> Answer:
        if self._settings.way is AskWay.CLIENT and self._forms.supported:
            text = self._elsewhere.mask(question_text(question, _WIDE))
            if max(len(text), _written(question)) <= _LONGEST_FORM:
                return await self._in_form(question, f"{_HEAD}\n\n{text}")
        return await self._at_terminal(question)

    async def _in_form(self, question: Question, text: str) -> Answer:
        self.name = "client"
        try:
            async with asyncio.timeout(self._settings.seconds):
                submitted = await self._forms.show(question.id, text)
        except TimeoutError:
            return self._late()
        except FormFailed as error:
            return No(f"the question in the client failed: {error}; `--ask terminal` asks in another terminal")
        if submitted is not None and dict(submitted) == {CHOICE: "yes"}:
            return Yes()
        return No()

    async def _at_terminal(self, question: Question) -> Answer:
        self.name = "terminal"
        if not self._elsewhere.reachable:
            return No("this session can ask nobody: the client shows no forms, and no other terminal reaches it")
        name = self._elsewhere.name(question)
        self._told(f"this call waits for the user: `agent approve {name}` in another terminal")
        yes = await self._elsewhere.ask(question, self._client, self._settings.seconds)
        return Yes() if yes is True else No() if yes is False else self._late()

    def _late(self) -> Answer:
        self.name = "time limit"
        return No(
            f"no answer came within {self._settings.seconds:g} s. While a call waits, the user can answer with "
            "`agent approve` in another terminal; tell the user about it before you repeat the call"
        )


def _written(question: Question) -> int:
    """Return the number of characters that a file tool would write, because a card shortens very long lines."""
    match question.ask.assessment.action:
        case WriteFile(content=text) | EditFile(new=text):
            return len(text)
    return 0
