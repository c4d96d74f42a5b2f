"""What an action would do, in tiers, each tier with the words that it rests on."""

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from policy.action import Action
from policy.record import dataclass
from policy.sense import AbstractWord
from policy.span import SourceSpan
from policy.tier import Tier


class EffectKind(StrEnum):
    READS = "reads"
    WRITES = "writes"
    DELETES = "deletes"
    RUNS = "runs"  # code the classifier cannot see through
    CONNECTS = "connects"
    PRIVILEGE = "needs-privilege"
    UNKNOWN = "cannot-tell"


class Scope(StrEnum):
    WORKSPACE = "workspace"
    SYSTEM = "system"
    OUTSIDE = "outside"
    SCRATCH = "scratch"  # /tmp: every session has its own, and nothing of the machine's
    SECRET = "secret"  # noqa: S105  # the name of a scope
    NONE = "none"  # not a path


@dataclass(frozen=True, slots=True)
class Effect:
    """One thing the action would do. `target` is a resolved path, a host, a program, or a reason.

    `exact` is False when `target` only bounds the effect: a folder below which a glob may match; for a host, when it is
    asked by packets that no proxy passes on. The `scope` of a host says where it is named: `workspace` in settings of
    the repository, `outside` in the person's own, `none` by the command itself.
    """

    kind: EffectKind
    target: str
    scope: Scope = Scope.NONE
    exact: bool = True


@dataclass(frozen=True, slots=True)
class RuleRef:
    """The rule that decided: `file` as shipped (`policy/commands/git.toml`) and its line, from 1 (0: built in)."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Reason:
    """Why one tier applies: in the user's words, pointing at the words of the script.

    `about`: the one effect that it is about, when it says nothing else.
    """

    tier: Tier
    text: str
    rule: RuleRef
    span: SourceSpan | None = None
    about: Effect | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """A simple command, also one inside a wrapper, a substitution or a script given as text; the innermost counts.

    `words`: as expanded, the program first; empty for what lies between the commands. `named`: the same as the walk
    understands it, without options before a subcommand: the first `name` words are the program and its subcommands.
    `also`: another spelling of those words (`npm install` for `npm i`). `text`: a script that could not be read.
    `cwds`: the folders that may be the current one, or None. `set_up`: variables were set that it may obey.
    `stranger`: nothing is known about the program. `interprets`: it may run what it is given on standard input.
    """

    words: tuple[AbstractWord, ...] = ()
    named: tuple[AbstractWord, ...] = ()
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


@dataclass(frozen=True, slots=True)
class Assessment:
    """The classifier's whole answer for one action. `plain_edit` marks what `accept-edits` may allow.

    `steps`: the same reasons and effects, by the command that brings them. `asked`: the users' rules that want a
    question first, whatever the tiers say. `covered`: the reasons that their rules allow, each with the rule's reason.
    `opened`: the hosts that those rules open for an effect, more exactly than the effect says it. `typed`: the effects
    that a person's flags added for this one action.
    """

    action: Action
    effects: tuple[Effect, ...]
    reasons: tuple[Reason, ...]
    plain_edit: bool = False
    tree: str = field(default="", compare=False)  # the parse, printed for people
    steps: tuple[Step, ...] = field(default=(), compare=False, repr=False)
    asked: tuple[Reason, ...] = ()
    covered: Mapping[Reason, Reason] = field(default_factory=dict)
    opened: Mapping[Effect, tuple[str, ...]] = field(default_factory=dict)
    typed: tuple[Effect, ...] = ()

    @property
    def tiers(self) -> tuple[Tier, ...]:
        """The tiers that apply, worst first. Never empty: nothing to say is `unknown`."""
        found = sorted({reason.tier for reason in self.reasons}, reverse=True)
        return tuple(found) or (Tier.UNKNOWN,)
