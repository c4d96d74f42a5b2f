"""A remembered answer as structure: its subject, its holder and its duration. The text of a command decides nothing."""

from enum import StrEnum

from policy.describe.phrases import joined, plain, quoted
from policy.model.assessment import RuleKind, RuleRef
from policy.model.command_pattern import HOLE, CommandPattern, is_flag
from policy.model.frozen import dataclass
from policy.model.profile import Layer, PermissionRule, Tool
from policy.model.tier import Ruling, Tier

EVERYWHERE = ""  # the workspace of a grant of scope `user`
CLOCKS_DIFFER = 300.0  # seconds of tolerance between two clocks
_LONGEST_LINE = 300  # characters of a command or reason on one line


class GrantScope(StrEnum):
    """The reach of a remembered answer. An answer for a single use is not remembered."""

    SESSION = "session"  # for the agent that asked
    AGENTS = "agents"  # this session, for all of its agents
    PROJECT = "project"  # this workspace, by its path
    USER = "user"  # every workspace


@dataclass(frozen=True, slots=True)
class GrantSubject:
    """The subject of an answer: one command (`shape` with words), effects of file tools and of the shell itself, or
    calls of one tool.

    Attributes:
        tool: the exact names of the tools that the answer applies to.
        read: bounds of the paths that are read outside the workspace; absolute or relative to the workspace. A path
            ends with `/**` for everything in that folder, and with `/` for the folder and everything in it.
        write: bounds of the paths that are changed, in the same form.
        host: bounds of the hosts that are contacted, as entries of an allowlist.
        tiers: the kinds of risk that were accepted.
        arguments: pairs of the name of an argument of the tool and its exact text.
        values: pairs of the name of an argument of a server's tool and its exact value as canonical JSON.
        below: pairs of the name of an argument of a server's tool and the folder that bounds it, with `/` at its end.
        only: the names of all arguments that a call of a server's tool may have; None for any arguments.
    """

    shape: CommandPattern
    tool: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    host: tuple[str, ...] = ()
    tiers: tuple[Tier, ...] = ()
    arguments: tuple[tuple[str, str], ...] = ()
    values: tuple[tuple[str, str], ...] = ()
    below: tuple[tuple[str, str], ...] = ()
    only: tuple[str, ...] | None = None

    @property
    def calls(self) -> bool:
        """Return True if the subject is the calls of a tool that no sandbox runs."""
        return bool(self.tool) and not (self.shape.words or self.read or self.write)

    @property
    def ceiling(self) -> Tier:
        """Return the worst tier that the grant covers. An action with a worse tier is not covered."""
        return max(self.tiers, default=Tier.READ)

    @property
    def command(self) -> str:
        """Return the command in backticks, with holes as `*`, or an empty text if the subject is not a command."""
        if self.shape.family:
            return ""
        line = " ".join(word if word == HOLE else quoted(word) for word in self.shape.words)
        return f"`{plain(line, _LONGEST_LINE)}`" if line else ""

    @property
    def words(self) -> str:
        """Return the subject as one line for the user: `npm test` with any flags, changing files in docs/."""
        shape = self.shape
        if shape.family:
            hosts = f", connecting to {_listed(self.host)}" if self.host else ""
            return f"reading commands of `{plain(shape.words[0])}` (family `{plain(shape.family)}`){hosts}"
        if shape.words:
            open_ended = shape.flags or HOLE in shape.words
            text = ("" if open_ended else "exactly ") + self.command
            more = "any further" if any(map(is_flag, shape.words)) else "any"
            text += f" with {more} flags" if shape.flags else ""
            text += f" in {plain(shape.folder)}/" if shape.folder else ""
            for doing, bounds in (("reading", self.read), ("changing", self.write), ("connecting to", self.host)):
                bare = {each: each.removesuffix("/**").rstrip("/") for each in bounds}
                shown = [each for each in bounds if open_ended or not any(bare[each] in word for word in shape.words)]
                text += f", {doing} {_listed(tuple(shown))}" if shown else ""
            return text
        if self.calls:
            return self.paths
        by = "the file tools" if self.tool and Tool.BASH not in self.tool else "a redirection"
        return f"{self.paths} by {by}"

    @property
    def paths(self) -> str:
        """Return what is done to which paths: `reading /data and changing files in docs/`. For calls, return what is
        called.
        """
        if self.calls:
            return self._called()
        parts = [f"reading {_listed(self.read)}"] if self.read else []
        parts += [f"changing {_listed(self.write)}"] if self.write else []
        return joined(parts)

    def _called(self) -> str:
        named = joined([f"`{plain(tool)}`" for tool in self.tool])
        if self.host:
            return f"{named} on {_listed(self.host)}"
        if self.only is not None:
            return f"{named} {self._limits(self.only)}"
        values = [f"{plain(name)} `{plain(text)}`" for name, text in self.arguments if text]
        return f"{named} with {joined(values)}" if values else f"{named} with any arguments"

    def _limits(self, only: tuple[str, ...]) -> str:
        """Return the arguments that a call of a server's tool may have, completely."""
        from policy.model.tool_arguments import value_text  # only for grants of calls

        parts = [f"{plain(name)} {value_text(value)}" for name, value in self.values]
        parts += [f"{plain(name)} in {plain(folder, _LONGEST_LINE)}" for name, folder in self.below]
        free = [plain(name) for name in only if name not in dict((*self.values, *self.below))]
        if not self.below and not free:
            return f"with exactly {joined(parts)}" if parts else "without arguments"
        return ", ".join([f"with {joined(parts)}", *(f"any or no {name}" for name in free), "and no other argument"])


@dataclass(frozen=True, slots=True)
class Grant:
    """One remembered approval (`ruling` ALLOW) or refusal (DENY).

    Attributes:
        workspace: the real path of the workspace in which the grant applies; EVERYWHERE for scope user.
        agent: the agent that the grant was given to.
        session: the session in which the grant applies; empty for the other scopes.
        created: seconds since 1970, by the clock of this machine.
        expires: seconds since 1970, by the clock of this machine; None for no end.
        uses: the number of remaining uses; None for any number.
        who: the author of the answer.
        script: the action that led to the grant, for display, with every secret removed.
        over: True if the grant was found expired or consumed. Such a grant never applies again.
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
        """Return the grant as a rule for the gate. A refusal matches broadly, like every denial; an approval matches
        exactly.
        """
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
            host=what.host if allows or what.calls else (),
            arguments=what.arguments,
            values=what.values if allows else (),
            below=what.below if allows else (),
            only=what.only if allows else None,
            # An empty list would allow the default tiers of a rule.
            tier=(what.tiers or (Tier.READ,)) if allows else (),
            why=what.words if allows else plain(self.reason, _LONGEST_LINE) or "no reason was given",
            shape=what.shape if allows else None,
        )

    @property
    def of_session(self) -> bool:
        """Return True if the grant ends with its session."""
        return self.span in (GrantScope.SESSION, GrantScope.AGENTS)

    def ended(self, now: float) -> bool:
        """Return True if the grant has expired or has no remaining uses."""
        return self.over or self.uses == 0 or (self.expires is not None and now >= self.expires)

    def early(self, now: float) -> bool:
        """Return True if the grant was created more than CLOCKS_DIFFER seconds after `now`: the clock was set back."""
        return self.created > now + CLOCKS_DIFFER


@dataclass(frozen=True, slots=True)
class GrantHolder:
    """The agent, workspace and session of a request, which must match those of a grant."""

    workspace: str
    agent: str
    session: str

    def holds(self, grant: Grant) -> bool:
        """Return True if `grant` was given to this holder. INVARIANT: another agent inherits a refusal, and an approval
        only if the user chose the scope of all agents of the session.
        """
        for_one = grant.span is not GrantScope.AGENTS
        if grant.ruling is Ruling.ALLOW and for_one and grant.agent != self.agent:
            return False
        if grant.of_session and grant.session != self.session:
            return False
        return grant.span is GrantScope.USER or grant.workspace == self.workspace


def _listed(paths: tuple[str, ...]) -> str:
    return joined(
        [f"files in {plain(path.removesuffix('**'))}" if path.endswith(("/", "/**")) else plain(path) for path in paths]
    )
