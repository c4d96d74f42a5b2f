"""One command of an action as it would really run, and what it alone brings: what the users' rules are about."""

from dataclasses import field

from policy.assessment import Effect, Reason
from policy.record import dataclass
from policy.sense import Sense


@dataclass(frozen=True, slots=True)
class Step:
    """A simple command, also one inside a wrapper, a substitution or a script given as text; the innermost counts.

    `words`: as expanded, the program first; empty for what lies between the commands. `named`: the same as the walk
    understands it, without options before a subcommand: the first `name` words are the program and its subcommands.
    `also`: another spelling of those words (`npm install` for `npm i`). `text`: a script that could not be read.
    `cwds`: the folders that may be the current one, or None. `set_up`: variables were set that it may obey.
    `stranger`: nothing is known about the program. `interprets`: it may run what it is given on standard input.
    """

    words: tuple[Sense, ...] = ()
    named: tuple[Sense, ...] = ()
    name: int = 1
    also: tuple[str, ...] = ()
    text: str = ""
    cwds: tuple[str, ...] | None = None
    set_up: bool = False
    stranger: bool = False
    interprets: bool = False
    reasons: tuple[Reason, ...] = ()
    effects: tuple[Effect, ...] = ()

    @property
    def literal(self) -> tuple[str, ...] | None:
        """The words, when every one of them is certain."""
        texts = [word.text for word in self.words]
        return tuple(text for text in texts if text is not None) if texts and None not in texts else None


@dataclass(slots=True)
class Footing:
    """A Step that is still being found out about."""

    words: tuple[Sense, ...] = ()
    named: tuple[Sense, ...] = ()
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
