"""A step under construction: collects the reasons and effects of one command while it is judged."""

from dataclasses import field

from policy.model.abstract_word import AbstractWord
from policy.model.assessment import Effect, Reason, Step
from policy.model.frozen import dataclass


@dataclass(slots=True)
class StepBuilder:
    """A Step that is being judged. The fields are those of Step; `step` returns the finished value."""

    words: tuple[AbstractWord, ...] = ()
    named: tuple[AbstractWord, ...] = ()
    name: int = 1
    also: tuple[str, ...] = ()
    text: str = ""
    cwds: tuple[str, ...] | None = None
    set_up: bool = False
    stranger: bool = False
    interprets: bool = False
    reasons: dict[Reason, None] = field(default_factory=dict)
    effects: dict[Effect, None] = field(default_factory=dict)

    def step(self) -> Step:
        """Return the step with the reasons and effects found so far."""
        return Step(
            self.words,
            self.named,
            self.name,
            self.also,
            self.text,
            self.cwds,
            self.set_up,
            self.stranger,
            self.interprets,
            tuple(self.reasons),
            tuple(self.effects),
        )
