"""A remembered answer as structure: what it is about, for whom, for how long. Never the text of a command."""

import shlex
from enum import StrEnum

from policy.describe.phrases import joined, plain
from policy.model.assessment import RuleKind, RuleRef
from policy.model.command_pattern import HOLE, CommandPattern
from policy.model.frozen import dataclass
from policy.model.matrix import Ruling
from policy.model.permission_rule import Layer, PermissionRule, Tool
from policy.model.tier import Tier
from policy.model.word_patterns import is_flag

MAIN = "main"  # the agent that a person talks to; those that it starts have other names
EVERYWHERE = ""  # the workspace of a grant of scope `user`
CLOCKS_DIFFER = 300.0  # seconds by which two honest clocks may differ
_TELLING = 300  # characters of a grant's words on one line


class GrantScope(StrEnum):
    """How far a remembered answer reaches. What holds once is not remembered: it is a yes."""

    SESSION = "session"
    PROJECT = "project"  # this workspace, by its path
    USER = "user"  # every workspace


@dataclass(frozen=True, slots=True)
class GrantSubject:
    """What an answer is about: one command (`shape` with words), or what lies between the commands and file tools.

    `tool`: with which of the tools. `read`, `write`: paths, absolute or relative to the workspace, with `/**` at its
    end for what is in that folder, with `/` for the folder and all that is in it; `host`: entries of an allowlist. They
    bound what the command reads outside, changes, and talks to. `tiers`: the kinds of risk that were accepted.
    """

    shape: CommandPattern
    tool: tuple[Tool, ...] = ()
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    host: tuple[str, ...] = ()
    tiers: tuple[Tier, ...] = ()

    @property
    def ceiling(self) -> Tier:
        """The worst tier that it may be: an action that rises above it is not covered."""
        return max(self.tiers, default=Tier.READ)

    @property
    def command(self) -> str:
        """Its command in backticks, with holes as `*`; empty when it is about none."""
        line = " ".join(word if word == HOLE else shlex.quote(word) for word in self.shape.words)
        return f"`{plain(line, _TELLING)}`" if line else ""

    @property
    def words(self) -> str:
        """It as people read it, on one line: `npm test` with any flags, for files in docs/."""
        shape = self.shape
        if shape.words:
            open_ended = shape.flags or HOLE in shape.words
            said = ("" if open_ended else "exactly ") + self.command
            said += (
                f" with {'any' if not any(map(is_flag, shape.words)) else 'any further'} flags" if shape.flags else ""
            )
            said += f", in {plain(shape.folder)}/" if shape.folder else ""
            for doing, bounds in (("reading", self.read), ("changing", self.write), ("talking to", self.host)):
                told = [
                    each
                    for each in bounds
                    if open_ended or not any(each.removesuffix("/**").rstrip("/") in w for w in shape.words)
                ]
                said += f", {doing} {_listed(tuple(told))}" if told else ""
            return said
        parts = [f"reading {_listed(self.read)}"] if self.read else []
        parts += [f"changing {_listed(self.write)}"] if self.write else []
        by = "the file tools" if self.tool and Tool.BASH not in self.tool else "a redirection"
        return f"{joined(parts)} by {by}"


@dataclass(frozen=True, slots=True)
class Grant:
    """One remembered yes (`ruling` ALLOW) or no (DENY).

    `workspace`: the real path it holds in, EVERYWHERE for scope user. `agent`: who it was given to. `session`: the one
    it holds in, empty for the other scopes. `created`, `expires`: seconds since 1970, by the clock of this machine.
    `uses`: how often it may still be used; None for any number. `who`: whose answer it was. `script`: the action that
    led to it, for people, with every secret taken out. `over`: it was seen expired or spent, and stays so.
    """

    id: str
    what: GrantSubject
    ruling: Ruling
    span: GrantScope
    workspace: str
    agent: str
    session: str
    created: float
    expires: float | None = None
    uses: int | None = None
    who: str = ""
    reason: str = ""
    script: str = ""
    over: bool = False

    @property
    def rule(self) -> PermissionRule:
        """It as a rule that the gate judges by. A no is broad, as every denial; a yes is exactly its shape."""
        what = self.what
        allows = self.ruling is Ruling.ALLOW
        return PermissionRule(
            self.ruling,
            RuleRef(RuleKind.GRANT, self.id),
            Layer.GRANT,
            run=tuple((word,) for word in what.shape.words),
            more=what.shape.flags,
            tool=what.tool,
            read=what.read if allows or not what.shape.words else (),
            write=what.write if allows or not what.shape.words else (),
            host=what.host if allows else (),
            tier=(what.tiers or (Tier.READ,)) if allows else (),  # without tiers it lifts none; a rule would lift some
            why=what.words if allows else plain(self.reason, _TELLING) or "no reason was given",
            shape=what.shape if allows else None,
        )

    def ended(self, now: float) -> bool:
        """Whether its time is over or its uses are spent."""
        return self.over or self.uses == 0 or (self.expires is not None and now >= self.expires)

    def early(self, now: float) -> bool:
        """Whether it was made at a time that has not come yet: a clock was set back, and nobody can say how far."""
        return self.created > now + CLOCKS_DIFFER


@dataclass(frozen=True, slots=True)
class GrantHolder:
    """Who asks, and where: what an answer must have been given for."""

    workspace: str
    agent: str
    session: str

    def holds(self, grant: Grant) -> bool:
        """Whether `grant` was given for this. INVARIANT: another agent inherits a no, and never a yes."""
        if grant.ruling is Ruling.ALLOW and grant.agent != self.agent:
            return False
        if grant.span is GrantScope.SESSION and grant.session != self.session:
            return False
        return grant.span is GrantScope.USER or grant.workspace == self.workspace


def _listed(paths: tuple[str, ...]) -> str:
    return joined(
        [f"files in {plain(path.removesuffix('**'))}" if path.endswith(("/", "/**")) else plain(path) for path in paths]
    )
