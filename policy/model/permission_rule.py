"""The users' own rules: the actions that they allow, ask about and deny, each with its line in the configuration."""

from datetime import date
from enum import StrEnum
from typing import TYPE_CHECKING

from policy.model.assessment import RuleRef
from policy.model.frozen import dataclass
from policy.model.matrix import Ruling
from policy.model.tier import Tier

if TYPE_CHECKING:
    from policy.model.command_pattern import CommandPattern

REST = "**"  # as the last word of `run`: any further words


class Layer(StrEnum):
    """The owner of the file that contains a rule. Rules of the repository may only ask and deny until their content is
    trusted.
    """

    SYSTEM = "system"
    USER = "user"
    REPOSITORY = "repository"
    TRUSTED = "trusted"  # the repository's, whose content the user trusts
    NAMED = "named"  # by `--config`
    TYPED = "typed"  # by flags of this one action, such as `--host`
    GRANT = "grant"  # a remembered answer of a user


class Source(StrEnum):
    """The author of an action."""

    MODEL = "model"
    PERSON = "person"  # typed by a person: `agent exec`


class Tool(StrEnum):
    """The tool that an action uses; `bash` stands for every command, with a shell or without."""

    BASH = "bash"
    READ = "read"
    WRITE = "write"
    EDIT = "edit"
    GLOB = "glob"
    GREP = "grep"
    LS = "ls"


@dataclass(frozen=True, slots=True)
class PermissionRule:
    """One `[[rule]]`. A key that is not set (an empty tuple, None) restricts nothing.

    Attributes:
        run: one entry for each word, each with its alternatives; `*` and `?` match within a word.
        more: True if any further words may follow.
        read: path patterns as written.
        write: path patterns as written.
        host: host patterns in lower case. One of `read`, `write` and `host` must match; all other keys must match
            together.
        until: the last day on which the rule applies.
        shape: the one command that a grant is about, more exact than `run` can be.
    """

    verdict: Ruling
    ref: RuleRef
    layer: Layer
    run: tuple[tuple[str, ...], ...] = ()
    more: bool = False
    tool: tuple[Tool, ...] = ()
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    host: tuple[str, ...] = ()
    tier: tuple[Tier, ...] = ()
    source: tuple[Source, ...] = ()
    why: str = ""
    until: date | None = None
    shape: "CommandPattern | None" = None

    def expired(self, today: date | None) -> bool:
        """Return True if the rule has expired. If the day is unknown, rules that allow are expired, and the others are
        not.
        """
        if self.until is None:
            return False
        return today > self.until if today is not None else self.verdict is Ruling.ALLOW

    @property
    def pattern(self) -> str:
        """Return `run` as text: `npm run {build,lint} **`."""
        words = [word[0] if len(word) == 1 else "{" + ",".join(word) + "}" for word in self.run]
        return " ".join([*words, *([REST] if self.more else [])])
