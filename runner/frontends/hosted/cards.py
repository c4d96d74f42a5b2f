"""The questions of a hosted session at an attached terminal, with the keys and words of the plain terminal."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from policy.model.model_questions import ModelQuestion, QuestionChoice
from runner.approval.approver import QUESTION, Kept, Leave, No, alike, kept_items, parse_plan_answer
from runner.approval.card_text import EDIT_PROMPT, REASON_PROMPT, AnswerKeys, CardPrinter
from runner.approval.model_questions import AskedByModel, ask_at_terminal
from runner.approval.remembered import HELP
from runner.event_values import Card
from runner.events import QuestionAsked
from runner.frontends.hosted.decoded import Undecodable, event_of_json
from runner.frontends.hosted.view import SessionView
from runner.text.sanitize import one_line

if TYPE_CHECKING:
    from runner.frontends.hosted.line import InputLine

_SHOWN = 30  # rows to pick from
_WIDTH = 200  # characters of a row


class DialogueClient(Protocol):
    """The client that a dialogue belongs to."""

    async def answer(self, id: str, answer: str, **fields: object) -> bool:
        """Send the answer to a question. Return False if it is not valid, so that the question is put again."""

    async def interrupt(self) -> None:
        """Stop the turn."""

    def is_open(self, id: str) -> bool:
        """Return True while the question can be answered."""


class QuestionDialogue:
    """The dialogue of one terminal. A question that another client answers meanwhile is left at once."""

    def __init__(self, view: SessionView, client: DialogueClient) -> None:
        self._cards = CardPrinter(view.console)
        self._view = view
        self._client = client

    async def ask(self, id: str, line: "InputLine") -> None:
        """Put the open question `id` until it is closed. Raise EOFError if the user detaches."""
        event = self._view.questions[id]
        match event["type"]:
            case "pick_wanted" if event.get("title") == QUESTION:
                await self._plan(id, line)
            case "pick_wanted":
                await self._pick(id, event, line)
            case "input_wanted" if event.get("author") == "model":
                await self._model(id, event, line)
            case "input_wanted":
                await self._form(id, event, line)
            case _:
                await self._card(id, line)

    async def _read(self, id: str, prompt: str, line: "InputLine") -> str | None:
        """Return the typed text without blanks at its ends, or None if the question is closed."""
        text = await line.read(prompt, until=lambda: not self._client.is_open(id), answer=True)
        return text.strip() if text is not None else None

    def _asked(self, id: str) -> tuple[QuestionAsked, Card] | None:
        """Return a question with its card, or None if it cannot be shown here."""
        try:
            event = event_of_json(self._view.questions[id])
        except Undecodable:
            return None
        return (event, event.card) if isinstance(event, QuestionAsked) and event.card is not None else None

    async def _card(self, id: str, line: "InputLine") -> None:
        found = self._asked(id)
        if found is None:  # THREAT T279: what cannot be shown whole is not approved here
            self._cards.print("a question cannot be shown by this version: answer it at another client")
            await self._read(id, "Ctrl-D detaches ", line)
            return
        asked, card = found
        others = {name: other[1] for name in self._view.questions if name != id and (other := self._asked(name))}
        like = [name for name, other in others.items() if alike(card, other)]
        keys = AnswerKeys(
            card, [pick.keys[0] for pick in card.choices], reasons=not card.own, like=len(like), rest=len(others)
        )
        self._cards.show(
            card,
            answer_lines(card),
            script=asked.call in self._view.scripts,
            name=lambda: f"`{one_line(card.command, 80)}`",
            again=asked.again,
        )
        self._cards.print(keys.words, indent=2)
        while self._client.is_open(id):
            try:
                text = await self._read(id, keys.prompt, line)
            except KeyboardInterrupt:
                await self._client.answer(id, "stop")
                return
            if text is None:
                return
            if await self._answered(id, text, card, keys, list(others), like, line):
                return

    async def _answered(
        self,
        id: str,
        text: str,
        card: Card,
        keys: AnswerKeys,
        others: Sequence[str],
        like: Sequence[str],
        line: "InputLine",
    ) -> bool:
        """Handle a typed answer. Return False if the question is put again."""
        letters = {key for pick in card.choices for key in pick.keys}
        if (tried := card.tried) is not None and (kept := kept_items(text.lower(), tried)) is not None:
            return await self._client.answer(id, _kept_words(kept))
        match text:
            case "t" if card.tries:
                return await self._client.answer(id, "try")
            case "r" if tried is not None and tried.runs:
                return await self._client.answer(id, "run")
            case "a" if card.edits:
                return await self._client.answer(id, "a")
            case "A" | "all" if like:
                return await self._all(id, like, "yes")
            case "N" if others:
                return await self._all(id, others, "no")
            case "x" | "explain":
                self._explain(card)
                return False
            case "e" | "edit" if card.editable:
                script = await self._read(id, EDIT_PROMPT, line)
                return bool(script) and await self._client.answer(id, "edit", command=script)
            case "f" if not card.own:
                reason = await self._read(id, REASON_PROMPT, line)
                return reason is not None and await self._client.answer(id, "no", **_feedback(reason))
        if text.lower() in ("y", "yes") and tried is None:
            return await self._client.answer(id, "yes")
        if text.lower() in ("", "n", "no"):
            return await self._client.answer(id, "no")
        if text.split()[0] in letters:
            return await self._client.answer(id, text)
        number = text.split()[0].isnumeric() or (tried is not None and text[:1].isdigit())
        if card.own or len(text) == 1 or number:
            self._cards.print(keys.mistake(text), indent=2)
            return False
        return await self._client.answer(id, "no", feedback=text)

    async def _all(self, id: str, others: Sequence[str], answer: str) -> bool:
        for each in (id, *others):
            if self._client.is_open(each):
                await self._client.answer(each, answer)
        return not self._client.is_open(id)

    def _explain(self, card: Card) -> None:
        self._cards.print(f"why      {card.why} ({card.place}); {card.asks}", indent=2)
        for label, words in card.terms:
            self._cards.print(f"{label:<8} {words}", indent=2)
        for pick in card.choices:
            but = f"; but not {' or '.join(pick.not_covered)}" if pick.not_covered else ""
            never = "no, and never: " if not pick.yes else ""
            self._cards.print(f"{pick.keys[0]}  {never}{pick.words}, {pick.where}{but}", indent=2)
        for reason in card.more:
            self._cards.print(reason, indent=2)
        for row in card.change.diff if card.change is not None else ():
            self._cards.print(row, indent=2)
        if any(pick.yes for pick in card.choices):
            self._cards.print(HELP, indent=2)

    async def _plan(self, id: str, line: "InputLine") -> None:
        self._cards.print(self._view.plan)
        while (text := await self._or_stop(id, f"{QUESTION}; N(o), or say what to change: ", line)) is not None:
            answer = parse_plan_answer(text)
            if isinstance(answer, Leave):
                if await self._client.answer(id, answer.mode.value):
                    return
            elif answer is not None and await self._client.answer(id, "no", **_feedback(answer.feedback or "")):
                return

    async def _or_stop(self, id: str, prompt: str, line: "InputLine") -> str | None:
        """Return the typed text; None if the question is closed, also because the user stopped the turn."""
        try:
            return await self._read(id, prompt, line)
        except KeyboardInterrupt:
            await self._client.interrupt()
            return None

    async def _pick(self, id: str, event: Mapping[str, object], line: "InputLine") -> None:
        found = event.get("rows")
        rows = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
        for number, row in enumerate(rows[:_SHOWN], 1):
            text = one_line(f"{row.get('label')}  {row.get('detail')}".rstrip(), _WIDTH)
            self._cards.print(f"{number:>3}  {text}")
        if len(rows) > _SHOWN:
            self._cards.print(f"     and {len(rows) - _SHOWN} more: type the name")
        while True:
            try:
                said = await self._read(
                    id, f"{one_line(str(event.get('title')), _WIDTH)} (a number; Enter leaves) ", line
                )
            except KeyboardInterrupt:
                said = ""
            if said is None:
                return
            if said.isascii() and said.isdigit() and 1 <= int(said[:9]) <= min(len(rows), _SHOWN):
                said = str(rows[int(said) - 1]["value"])
            else:
                named = [row for row in rows if said in (row.get("value"), row.get("label"))]
                said = str(named[0]["value"]) if named else said
            if await self._client.answer(id, said or "no"):
                return

    async def _model(self, id: str, event: Mapping[str, object], line: "InputLine") -> None:
        fields = _fields(event)
        questions = tuple(map(_model_question, fields))

        async def ask(lines: Sequence[str], prompt: str) -> str | None:
            for each in lines:
                self._cards.print(each, indent=2)
            return await self._or_stop(id, prompt, line)

        answers = await ask_at_terminal(AskedByModel(questions, str(event.get("agent"))), ask)
        if not self._client.is_open(id):
            return
        if answers is None:
            await self._client.answer(id, "no")
            return
        values: dict[str, object] = {}
        for field, question, answer in zip(fields, questions, answers, strict=True):
            texts = [*answer.chosen, *([answer.words] if answer.words else [])]
            values[str(field["name"])] = texts if question.several else texts[0]
        await self._client.answer(id, "yes", values=values)

    async def _form(self, id: str, event: Mapping[str, object], line: "InputLine") -> None:
        """Put the form or the page of a tool server."""
        self._cards.print(f"the tool server {event.get('server')} asks: {event.get('message')}")
        if event.get("url"):
            self._cards.print(f"{event.get('warning') or ''} {event.get('url')}".strip(), indent=2)
            said = await self._or_stop(id, "open the page yourself, then type yes; Enter: no ", line)
            if said is not None:
                await self._client.answer(id, "yes" if said.lower() in ("y", "yes") else "no")
            return
        values: dict[str, object] = {}
        for field in _fields(event):
            label = f"{field.get('title')} ({field.get('type')}{'' if field.get('required') else ', optional'})"
            if field.get("description"):
                self._cards.print(str(field["description"]), indent=2)
            if choices := field.get("choices"):
                self._cards.print(
                    f"choices: {', '.join(map(str, choices)) if isinstance(choices, list) else ''}", indent=2
                )
            said = await self._or_stop(id, f"{one_line(label, _WIDTH)}: ", line)
            if said is None:
                return
            if said:
                values[str(field["name"])] = _typed(said, str(field.get("type")))
            elif field.get("required"):
                await self._client.answer(id, "no")
                return
        await self._client.answer(id, "yes", values=values)


def _kept_words(answer: Kept | No) -> str:
    """Return the answer to the question after a try as a client sends it."""
    if isinstance(answer, No):
        return "no"
    return f"keep {','.join(map(str, sorted(answer.numbers)))}" if answer.numbers else "keep"


def answer_lines(card: Card) -> list[str]:
    """Return the answers of a card that can be remembered, in the words of the plain terminal."""
    return [
        f"{pick.keys[0]}  {pick.label}, {pick.where}" if pick.yes else f"d  no, and never {pick.where}: {pick.words}"
        for pick in card.choices
    ]


def _feedback(text: str) -> dict[str, object]:
    return {"feedback": text} if text else {}


def _fields(event: Mapping[str, object]) -> list[Mapping[str, object]]:
    found = event.get("fields")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _model_question(field: Mapping[str, object]) -> ModelQuestion:
    labels, details = field.get("choices"), field.get("details")
    pairs = zip(labels, details, strict=False) if isinstance(labels, list) and isinstance(details, list) else ()
    choices = tuple(QuestionChoice(str(label), str(detail)) for label, detail in pairs)
    return ModelQuestion(str(field["description"]), str(field["title"]), choices, field.get("type") == "array")


def _typed(text: str, kind: str) -> object:
    """Return the value that a typed text means in a field of a form. The session checks it."""
    if kind == "boolean" and text.lower() in ("y", "yes", "true", "n", "no", "false"):
        return text.lower() in ("y", "yes", "true")
    try:
        if kind == "integer":
            return int(text)
        if kind == "number":
            return float(text)
    except ValueError:
        return text
    return [part.strip() for part in text.split(",")] if kind == "array" else text
