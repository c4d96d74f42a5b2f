"""The users' own rules: what they allow, ask about and deny, each with the line that says so."""

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
    """Whose file a rule stands in. The repository's may only ask and deny until its very content is trusted."""

    SYSTEM = "system"
    USER = "user"
    REPOSITORY = "repository"
    TRUSTED = "trusted"  # the repository's, whose content the user trusts
    NAMED = "named"  # by `--config`
    TYPED = "typed"  # by flags of this one action, such as `--host`
    GRANT = "grant"  # an answer that somebody gave, and that is remembered


class Source(StrEnum):
    """Who proposed an action."""

    MODEL = "model"
    PERSON = "person"  # typed by somebody: `agent exec`


class Tool(StrEnum):
    """What an action is done with; `bash` is every command, with a shell or without."""

    BASH = "bash"
    READ = "read"
    WRITE = "write"
    EDIT = "edit"
    GLOB = "glob"
    GREP = "grep"
    LS = "ls"


@dataclass(frozen=True, slots=True)
class PermissionRule:
    """One `[[rule]]`. A key that is not given (an empty tuple, None) restricts nothing.

    `run`: one entry a word, each with its alternatives; `*` and `?` match within a word. `more`: any further words may
    follow. `read`, `write`: path patterns as written; `host`: host patterns in lower case. Of `read`, `write` and
    `host` one is enough; all other keys must hold together. `until` is the last day on which the rule holds. `shape`:
    the one command that a grant is about, more exactly than `run` can say it.
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
        """Whether it no longer holds. On a day that nobody told, what allows is over, and what forbids goes on."""
        if self.until is None:
            return False
        return today > self.until if today is not None else self.verdict is Ruling.ALLOW

    @property
    def pattern(self) -> str:
        """`run` as people read it: `npm run {build,lint} **`."""
        words = [word[0] if len(word) == 1 else "{" + ",".join(word) + "}" for word in self.run]
        return " ".join([*words, *([REST] if self.more else [])])
