"""The interface through which the engine reaches the hooks of a session, and the answers of hooks as values."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

from policy.model.frozen import dataclass

if TYPE_CHECKING:
    from runner.engine.budget import BudgetMeter


class HookDecision(IntEnum):
    """The kinds of answers of hooks, the mildest first. Of several answers to one event, the strictest counts."""

    ALLOW = 0  # no objection; it never allows what the policy asks about or denies
    MODIFY = 1  # another input of the call, which is planned and judged anew
    RETRY = 2  # a text for the model, which goes on
    ASK = 3  # a question to the user, whatever the policy says
    DENY = 4


@dataclass(frozen=True, slots=True)
class EventAnswer:
    """The answer of one hook to one event.

    Attributes:
        event: The event.
        place: The file and the line of the hook.
        decision: The kind of the answer.
        reason: The reason for a denial, a question or a retry, as untrusted text with secrets masked.
        input: The input that replaces that of the call, with the names of our tools; None without one.
        context: A text that the hook adds for the model.
        record: The number of the record of the run of the hook; 0 if it did not run.
        failed: True if the hook did not give an answer, so that this answer stands for its failure.
        halts: True if the hook ends the run.
    """

    event: str
    place: str
    decision: HookDecision = HookDecision.ALLOW
    reason: str = ""
    input: Mapping[str, object] | None = None
    context: str = ""
    record: int = 0
    failed: bool = False
    halts: bool = False


@dataclass(frozen=True, slots=True)
class HookReply:
    """The answers of all hooks to one event."""

    answers: tuple[EventAnswer, ...] = ()

    @property
    def deciding(self) -> EventAnswer | None:
        """Return the strictest answer, the first one among equally strict ones; None without any answer."""
        return max(self.answers, key=lambda each: each.decision, default=None)

    @property
    def decision(self) -> HookDecision:
        """Return the strictest decision."""
        return max((each.decision for each in self.answers), default=HookDecision.ALLOW)

    @property
    def halted(self) -> EventAnswer | None:
        """Return the first answer that ends the run, or None."""
        return next((each for each in self.answers if each.halts), None)

    def of(self, decision: HookDecision) -> tuple[EventAnswer, ...]:
        """Return the answers of one kind."""
        return tuple(each for each in self.answers if each.decision is decision)


class HookAccess(Protocol):
    """The hooks of one session. `runner.hooks.session_hooks.SessionHooks` implements it."""

    def wants(self, event: str) -> bool:
        """Return True if a hook is configured for `event`."""
        ...

    async def ask_about_call(
        self,
        event: str,
        tool: str,
        arguments: Mapping[str, object],
        call: str,
        *,
        result: Mapping[str, object] | None = None,
        agent: str = "",
    ) -> HookReply:
        """Run the hooks of `event` about a call of our tool `tool`, and return their answers.

        `call` is the id of the call, `result` its result after it ran, and `agent` the sub-agent that acts, or empty.
        """
        ...

    async def ask(self, event: str, subject: str, fields: Mapping[str, object], *, agent: str = "") -> HookReply:
        """Run the hooks of `event` whose matcher matches `subject`, and return their answers.

        `fields` are the fields of the input beyond those of every event.
        """
        ...

    def tell(self, event: str, subject: str, fields: Mapping[str, object]) -> None:
        """Run the hooks of `event` in the background. Their answers have no effect, and failures are reported."""
        ...

    async def begin_prompt(self, prompt: str, *, resumed: bool) -> HookReply:
        """Run the hooks of a prompt, before the first prompt also those of the start of the session."""
        ...

    def use_budget(self, agent: str, spent: "BudgetMeter") -> None:
        """Charge questions to the small model about `agent` to its run, which `spent` measures."""
        ...

    def marked(self, answers: Sequence[EventAnswer]) -> str:
        """Return the texts that these answers add for the model, marked as text of the hooks; empty without any."""
        ...
