"""The gate of a replayed session: the one interface between the suites and the policy, and two gates for comparison."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Allowed:
    """The call is made without a question."""


@dataclass(frozen=True, slots=True)
class Question:
    """A user would be asked. No user is present in a replay, so the call is not made.

    Attributes:
        rule: The rule that asks, as the record names it.
        words: The reasons of the question.
    """

    rule: str
    words: str


@dataclass(frozen=True, slots=True)
class Denied:
    """The call is refused without a question.

    Attributes:
        rule: The rule that denies, as the record names it.
        words: The reasons of the denial.
    """

    rule: str
    words: str


Answer = Allowed | Question | Denied


@dataclass(frozen=True, slots=True)
class ToolFacts:
    """The statements of a configuration about one tool of a server.

    Attributes:
        tier: The tier of the tool: `read`, `write`, `network` or `dangerous`.
        trusted: True if only the user's own account speaks in the results, so that they are trusted text.
        private: True if the results are private data.
    """

    tier: str
    trusted: bool = False
    private: bool = False


class Gate(Protocol):
    """One session in front of a policy."""

    def call(self, tool: str, arguments: Mapping[str, object]) -> Answer:
        """Return the verdict on one call."""

    def result(self, tool: str, text: str, planted: str = "") -> None:
        """Take note of the result that a call returned to the model. `planted` is the attacker's text; a gate adds it
        unless only the user's own account speaks in the results of `tool`.
        """


class Ungated:
    """A gate that allows every call."""

    def call(self, tool: str, arguments: Mapping[str, object]) -> Answer:
        """Allow the call."""
        return Allowed()

    def result(self, tool: str, text: str, planted: str = "") -> None:
        """Ignore the result."""


class EveryChangeAsks:
    """A gate that asks about each call of a tool whose tier is not `read`."""

    def __init__(self, tools: Mapping[str, ToolFacts]) -> None:
        self._tools = tools

    def call(self, tool: str, arguments: Mapping[str, object]) -> Answer:
        """Ask about a call that changes something."""
        tier = self._tools[tool].tier
        return Allowed() if tier == "read" else Question("every change", f"the tier of `{tool}` is {tier}")

    def result(self, tool: str, text: str, planted: str = "") -> None:
        """Ignore the result."""
