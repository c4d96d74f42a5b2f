"""The `Approver` protocol, its questions and answers, and the approver for unattended runs."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Protocol

from policy.model.frozen import dataclass
from policy.model.tier import Mode, Ruling
from policy.model.verdict import Ask
from runner.approval.remembered import NOTHING, Offer

if TYPE_CHECKING:
    from runner.audit.records import AnsweringClient
    from runner.event_values import Card, TriedCommand
    from runner.events import Emit
    from runner.gate.grants.store import RememberedAnswer


class Approver(Protocol):
    """An interface that answers questions of the gate.

    An approver that also has a method `ask_text(lines, prompt)` lets the user answer forms of tool servers: it shows
    the lines, and returns the typed text, or None if the user leaves the question. One with a method
    `answer_server(asked)` gets the whole form or page in place of that, and returns the answer to it. Questions of the
    model are asked with `ask_text` as well, or with `ask_model_questions(asked)`, which gets all questions of a call
    and returns an answer to each.

    An approver that also has a method `ask_all(questions)` receives the questions of a turn as one sequence of
    `Question` and returns the answers in the same order.

    An approver with the attribute `tries` set to True can show a card with `tried` and give the answers Try and Kept.
    To others a try is not offered.
    """

    @property
    def name(self) -> str:
        """Return the name of the approver in the audit log."""
        ...

    async def ask(self, ask: Ask, offer: Offer = NOTHING) -> "Answer":
        """Put the question `ask` to the user or program that decides.

        Return `Yes` only if the answer is clearly yes. An answer to remember must be one of those in `offer`.
        """
        ...

    async def leave_plan(self, plan: str) -> "PlanAnswer":
        """Show a plan, which is text of the model, and ask whether and in which mode to begin.

        Return a Stay unless the answer is clearly yes. Raise asyncio.CancelledError if the user stops the turn.
        """
        ...


@dataclass(frozen=True, slots=True)
class Question:
    """A question for an approver.

    Attributes:
        call: The key of the call, or an empty string if the action is not a call of the model.
        ask: The verdict that requires the question.
        offer: The answers that may be remembered.
        card: The description that the user sees.
        before: The text of the file that would be written, or None.
        again: The reason why the same call is asked about once more, or an empty string.
        id: The unique name of the question in this process, or an empty string for a question outside of a turn.
        edited: A function that returns the question about another script in place of this one, or None if that script
            leads to no question. None if the script cannot be replaced.
    """

    call: str
    ask: Ask
    offer: Offer
    card: "Card"
    before: str | None = None
    again: str = ""
    id: str = ""
    edited: "Callable[[str], Question | None] | None" = field(default=None, compare=False, repr=False)


# The modes that may follow plan mode. `dangerously` is not offered here: a user who wants this mode types /mode.
MODES_AFTER_PLAN = (Mode.DEFAULT, Mode.ACCEPT_EDITS, Mode.TRUST_PROJECT)
# The key that selects each mode: ask, edits, trust. Digits select no mode, and `d` refuses at other questions.
LETTERS = dict(zip("aet", MODES_AFTER_PLAN, strict=True))
QUESTION = "begin? " + ", ".join(f"{letter} {mode.value}" for letter, mode in LETTERS.items())


@dataclass(frozen=True, slots=True)
class Leave:
    """An approval of a plan: the model works on the plan in `mode`. `client` is the client of a hosted session that
    answered, or None.
    """

    mode: Mode
    client: "AnsweringClient | None" = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Stay:
    """A refusal of a plan. `feedback`, the user's own words, is sent to the model. `client` is as in Leave."""

    feedback: str | None = None
    client: "AnsweringClient | None" = field(default=None, repr=False)


PlanAnswer = Leave | Stay


def parse_plan_answer(text: str) -> PlanAnswer | None:
    """Parse a typed answer to the question that ends plan mode.

    The letter or the name of one of MODES_AFTER_PLAN approves the plan. An empty line, and `n` and `no` in
    upper or lower case, refuse the plan without a reason. Other words refuse the plan, with these words as the reason.
    Return None, so that the question is put again, for a number and for `y` and `yes`, which name no mode.
    """
    said = text.strip()
    names = [mode.value for mode in MODES_AFTER_PLAN]
    if said.lower() in ("", "n", "no"):
        return Stay()
    if said.lower() in ("y", "yes"):
        return None
    if said in LETTERS:
        return Leave(LETTERS[said])
    if said.isnumeric():
        return None
    return Leave(Mode(said)) if said in names else Stay(said)


_DIGITS = 9  # of a number of an item; a layer has at most a million entries

# The answer `t`, which approves nothing yet.
TRY = "try it first: without network, and its changes wait for your answer"
TRY_SHORT = "try it first, without network"
KEEP_HELP = "`all`, `none`, or numbers such as `1,3-5`"

# The answer `a`, which approves one edit and changes the mode.
ALL_EDITS = "yes, and all edits in the workspace from now on (mode accept-edits)"


@dataclass(frozen=True, slots=True)
class Yes:
    """An approval, valid once for exactly this action.

    Attributes:
        keep: The approval to remember for later actions, or None.
        mode: Mode.ACCEPT_EDITS to change the mode of the session as well, or None. Only for a card with `edits`.
        client: The client of a hosted session that answered, or None.
    """

    keep: "RememberedAnswer | None" = None
    mode: Mode | None = None
    client: "AnsweringClient | None" = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class No:
    """A refusal. `feedback`, the user's own words, is sent to the model. `keep` is the refusal to remember, or None.
    `client` is as in Yes.
    """

    feedback: str | None = None
    keep: "RememberedAnswer | None" = None
    client: "AnsweringClient | None" = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Later:
    """No answer, because another answer of the same list changed the mode: the action is evaluated when it is due."""


@dataclass(frozen=True, slots=True)
class Halt:
    """An answer that stops the turn: neither an approval nor a refusal."""


@dataclass(frozen=True, slots=True)
class Try:
    """An answer that runs the command without network on a layer, and asks again about what it changed. Only for a card
    with `tries`. `client` is as in Yes.
    """

    client: "AnsweringClient | None" = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Kept:
    """An answer to the question after a try: apply changes of the layer. `client` is as in Yes.

    Attributes:
        numbers: The numbers of the kept items of the card, from 1. A card without items has an empty set.
    """

    numbers: frozenset[int]
    client: "AnsweringClient | None" = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Edited:
    """An answer that replaces the proposed script. `script` is evaluated from scratch, like any other action.

    `then` is the answer to the question about `script`, if the user has answered that question already.
    """

    script: str
    then: "Reanswered | None" = None


@dataclass(frozen=True, slots=True)
class Reanswered:
    """An answer to the question about an edited script. The answer counts only if the same question is due."""

    question: Question
    answer: Yes | No


Answer = Yes | No | Later | Halt | Edited | Try | Kept

# Shows a prompt and returns one line. Raises EOFError at the end of input, KeyboardInterrupt for Ctrl-C.
ReadLine = Callable[[str], Awaitable[str]]


async def ask_approver(approver: Approver, questions: Sequence[Question]) -> tuple[Answer, ...]:
    """Return the answer to each question, in order.

    An invalid answer becomes a No. If `ask_all` returns a wrong number of answers, every answer becomes a No. An
    approver without `ask_all` is asked nothing after a Halt, and each remaining answer is a Halt.
    """
    ask_all = getattr(approver, "ask_all", None)
    if ask_all is not None:
        found = tuple(await ask_all(questions))
        if len(found) != len(questions):
            return tuple(No() for _ in questions)
    else:
        answers: list[Answer] = []
        for each in questions:
            stopped = bool(answers) and isinstance(answers[-1], Halt)
            answers.append(Halt() if stopped else await approver.ask(each.ask, each.offer))
        found = tuple(answers)
    answered = tuple(_valid_answer(answer, each) for answer, each in zip(found, questions, strict=True))
    accepted = any(isinstance(each, Yes) and each.mode is not None for each in answered)
    return tuple(
        No() if isinstance(answer, Later) and not (accepted and each.card.edits) else answer
        for answer, each in zip(answered, questions, strict=True)
    )


def _valid_answer(answer: object, question: Question) -> Answer:
    """Return `answer` if it is valid for `question`, else a No.

    THREAT: an answer may come from a program, too. An approval is valid only if `keep` is None or an approval, and if
    `mode` is None or the mode that the card offers.
    """
    match answer:
        case Yes() if question.card.tried is not None and not question.card.tried.runs:
            return No()
        case Yes(kept, mode) if (kept is None or kept.ruling is Ruling.ALLOW) and (
            mode is None or (mode is Mode.ACCEPT_EDITS and question.card.edits)
        ):
            return answer
        case Edited(script, then) if question.card.editable and isinstance(script, str) and script.strip():
            return answer if then is None or isinstance(then, Reanswered) else No()
        case Try() if question.card.tries:
            return answer
        case Kept(numbers) if question.card.tried is not None and may_keep(question.card.tried, numbers):
            return answer
        case No() | Halt() | Later():
            return answer
        case _:
            return No()


def may_keep(tried: "TriedCommand", numbers: object) -> bool:
    """Return True if `numbers` are items of a tried command, at least one if there is any."""
    every = frozenset(range(1, len(tried.items) + 1))
    return isinstance(numbers, frozenset) and numbers <= every and bool(numbers) == bool(every)


def kept_items(text: str, tried: "TriedCommand") -> Kept | No | None:
    """Return the answer that a typed choice of the items of a tried command means, or None if it is none."""
    if not tried.items:
        return Kept(frozenset()) if text in ("all", "yes", "y") else No() if text in ("none", "no", "n") else None
    numbers = chosen_numbers(text, len(tried.items))
    if numbers is None:
        return None
    return Kept(numbers) if numbers else No()


def chosen_numbers(answer: str, count: int) -> frozenset[int] | None:
    """Return the numbers, from 1 to `count`, that an answer selects; None if it is no answer."""
    if answer in ("all", "a", "yes", "y"):
        return frozenset(range(1, count + 1))
    if answer in ("none", "n", "no"):
        return frozenset()
    numbers = set[int]()
    for part in answer.replace(",", " ").split():
        first, sign, last = part.partition("-")
        if not (first.isascii() and first.isdecimal() and (not sign or (last.isascii() and last.isdecimal()))):
            return None
        if max(len(first), len(last)) > _DIGITS:
            return None
        low, high = int(first), int(last or first)
        if not 1 <= low <= high <= count:
            return None
        numbers.update(range(low, high + 1))
    return frozenset(numbers) or None


class Unattended:
    """The approver of a run without a user, which refuses every question and emits a notice.

    The policy denies such questions before they are asked; this class refuses even if the policy did not.
    """

    name = "nobody"

    def __init__(self, emit: "Emit") -> None:
        self._emit = emit

    async def ask(self, ask: Ask, offer: Offer = NOTHING) -> Answer:
        from runner.events import Notice

        self._emit(Notice("the action needs an answer and there is no user, so it is refused"))
        return No("there is no user to answer; use actions that are allowed without a question")

    async def leave_plan(self, plan: str) -> PlanAnswer:
        return Stay("there is no user to answer; give the plan as your answer")


def alike(card: "Card", other: "Card") -> bool:
    """Return True if one approval may answer both cards: equal tiers, and neither is dangerous or of unknown effect."""
    if card.tried is not None or other.tried is not None:
        return False
    return card.tier is other.tier and card.tiers == other.tiers and not card.careful and not other.careful
