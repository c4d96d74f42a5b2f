"""Questions of a session without a terminal of its own, which wait for an answer by `agent approve` in another one.

THREAT T198: an answer must count for one question, once, and only while that question is open. Each question has a name
that no other question of this user's sessions has. The first answer closes the question, so that a second or late one
answers nothing. A value other than `yes` and `no` is no answer. The end of the time is a refusal.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from io import StringIO

from policy.model.frozen import dataclass
from policy.model.verdict import Problem, ProblemError
from runner.approval.approver import Question
from runner.approval.remembered import NOTHING

_LONGEST = 2 << 20  # characters of a shown question


class NotOpen(ProblemError):
    """The error for an answer or a request that names no open question."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """One open question.

    Attributes:
        question: The question.
        client: The name of the program whose call is asked about.
        until: The end of the wait on the monotonic clock.
        answer: The future of the answer: True for an approval.
    """

    question: Question
    client: str
    until: float
    answer: "asyncio.Future[bool]"


class OpenQuestions:
    """The open questions of one session, by name.

    `mask` removes secrets from a text that is shown.
    """

    def __init__(self, mask: Callable[[str], str] = lambda text: text) -> None:
        self.mask = mask
        self._session = ""
        self._open: dict[str, _Waiting] = {}

    @property
    def reachable(self) -> bool:
        """Return True if another terminal can answer."""
        return bool(self._session)

    def open_as(self, session: str) -> None:
        """Begin to accept questions: the control socket of `session` is open."""
        self._session = session

    def name(self, question: Question) -> str:
        """Return the name of `question` for `agent approve`."""
        return f"{self._session[:8]}.{question.id}"

    async def ask(self, question: Question, client: str, seconds: float) -> bool | None:
        """Wait for the answer to `question`. Return True for an approval, False for a refusal, and None if no answer
        came within `seconds`, or no terminal can answer.
        """
        if not self.reachable or not question.id:
            return None
        name = self.name(question)
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._open[name] = _Waiting(question, client, time.monotonic() + seconds, answer)
        try:
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError:
            return None
        finally:
            del self._open[name]

    def rows(self) -> list[dict[str, object]]:
        """Return the open questions as JSON-able objects, without their cards."""
        now = time.monotonic()
        return [
            {
                "id": name,
                "client": self.mask(each.client),
                "tier": each.question.card.tier.label,
                "line": self.mask(each.question.card.line),
                "seconds_left": max(0, round(each.until - now)),
            }
            for name, each in self._open.items()
        ]

    def shown(self, name: str, width: int) -> dict[str, object]:
        """Return the whole question as text of a plain terminal. Raise NotOpen."""
        found = self._found(name)
        text = self.mask(question_text(found.question, width))
        if len(text) > _LONGEST:
            what, why = "the question cannot be shown here", f"it has more than {_LONGEST:,} characters"
            raise NotOpen(Problem(what, why, "let the client split the action into smaller ones"))
        return {"id": name, "client": self.mask(found.client), "text": text}

    def answer(self, name: str, said: object) -> dict[str, object]:
        """Answer the question `name` with `yes` or `no`. Raise NotOpen for every other answer, and if the question is
        not open.
        """
        if said not in ("yes", "no"):
            raise NotOpen(Problem("the question was not answered", "an answer is `yes` or `no`", "answer again"))
        found = self._found(name)
        found.answer.set_result(said == "yes")
        return {"id": name, "answer": said}

    def _found(self, name: str) -> _Waiting:
        found = self._open.get(name)
        if found is None or found.answer.done():
            why = "it was answered, its time is over, or its call has ended"
            raise NotOpen(Problem(f"there is no open question `{name[:40]}`", why, "see `agent approve --list`"))
        return found


def question_text(question: Question, width: int) -> str:
    """Return the whole card of `question`, as the approver of a plain terminal prints it, without colours and without
    the answers that are remembered.
    """
    from rich.console import Console

    from runner.approval.terminal import Terminal

    async def no_input(prompt: str) -> str:
        raise EOFError

    sink = StringIO()
    console = Console(file=sink, width=width, force_terminal=False, color_system=None, legacy_windows=False)
    plain = replace(question, offer=NOTHING, card=replace(question.card, choices=(), edits=False))
    Terminal(console, no_input, model=False).show(plain, whole=True)
    return "\n".join(line.rstrip() for line in sink.getvalue().splitlines())
