"""Preferences: the users' own rules, and the limits and path lists of a session.

Facts about commands are in `policy/commands`.
"""

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from policy.model.assessment import RuleRef
from policy.model.frozen import dataclass, field, fields, replace
from policy.model.tier import Ruling, Tier
from policy.model.verdict import Limits

if TYPE_CHECKING:
    from datetime import date

    from policy.model.command_pattern import CommandPattern
    from policy.model.credential import Credential

MAIN = "main"  # the agent that the user instructs; sub-agents have other names
REST = "**"  # as the last word of `run`: any further words


class Layer(StrEnum):
    """The owner of the file that contains a rule. Rules of the repository may only ask and deny until their content is
    trusted.
    """

    SYSTEM = "system"
    USER = "user"
    REPOSITORY = "repository"
    TRUSTED = "trusted"  # a file of the repository whose content the user trusts
    NAMED = "named"  # by `--config`
    TYPED = "typed"  # by flags of this one action, such as `--host`
    GRANT = "grant"  # a remembered answer of a user
    HOOK = "hook"  # an answer of a hook to one action, which may only ask and deny


class Source(StrEnum):
    """The author of an action."""

    MODEL = "model"
    PERSON = "person"  # typed by the user: `agent exec`
    AGENT = "agent"  # the model of a sub-agent
    HOOK = "hook"  # a hook of the configuration
    JOB = "job"  # work that runs without a prompt of its own, such as a schedule
    CLIENT = "client"  # a program that calls the tools of `agent mcp serve`


# A rule that asks or denies about the model also applies to the models that act on its behalf.
_ALSO = dict.fromkeys((Source.AGENT, Source.JOB, Source.CLIENT), Source.MODEL)


class Tool(StrEnum):
    """The tools that come with the program; `bash` means every command, with a shell or without. Tools of servers have
    names like `mcp__github__create_issue`.
    """

    BASH = "bash"
    READ = "read"
    WRITE = "write"
    EDIT = "edit"
    GLOB = "glob"
    GREP = "grep"
    LS = "ls"
    AGENT = "agent"
    AGENT_OUTPUT = "agent_output"
    AGENT_MESSAGE = "agent_message"
    AGENT_STOP = "agent_stop"
    TASKS = "tasks"
    WEB_FETCH = "web_fetch"
    WEB_SEARCH = "web_search"
    TOOL_SEARCH = "tool_search"
    REMEMBER = "remember"
    RECALL = "recall"
    SKILL = "skill"
    LSP = "lsp"
    ASK_USER = "ask_user"
    SCHEDULE_JOB = "schedule_job"
    BASH_OUTPUT = "bash_output"
    BASH_INPUT = "bash_input"
    BASH_KILL = "bash_kill"


@dataclass(frozen=True, slots=True)
class PermissionRule:
    """One `[[rule]]`. A key that is not set (an empty tuple, None) restricts nothing.

    Attributes:
        run: one entry for each word, each with its alternatives; `*` and `?` match within a word.
        more: True if any further words may follow.
        tool: patterns of names of tools.
        arguments: pairs of the name of an argument of a tool call and a pattern. All must match.
        values: pairs of the name of an argument of a server's tool and its value as canonical JSON, for rules that
            allow. All must be equal.
        below: pairs of the name of an argument of a server's tool and a folder that must contain the paths in it, for
            rules that allow.
        only: the names of all arguments that a call may have, for rules that allow; None for any.
        read: path patterns as written.
        write: path patterns as written.
        host: host patterns in lower case. One of `read`, `write` and `host` must match; all other keys must match
            together.
        tier: tiers. A rule that allows a command and names no tier covers only `write` and `execute`.
        until: the last day on which the rule applies.
        family: the family of reading commands that the rule allows, on its hosts. Such a rule names no command.
        rights: additional rights of the one command of `run`, as flags of `agent exec`: `--host x.org`,
            `--read /opt/x`, `--write ~/x`.
        shape: the one command that a grant is about, more exact than `run` can be.
        tries: True for the verdict `try`: the rule asks, but after the command has run on a layer, without network.
    """

    verdict: Ruling
    ref: RuleRef
    layer: Layer
    run: tuple[tuple[str, ...], ...] = ()
    more: bool = False
    tool: tuple[str, ...] = ()
    arguments: tuple[tuple[str, str], ...] = ()
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    host: tuple[str, ...] = ()
    tier: tuple[Tier, ...] = ()
    source: tuple[Source, ...] = ()
    why: str = ""
    until: "date | None" = None
    family: str = ""
    rights: tuple[str, ...] = ()
    shape: "CommandPattern | None" = None
    values: tuple[tuple[str, str], ...] = ()
    below: tuple[tuple[str, str], ...] = ()
    only: tuple[str, ...] | None = None
    tries: bool = False

    def expired(self, today: "date | None") -> bool:
        """Return True if the rule has expired. If the day is unknown, rules that allow are expired, and the others are
        not.
        """
        if self.until is None:
            return False
        return today > self.until if today is not None else self.verdict is Ruling.ALLOW

    def applies_to(self, source: Source) -> bool:
        """Return True if the rule applies to actions of `source`. A rule about the model that asks or denies also
        applies to sub-agents and jobs.
        """
        if not self.source or source in self.source:
            return True
        return self.verdict is not Ruling.ALLOW and _ALSO.get(source) in self.source

    @property
    def limits_arguments(self) -> bool:
        """Return True if the rule has a condition that only calls of servers' tools can meet."""
        return bool(self.values or self.below) or self.only is not None

    @property
    def word(self) -> str:
        """Return the verdict as a file states it: `allow`, `try`, `ask` or `deny`."""
        return "try" if self.tries else self.verdict.name.lower()

    @property
    def pattern(self) -> str:
        """Return `run` as text: `npm run {build,lint} **`."""
        words = [word[0] if len(word) == 1 else "{" + ",".join(word) + "}" for word in self.run]
        return " ".join([*words, *([REST] if self.more else [])])


@dataclass(frozen=True, slots=True)
class Profile:
    """The settings of a session, validated when they are parsed.

    Attributes:
        secret_home: paths below the home folder that are secret (`.ssh`).
        secret_paths: absolute paths that are secret.
        secret_names: patterns of file names that are secret anywhere (`.env`, `*.pem`).
        public_names: exceptions from `secret_names`.
        locked: files that other programs run without being asked, relative to the workspace or to any nested
            repository.
        personal: the same kind of files, where this user's own settings make programs run them (`core.hooksPath` in
            `~/.gitconfig`).
        system: folders that every permit may read.
        etc: the entries of /etc that are system files.
        unix_sockets: True if commands that change the workspace may create sockets of the family AF_UNIX.
        credentials: the credentials that the proxy adds to requests of commands that may connect to a host.
        bundle: the file of certificates that makes commands accept TLS decrypted for that purpose; empty for none.
        authority: the file of certificates that the user's configuration names for all commands; empty for none.
        denied: patterns of words that are never run.
        permissions: the users' own rules, lowest layer first.
    """

    secret_home: tuple[str, ...]
    secret_paths: tuple[str, ...]
    secret_names: tuple[str, ...]
    public_names: tuple[str, ...]
    locked: tuple[str, ...]
    system: tuple[str, ...]
    etc: tuple[str, ...]
    environment: tuple[str, ...]  # names passed through from the caller's environment
    denied: tuple[tuple[str, ...], ...] = ()
    limits: Limits = field(default_factory=Limits)
    permissions: tuple[PermissionRule, ...] = ()
    unix_sockets: bool = True
    credentials: "tuple[Credential, ...]" = ()
    bundle: str = ""
    personal: tuple[str, ...] = ()
    authority: str = ""


def narrow(base: Profile, by: Profile) -> Profile:
    """Return `base` with every stricter setting of `by`. INVARIANT: the result allows nothing that `base` does not
    allow.

    Secret, locked and denied lists grow; public, readable and passed-through lists shrink; every limit is the lower
    of the two. The rules of `by` that ask and deny are added.
    """
    lists: dict[str, Any] = {}
    for name in ("secret_home", "secret_paths", "secret_names", "locked", "personal", "denied"):
        lists[name] = tuple(dict.fromkeys((*getattr(base, name), *getattr(by, name))))
    for name in ("public_names", "system", "etc", "environment"):
        lists[name] = tuple(entry for entry in getattr(base, name) if entry in getattr(by, name))
    stricter = (rule for rule in by.permissions if rule.verdict is not Ruling.ALLOW)
    return replace(
        base,
        **lists,
        permissions=tuple(dict.fromkeys((*base.permissions, *stricter))),
        limits=lower(base.limits, by.limits),
        unix_sockets=base.unix_sockets and by.unix_sockets,
    )


def lower(base: Limits, by: Limits) -> Limits:
    """Return the lower value of each limit."""
    names = [field.name for field in fields(Limits)]
    return Limits(**{name: min(getattr(base, name), getattr(by, name)) for name in names})
