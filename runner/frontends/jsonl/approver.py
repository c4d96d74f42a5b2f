"""Questions that a program answers: each is sent as an event, and waits for the answer with its id."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial

from policy.model.frozen import dataclass
from policy.model.model_questions import ModelQuestion
from policy.model.tier import Mode, Ruling
from policy.model.verdict import Ask, Problem, ProblemError
from runner.approval.approver import (
    MODES_AFTER_PLAN,
    QUESTION,
    Answer,
    Edited,
    Halt,
    Kept,
    Later,
    Leave,
    No,
    PlanAnswer,
    Question,
    Stay,
    Try,
    Yes,
    kept_items,
)
from runner.approval.model_questions import LONGEST_ANSWER, AskedByModel, ModelAnswer
from runner.approval.remembered import NOTHING, Offer
from runner.event_values import TriedCommand
from runner.events import Emit, InputWanted, PickWanted
from runner.frontends.jsonl.protocol import AnswerLine
from runner.frontends.slash.command import Row
from runner.mcp.elicitation import (
    CANCELLED,
    REFUSED,
    ElicitedAnswer,
    ElicitedForm,
    ElicitedUrl,
    shown_fields,
    values_fault,
)
from runner.text.sanitize import one_line, visible_prose

_LONGEST_MESSAGE = 4000  # characters of the text of a tool server
_LONGEST_TITLE = 100  # characters
_NO_USER = "there is no user to answer"


class NoAnswer(ProblemError):
    """The error for an answer line that is not a valid answer to an open question. An open question stays open."""

    def __init__(self, why: str, fix: str) -> None:
        super().__init__(Problem("the line is not an answer to an open question", why, fix))


@dataclass(frozen=True, slots=True)
class _Pending:
    """A question that waits for its answer.

    Attributes:
        read: A function that converts the program's line to an answer, or raises NoAnswer.
        no: The answer if the program gives none.
        loose: True if the question belongs to no turn.
        answer: The future of the answer.
    """

    read: Callable[[AnswerLine], object]
    no: object
    loose: bool = False
    answer: "asyncio.Future[object]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Questions:
    """The Approver of JSON mode.

    The event of each question has a unique `id`, so that a late answer has no effect. After `close`, every question is
    answered with no.
    """

    name = "program"
    tries = True

    def __init__(self, emit: Emit) -> None:
        """Store `emit`, which gets the events of lists to pick from. The caller emits all other questions itself."""
        self._emit = emit
        self._pending: dict[str, _Pending] = {}
        self._lists = 0
        self._closed = False

    async def ask(self, ask: Ask, offer: Offer = NOTHING) -> Answer:
        """Return no: the question has no id that the program could answer."""
        return No(_NO_USER)

    async def ask_all(self, questions: Sequence[Question]) -> tuple[Answer, ...]:
        """Return the answers as soon as each question has one, or only Halts as soon as one answer is a Halt.

        The answer that accepts all edits closes the other questions about edits, which need no answer of their own.
        """
        pending = {each.id: _Pending(partial(_read, each), No(_NO_USER)) for each in questions}
        edits = [pending[each.id].answer for each in questions if each.card.edits]

        def close_edits(answered: "asyncio.Future[object]") -> None:
            answer = None if answered.cancelled() else answered.result()
            if isinstance(answer, Yes) and answer.mode is not None:
                for other in edits:
                    if not other.done():
                        other.set_result(Later())

        for each in edits:
            each.add_done_callback(close_edits)
        answers = await self._answers(pending)
        return tuple(each if isinstance(each, Answer) else No() for each in answers)

    async def leave_plan(self, plan: str) -> PlanAnswer:
        """Ask for the mode that follows plan mode. The caller has emitted the plan."""
        rows = [Row(mode.value, mode.value) for mode in MODES_AFTER_PLAN]
        answer = await self._listed(QUESTION, rows, _Pending(_planned, Stay(_NO_USER)))
        if isinstance(answer, Halt):
            raise asyncio.CancelledError
        return answer if isinstance(answer, Leave | Stay) else Stay()

    async def pick(self, title: str, rows: Sequence[Row]) -> str | None:
        """Return the value that the program picked, or None if it answered no or the list was withdrawn."""
        answer = await self._listed(title, rows, _Pending(lambda line: _picked(line, rows), None, loose=True))
        return answer if isinstance(answer, str) else None

    async def answer_server(self, asked: ElicitedForm | ElicitedUrl) -> ElicitedAnswer:
        """Ask the program for the input that a tool server requests. The caller has checked that it may be requested.

        An interruption, and the end of input, leave the question without an answer.
        """
        self._lists += 1
        id, message = f"p{self._lists}", visible_prose(asked.message)[:_LONGEST_MESSAGE]
        if isinstance(asked, ElicitedUrl):
            event = InputWanted(id, asked.server, message, (), asked.url, asked.host, asked.warning)
        else:
            event = InputWanted(id, asked.server, message, shown_fields(asked))
        self._emit(event)
        (answer,) = await self._answers({id: _Pending(partial(_server_answer, asked), CANCELLED, loose=True)})
        return answer if isinstance(answer, ElicitedAnswer) else CANCELLED

    async def ask_model_questions(self, asked: AskedByModel) -> tuple[ModelAnswer, ...] | None:
        """Ask the program for the answers to questions of the model; None if it gives none."""
        self._lists += 1
        id, fields = f"p{self._lists}", tuple(map(_question_field, enumerate(asked.questions, 1)))
        self._emit(InputWanted(id, "", asked.heading, fields, author="model", agent=asked.agent))
        pending = _Pending(partial(_model_answers, asked.questions), None, loose=True)
        (answer,) = await self._answers({id: pending})
        return answer if isinstance(answer, tuple) else None

    def answer(self, said: AnswerLine) -> None:
        """Answer the question that the program's line names. Raise NoAnswer if the line answers nothing."""
        pending = self._pending.get(said.id)
        if pending is None or pending.answer.done():
            raise NoAnswer(f"no open question has the id `{said.id}`", "answer each question once, by its id")
        answer = self.signed(pending.read(said))
        pending.answer.set_result(answer)
        self.closed(said.id, answered=True, answer=answer)

    def signed(self, answer: object) -> object:
        """Return the answer with its origin, for a session that several clients can answer; here without."""
        return answer

    def closed(self, id: str, *, answered: bool = False, answer: object = None) -> None:
        """Note that the question `id` is not open any more. `answered` is True if a line answered it, with `answer`. It
        may be noted twice.
        """

    def withdraw(self) -> None:
        """Close every open list of a /command without a choice. Questions of a turn end with the turn."""
        for pending in self._pending.values():
            if (pending.loose or self._closed) and not pending.answer.done():
                pending.answer.set_result(pending.no)

    def close(self) -> None:
        """Answer every open and every later question with no."""
        self._closed = True
        self.withdraw()

    async def _listed(self, title: str, rows: Sequence[Row], pending: _Pending) -> object:
        self._lists += 1
        id = f"p{self._lists}"
        self._emit(PickWanted(id, title, tuple(map(_shown, rows))))
        (answer,) = await self._answers({id: pending})
        return answer

    async def _answers(self, named: Mapping[str, _Pending]) -> tuple[object, ...]:
        if self._closed:
            return tuple(each.no for each in named.values())
        self._pending |= named
        try:
            waiting = {each.answer for each in named.values()}
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if any(isinstance(each.result(), Halt) for each in done):
                    return tuple(Halt() for _ in named)
            return tuple(each.answer.result() for each in named.values())
        finally:
            for id in named:
                del self._pending[id]
                self.closed(id)


def _server_answer(asked: ElicitedForm | ElicitedUrl, said: AnswerLine) -> ElicitedAnswer:
    """Return the answer to a request of a tool server. Raise NoAnswer if the line is no clear and complete answer."""
    form = isinstance(asked, ElicitedForm)
    if said.bare and said.answer in ("no", "cancel"):
        return REFUSED if said.answer == "no" else CANCELLED
    if said.answer != "yes" or said.feedback is not None or said.command is not None or (said.values is None) is form:
        how = "yes with `values`" if form else "yes, after the user opened the page"
        raise NoAnswer(f"`{said.answer}` is not an answer to this request", f"answer {how}, no, or cancel")
    if isinstance(asked, ElicitedForm) and (fault := values_fault(asked, said.values or {})):
        raise NoAnswer(fault, "correct `values`; the request is still open")
    return ElicitedAnswer(accepted=True, values=dict(said.values or {}))


def _question_field(numbered: tuple[int, ModelQuestion]) -> dict[str, object]:
    """Return one question of the model in the form of a field."""
    place, question = numbered
    return {
        "name": f"q{place}",
        "title": one_line(question.title, _LONGEST_TITLE),
        "description": visible_prose(question.question),
        "type": "array" if question.several else "string",
        "choices": [each.label for each in question.choices],
        "details": [visible_prose(each.description) for each in question.choices],
        "required": True,
        "default": None,
    }


def _model_answers(questions: tuple[ModelQuestion, ...], said: AnswerLine) -> tuple[ModelAnswer, ...] | None:
    """Return the answers to questions of the model. Raise NoAnswer if the line is no clear and complete answer."""
    if said.bare and said.answer in ("no", "cancel"):
        return None
    values = said.values or {}
    if said.answer != "yes" or said.feedback is not None or said.command is not None:
        raise NoAnswer(f"`{said.answer}` is not an answer to questions", "answer yes with `values`, no, or cancel")
    names = [f"q{place}" for place in range(1, len(questions) + 1)]
    if set(values) != set(names):
        raise NoAnswer("`values` must have one answer to each question", f"its names are {', '.join(names)}")
    return tuple(_model_answer(name, values[name], each) for name, each in zip(names, questions, strict=True))


def _model_answer(name: str, value: object, question: ModelQuestion) -> ModelAnswer:
    given = value if isinstance(value, list) and question.several else [value]
    texts = [each for each in given if isinstance(each, str)]
    labels = [each.label for each in question.choices]
    own = [each for each in texts if each not in labels]
    if len(texts) != len(given) or not all(each.strip() for each in texts) or len(own) > 1:
        many = "a list of choices with at most one other text" if question.several else "a text"
        raise NoAnswer(f"the answer `{name}` needs {many}", "correct `values`; the request is still open")
    if own and len(own[0]) > LONGEST_ANSWER:
        raise NoAnswer(f"the answer `{name}` is longer than {LONGEST_ANSWER:,} characters", "make it shorter")
    return ModelAnswer(tuple(each for each in labels if each in texts), own[0] if own else "")


def _picked(said: AnswerLine, rows: Sequence[Row]) -> str | None:
    if said.bare and said.answer in (row.value for row in rows):
        return said.answer
    if said.bare and said.answer == "no":
        return None
    raise NoAnswer(f"`{said.answer}` is not a value of the list", "answer the `value` of a row, or no")


def _planned(said: AnswerLine) -> PlanAnswer | Halt:
    if said.command is None and said.answer == "no":
        return Stay(said.feedback)
    if said.bare and said.answer == "stop":
        return Halt()
    if said.bare and said.answer in (mode.value for mode in MODES_AFTER_PLAN):
        return Leave(Mode(said.answer))
    ways = ", ".join(MODES_AFTER_PLAN)
    raise NoAnswer(f"`{said.answer}` is not an answer to a plan", f"answer {ways}, no (with `feedback`), or stop")


def _read(question: Question, line: AnswerLine) -> Answer:
    """Return the answer in a line of the program. Raise NoAnswer if the line is not a clear answer."""
    if (tried := question.card.tried) is not None:
        return _read_tried(tried, line)
    match line.answer:
        case "yes" if line.bare:
            return Yes()
        case "try" if line.bare and question.card.tries:
            return Try()
        case "no" if line.command is None:
            return No(line.feedback)
        case "stop" if line.bare:
            return Halt()
        case "edit" if line.feedback is None and line.command is not None and question.card.editable:
            return Edited(line.command)
        case "a" if line.bare and question.card.edits:
            return Yes(mode=Mode.ACCEPT_EDITS)
        case _ if line.bare and (remembering := _remembering_answer(line.answer, question)) is not None:
            return remembering
    keys = [*(["a"] if question.card.edits else []), *(key for pick in question.card.choices for key in pick.keys)]
    words = ["yes", "no (optionally with `feedback`)", "stop"]
    words += ["try"] if question.card.tries else []
    words += ["edit (with `command`)"] if question.card.editable else []
    words += [f"a key of its card ({', '.join(keys)})"] if keys else []
    why = f"`{line.answer}`, with the other fields of the line, is not an answer to this question"
    raise NoAnswer(why, f"answer {', '.join(words)}")


def _read_tried(tried: TriedCommand, line: AnswerLine) -> Answer:
    """Return the answer after a try. Raise NoAnswer if the line is not a clear answer.

    `yes` is none, because it could mean the changes or one more run.
    """
    first, _, numbers = line.answer.partition(" ")
    match first:
        case "keep" if line.bare:
            kept = kept_items(numbers.strip() or "all", tried)
            if isinstance(kept, Kept):
                return kept
        case "run" if line.bare and not numbers and tried.runs:
            return Yes()
        case "no" if line.command is None and line.values is None and not numbers:
            return No(line.feedback)
        case "stop" if line.bare and not numbers:
            return Halt()
    many = f", keep with numbers such as `keep 1,3` (of {len(tried.items)})" if len(tried.items) > 1 else ""
    why = f"`{one_line(line.answer, _LONGEST_TITLE)}` is not an answer to what a command did in a try"
    run = ", run" if tried.runs else ""
    raise NoAnswer(why, f"answer keep{many}{run}, no (optionally with `feedback`), or stop")


def _remembering_answer(said: str, question: Question) -> Answer | None:
    """Return the answer for a key of the card with its details (`p 7d because ...`), or None if it is not valid."""
    first = said.partition(" ")[0]
    pick = next((each for each in question.card.choices if first in each.keys), None)
    if pick is None:
        return None
    match question.offer.picked(said):
        case None | str():
            return None
        case kept:
            return Yes(kept) if kept.ruling is Ruling.ALLOW else No(keep=kept)


def _shown(row: Row) -> dict[str, str]:
    return {"value": row.value, "label": row.label, "detail": f"{row.detail}{'  (now)' if row.now else ''}".strip()}
