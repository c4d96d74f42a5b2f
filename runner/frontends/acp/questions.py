"""Questions that the editor puts to its user (`session/request_permission`).

THREAT T288: an editor, or a program that poses as one, may answer late, twice, with an option that was not offered,
with nonsense, or not at all. Only the id of an offered option, in the first answer to an open request, counts.
Everything else is a no. A request is open only while its turn waits for it.

THREAT T311: an editor may show the kinds of options ("Accept", "Always accept") instead of their names, and select the
last one of a kind, so that its user approves more than was meant. Such an editor gets one option of each kind, the
narrowest one, none that remembers or changes the mode, and the card as a message. It gets no try either.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from acp import schema
from acp.exceptions import RequestError

from policy.model.frozen import dataclass
from policy.model.tier import Mode, Ruling
from policy.model.verdict import Ask
from runner.approval.approver import (
    ALL_EDITS,
    MODES_AFTER_PLAN,
    Answer,
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
)
from runner.approval.model_questions import AskedByModel, ModelAnswer
from runner.approval.open_questions import question_text
from runner.approval.remembered import NOTHING, Offer
from runner.event_values import Pick, TriedCommand
from runner.frontends.acp.markdown import fenced, inert
from runner.frontends.acp.updates import SessionUpdates, ToolContent, dumped, kind_of, shown
from runner.text.sanitize import one_line, visible, visible_prose

YES, NO, STOP, EDITS, TRY = "yes", "no", "stop", "a", "try"
KEEP, CHOOSE, RUN = "keep", "choose", "run"  # answers to what a tried command changed
_LONGEST_NAME = 300  # characters of an option
_LONGEST_FEEDBACK = 4000  # characters of a reason for a no
_WIDE = 100  # columns of a card
_SAID_NO = "the answer of the editor was none of the options, so it counts as a no"
_GONE = "the editor is gone, so nobody can answer"
_NO_WAY = "the editor cannot ask its user, so the answer is no"

# Parts of the names of editors that show kinds instead of names (seen in CodeCompanion.nvim of August 2026).
_SHOW_KINDS = ("CodeCompanion",)

# Sends a request for a permission with its parameters, and returns the result.
AskEditor = Callable[[dict[str, Any]], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class EditorReply:
    """The answer of an editor.

    Attributes:
        option: The id of the option, or empty for no valid answer.
        cancelled: True if the editor withdrew the question.
        feedback: The reason of the user, or None.
        why: Why there is no valid answer, or empty.
    """

    option: str = ""
    cancelled: bool = False
    feedback: str | None = None
    why: str = ""


def reply_of(result: object, offered: Collection[str]) -> EditorReply:
    """Return the reply in the result of a request. `offered` are the ids of the options."""
    outcome = result.get("outcome") if isinstance(result, dict) else None
    if not isinstance(result, dict) or not isinstance(outcome, dict):
        return EditorReply(why=_SAID_NO)
    if outcome.get("outcome") == "cancelled":
        return EditorReply(cancelled=True)
    option = outcome.get("optionId")
    if outcome.get("outcome") != "selected" or not isinstance(option, str) or option not in offered:
        return EditorReply(why=_SAID_NO)
    found = (meta.get("feedback") for each in (outcome, result) if isinstance(meta := each.get("_meta"), dict))
    words = next((each for each in found if isinstance(each, str) and each.strip()), None)
    return EditorReply(option, feedback=visible_prose(words[:_LONGEST_FEEDBACK]) if words is not None else None)


def options_of(question: Question, mask: Callable[[str], str] = lambda text: text) -> list[schema.PermissionOption]:
    """Return the options of a question of the gate. An option that remembers exists only if the gate offers it."""
    card = question.card
    if card.tried is not None:
        return _options_after_try(card.tried)
    options = [_option(YES, "Yes, once", "allow_once")]
    if card.tries:
        options.append(_option(TRY, "Try it without network, and decide about what it changed", "allow_once"))
    if card.edits:
        options.append(_option(EDITS, ALL_EDITS[:1].upper() + ALL_EDITS[1:], "allow_always"))
    for pick in card.choices:
        if pick.yes:
            options.append(_option(pick.keys[0], mask(f"Yes, {pick.label}, {pick.where}"), "allow_always"))
    options.append(_option(NO, "No", "reject_once"))
    for pick in card.choices:
        if not pick.yes:
            options.append(_option(pick.keys[0], mask(f"No, and never {pick.where}: {pick.words}"), "reject_always"))
    return [*options, _option(STOP, "No, and stop; I say what to do instead", "reject_once")]


def _options_after_try(tried: TriedCommand) -> list[schema.PermissionOption]:
    """Return the options of the question about what a command did in a try."""
    count = len(tried.items)
    everything = "Keep all changes" if count > 1 else "Keep the change" if count else "Use its output"
    options = [_option(KEEP, everything, "allow_once")]
    if count > 1:
        options.append(_option(CHOOSE, f"Choose which of the {count} changes to keep", "allow_once"))
    if tried.runs:
        options.append(_option(RUN, "Discard what it did, and run it as usual", "allow_once"))
    options.append(_option(NO, "Discard everything", "reject_once"))
    return [*options, _option(STOP, "Discard everything, and stop; I say what to do instead", "reject_once")]


def one_of_each_kind(options: Sequence[schema.PermissionOption]) -> list[schema.PermissionOption]:
    """Return the first option that approves once, which is the narrowest one, and the first one that refuses once."""
    found: dict[str, schema.PermissionOption] = {}
    for option in options:
        if option.kind in ("allow_once", "reject_once"):
            found.setdefault(option.kind, option)
    return list(found.values())


def answer_of(question: Question, reply: EditorReply) -> Answer:
    """Return the answer to a question of the gate that a reply means."""
    if reply.cancelled or reply.option == STOP:
        return Halt()
    if (tried := question.card.tried) is not None:
        return _answer_after_try(tried, reply)
    match reply.option:
        case "yes":
            return Yes()
        case "try" if question.card.tries:
            return Try()
        case "no":
            return No(reply.feedback)
        case "a" if question.card.edits:
            return Yes(mode=Mode.ACCEPT_EDITS)
        case key if key in _remembering(question.card.choices):
            match question.offer.picked(key):
                case None | str():
                    return No(_SAID_NO)
                case kept:
                    return Yes(kept) if kept.ruling is Ruling.ALLOW else No(reply.feedback, keep=kept)
    return No(reply.why or _SAID_NO)


def _answer_after_try(tried: TriedCommand, reply: EditorReply) -> Answer:
    match reply.option:
        case "keep":
            return Kept(frozenset(range(1, len(tried.items) + 1)))
        case "run" if tried.runs:
            return Yes()
        case _:
            return No(reply.feedback or reply.why or None)


def _remembering(choices: Sequence[Pick]) -> set[str]:
    return {key for pick in choices for key in pick.keys}


def _option(id: str, name: str, kind: schema.PermissionOptionKind) -> schema.PermissionOption:
    return schema.PermissionOption(option_id=id, name=one_line(name, _LONGEST_NAME), kind=kind)


class EditorQuestions:
    """The Approver of one session of an editor. `name` names the editor in the record."""

    def __init__(self, name: str, ask: AskEditor, updates: SessionUpdates, mask: Callable[[str], str]) -> None:
        self.name = name
        self._ask = ask
        self._updates = updates
        self._mask = mask
        self._shows_kinds = any(each in name for each in _SHOW_KINDS)
        self._others = 0  # requests that belong to no call

    @property
    def tries(self) -> bool:
        """Return True if the editor can ask about the changes of a tried command."""
        return not self._shows_kinds

    async def ask(self, ask: Ask, offer: Offer = NOTHING) -> Answer:
        """Return no: the question has no call that the editor shows."""
        return No("there is no user to answer")

    async def ask_all(self, questions: Sequence[Question]) -> tuple[Answer, ...]:
        """Ask one question after the other. After an answer that stops the turn, ask no more.

        The answer that accepts all edits closes the other questions about edits.
        """
        answers: list[Answer] = []
        edits = False
        for each in questions:
            if answers and isinstance(answers[-1], Halt):
                answers.append(Halt())
            elif edits and each.card.edits:
                answers.append(Later())
            else:
                answer = await self._gate(each)
                edits = edits or (isinstance(answer, Yes) and answer.mode is not None)
                answers.append(answer)
        return tuple(answers)

    async def leave_plan(self, plan: str) -> PlanAnswer:
        """Ask for the mode that follows plan mode. The plan was shown as a message."""
        options = [_option(mode.value, f"Begin in mode {mode.value}", "allow_once") for mode in MODES_AFTER_PLAN]
        options += [_option(NO, "No, keep planning", "reject_once"), _option(STOP, "No, and stop", "reject_once")]
        text = inert(visible_prose(self._mask(plan)))
        reply = await self._request(self._other("Begin with this plan?", text, "switch_mode"), options)
        if reply.cancelled or reply.option == STOP:
            from asyncio import CancelledError

            raise CancelledError
        modes = [mode for mode in MODES_AFTER_PLAN if mode.value == reply.option]
        return Leave(modes[0]) if modes else Stay(reply.feedback or reply.why or None)

    async def ask_model_questions(self, asked: AskedByModel) -> tuple[ModelAnswer, ...] | None:
        """Ask the user the questions of the model, one after the other; None if one is left without an answer."""
        if self._shows_kinds:  # the choices differ in their names only
            lines = (f"- {one_line(each.title, _LONGEST_NAME)}" for each in asked.questions)
            told = "\n".join(("This editor cannot show the choices of a question. Answer in your next prompt:", *lines))
            self._updates.note(self._mask(told))
            return None
        answers: list[ModelAnswer] = []
        for question in asked.questions:
            details = [f"- {each.label}: {each.description}" for each in question.choices if each.description]
            text = "\n".join((question.question, *details))
            options = [
                _option(f"c{number}", self._mask(each.label), "allow_once")
                for number, each in enumerate(question.choices, 1)
            ]
            options.append(_option(NO, "No answer", "reject_once"))
            content = inert(visible_prose(self._mask(text)))
            title = f"{asked.heading}: {one_line(question.title, 100)}"
            reply = await self._request(self._other(inert(self._mask(title)), content, "think"), options)
            place = int(reply.option[1:]) - 1 if reply.option.startswith("c") else -1
            if place < 0:
                return None
            answers.append(ModelAnswer((question.choices[place].label,), ""))
        return tuple(answers)

    async def _gate(self, question: Question) -> Answer:
        options = options_of(question, self._mask)
        # THREAT T231: text of the model in the card is code for the editor, so that it cannot pose as the card.
        text = visible(self._mask(question_text(question, _WIDE)))
        content: list[ToolContent] = [shown(fenced(text))]
        if details := question.offer.details:
            lines = "\n".join(visible(self._mask(line), lines=False) for line in details)
            content.append(shown(fenced(f"what each answer covers that is remembered:\n{lines}")))
        if self._shows_kinds:
            self._updates.card(text)
        call = self._updates.asked(question, self._mask)
        update = schema.ToolCallUpdate(
            tool_call_id=call.id,
            title=call.title,
            kind=kind_of(question.ask.assessment.action),  # a client may else guess it from the title
            status="pending",
            content=[*call.content, *content],
        )
        reply = await self._request(update, options)
        if reply.option == CHOOSE and question.card.tried is not None:
            return await self._chosen(question.card.tried)
        return answer_of(question, reply)

    async def _chosen(self, tried: TriedCommand) -> Answer:
        """Ask about each change of a tried command. After an answer that is none, nothing is kept."""
        kept: set[int] = set()
        options = [_option(KEEP, "Keep it", "allow_once"), _option(NO, "Discard it", "reject_once")]
        options.append(_option(STOP, "Discard everything, and stop", "reject_once"))
        for number, item in enumerate(tried.items, 1):
            title = f"Keep change {number} of {len(tried.items)}?"
            text = fenced(visible(self._mask(item), lines=False))
            reply = await self._request(self._other(title, text, "edit"), options)
            if reply.cancelled or reply.option == STOP:
                return Halt()
            if not reply.option:
                return No(reply.why or None)
            if reply.option == KEEP:
                kept.add(number)
        return Kept(frozenset(kept)) if kept else No()

    def _other(self, title: str, content: str, kind: schema.ToolKind) -> Any:
        self._others += 1
        id = f"question-{self._others}"
        return schema.ToolCallUpdate(
            tool_call_id=id, title=title, kind=kind, status="pending", content=[shown(content)]
        )

    async def _request(self, call: schema.ToolCallUpdate, options: Sequence[schema.PermissionOption]) -> EditorReply:
        options = one_of_each_kind(options) if self._shows_kinds else options
        params = {"toolCall": dumped(call), "options": dumped(options)}
        try:
            result = await self._ask(params)
        except RequestError as error:
            return EditorReply(why=f"{_NO_WAY} ({one_line(str(error), 200)})")
        except ConnectionError:
            return EditorReply(why=_GONE)
        return reply_of(result, {each.option_id for each in options})
