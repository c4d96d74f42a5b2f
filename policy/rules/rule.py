"""The facts about one command: the roles of its words, its flags and its operands."""

from collections.abc import Mapping
from enum import StrEnum
from fnmatch import fnmatchcase

from policy.model.assessment import Consequence, RuleRef
from policy.model.frozen import dataclass, field, replace
from policy.model.tier import Tier

# Names of the handlers that `grammar` in a rule file may have: `policy.handlers` maps each to a function.
GRAMMARS = frozenset((
    "alias", "assign", "busybox", "cd", "command", "curl", "date", "dd", "echo", "env", "eval", "exec", "fd", "find",
    "forge", "getopts", "git", "let", "mapfile", "mktemp", "netcat", "network-code", "npx", "packages", "parallel",
    "pdftotext", "popd", "printf", "push", "python", "read", "rpm", "script", "set", "sh", "shift", "shopt", "socat",
    "source", "sqlite", "ssh", "tar", "test", "transfer", "trap", "umask", "unset", "watch", "wget", "xargs", "yq",
))  # fmt: skip


class Role(StrEnum):
    """The use that a program makes of one of its words."""

    __hash__ = str.__hash__  # that of Enum is a Python function

    DATA = "data"  # plain data: without an effect
    READ = "read"  # a path whose content it reads
    NAMES = "names"  # a path of which it reads names, sizes and dates, not content
    TREE = "tree"  # like NAMES, for the whole tree below the path
    WRITE = "write"  # a path it creates or overwrites
    OUT = "out"  # like WRITE, but `-` is the standard output
    DELETE = "delete"
    MOVE = "move"  # a path that is read and then removed
    HOST = "host"  # a host or URL that the program contacts
    PORT = "port"  # the port of the host that the program contacts
    REMOTE = "remote"  # the name of a remote, or its address
    UPLOAD = "upload"  # data to send; `@path` sends a file
    RUN = "run"  # the first word of a command it runs (the rest belongs to it)
    ARGS = "args"  # a program file that it runs; the rest are that program's own words
    AWAY = "away"  # the first word of a command that runs elsewhere: in a container, on another machine
    MOUNT = "mount"  # `SOURCE:PLACE[:ro]` or `type=bind,source=..`: a path that is mounted into a container
    FROM = "from"  # a path that is read, or `NAME:PATH` elsewhere
    TO = "to"  # a path that is written, or `NAME:PATH` elsewhere
    CODE = "code"  # a program text or file with unknown effects
    SCRIPT = "script"  # bash text that it runs
    FOLDER = "folder"  # the folder it changes to first
    REVISION = "rev"  # a Git revision, or a path
    REFSPEC = "refspec"  # what to push where; `+` forces, `:` deletes
    SED = "sed"
    AWK = "awk"
    JQ = "jq"
    FORMAT = "format"  # the name of a format, where a program would also take a file of code
    KEY = "key"  # the name of a setting, where `name=value` would set it
    FILE = "file"  # a path that is read, where other spellings (`x:y`, `|x`, `@x`) mean more than a file
    PAIR = "pair"  # `name=value`, where other spellings read the value from a file
    XPATH = "xpath"  # an expression that selects from XML, and may load more XML
    PICTURE = "picture"  # like FILE, with the ending of a plain picture


@dataclass(frozen=True, slots=True)
class Flag:
    """The facts about one flag.

    Attributes:
        role: the role of the value; None if the flag takes no value.
        optional: True if only an attached value counts.
        second: the role of the second value, if the flag takes two.
        tier: the tier to which the flag raises the command.
        edits: True if the flag makes the command write the files that it would only read.
    """

    name: str
    role: Role | None = None
    optional: bool = False
    tier: Tier | None = None
    edits: bool = False
    second: Role | None = None


# An operand with one of these roles ends the flags of the program.
_BEGINS = frozenset([Role.RUN, Role.ARGS, Role.AWAY])


_UNBOUNDED = _BEGINS | {Role.SCRIPT, Role.DELETE, Role.MOVE}

_CHANGES = frozenset([Role.WRITE, Role.OUT, Role.DELETE, Role.MOVE])
# The roles of words that name another machine, or what is sent there.
_REMOTE = frozenset([Role.HOST, Role.REMOTE, Role.UPLOAD, Role.FROM, Role.TO, Role.MOUNT])


@dataclass(frozen=True, slots=True)
class Operands:
    """Roles of operands by position: `head`, then any number of `rest`, then `tail`."""

    head: tuple[Role, ...] = ()
    rest: Role | None = None
    tail: tuple[Role, ...] = ()

    def roles(self, count: int) -> tuple[Role, ...] | None:
        """Return the role of each of `count` operands, or None if the program accepts fewer operands."""
        tail = self.tail[-count:] if count else ()
        left = count - len(tail)
        head = self.head[:left]
        more = left - len(head)
        if more and self.rest is None:
            return None
        return head + ((self.rest,) * more if self.rest is not None else ()) + tail

    def inner(self, count: int) -> tuple[Role, ...]:
        """Return the roles for `runs`: all operands from the one that starts another command belong to that command."""
        first = next(role for role in (*self.head, self.rest) if role in _BEGINS)
        return (self.head + (first,) * count)[:count]

    @property
    def writes(self) -> bool:
        """Return True if an operand may be written, deleted or moved."""
        return self.rest in _CHANGES or not (_CHANGES.isdisjoint(self.head) and _CHANGES.isdisjoint(self.tail))

    @property
    def runs(self) -> bool:
        """Return True if an operand may start another command."""
        return self.rest in _BEGINS or not _BEGINS.isdisjoint(self.head)


@dataclass(frozen=True, slots=True)
class CommandRule:
    """The facts about one program or subcommand. A flag or operand without an entry is not certain.

    Attributes:
        anywhere: no flag of the command can write, run or connect, so words known only at run time may be at any
            position.
        open: the flags are not listed; the tier applies to all of them (never `read`).
        otherwise: the tier of any use that the flags and operands here do not describe.
        listing: operands are data only beside one of these flags.
        instead: flags that replace the first operand.
        target: flags that replace the last operand.
        here: without operands the command works on the current folder (always, or with these flags).
        looks: with one of these flags (`-a+-b`: with both) the command only reads what it would change otherwise.
        lists: with one of these flags the command also only reads, unless it has a flag of `unless`.
        checks: with one of these flags the command reads its operands, and still makes its other changes.
        changes: the path that the command changes besides its operands, relative to the workspace (`.`: anything there,
            `.git/config`).
        alone: words that, as the only word, reduce any tier to read (`--version`).
        below: like `alone`, for all subcommands.
        heeds: files of the project that the command obeys even with `alone` (`rust-toolchain`).
        interpreter: the command runs its standard input.
        single: no flag given alone does more than the program, so a single word known only at run time may be an
            operand.
        words: the flags are whole words, so letters behind one dash are never several flags.
        port: the port for a bare host name (a number, or `*` for any); empty for 80 and 443.
        offline: flags with which the command needs no host, and names of variables that have the same effect.
        offline_first: in modes that allow code of the project, the command starts without network, and the first host
            that the sandbox refuses becomes the question. Only for commands that fetch no more than what is missing,
            and whose second run does the same as the first.
        fetching: flags with which an `offline_first` command is meant to fetch, so that the question comes first.
        paths: an `offline_first` command is one only if each of its operands is a path of this machine.
        registry: the name by which `Facts.registries` returns the hosts that the command contacts for packages.
        unreached: the command sends packets (name queries, pings) that pass through no proxy.
        loopback: None unless the command may stay on the loopback of the sandbox; else the flags that may lead its
            connection elsewhere (see `policy.interpreter.loopback` for a command with unlisted flags).
        plain: the command only works on files, so accept-edits allows it.
        tame: the output is one word, or several, that start with no `-`.
        family: the family of reading commands that the command belongs to, so that one answer or rule may cover all of
            them. None of these commands prints a secret, a login or a token.
        family_except: words and flags, also as patterns, with which the command does not belong to its family.
        consequence: the kind of harm or change by which the summary of an action is chosen; None: the summary quotes
            `why`.
    """

    name: str
    ref: RuleRef
    why: str
    tier: Tier = Tier.READ
    flags: Mapping[str, Flag] = field(default_factory=dict)
    operands: Operands = field(default_factory=Operands)
    anywhere: bool = False
    open: bool = False
    otherwise: Tier | None = None
    listing: frozenset[str] = frozenset()
    instead: frozenset[str] = frozenset()
    target: frozenset[str] = frozenset()
    here: frozenset[str] = frozenset()
    here_always: bool = False
    alone: frozenset[str] = frozenset()
    below: frozenset[str] = frozenset()
    heeds: tuple[str, ...] = ()
    looks: frozenset[str] = frozenset()
    lists: frozenset[str] = frozenset()
    checks: frozenset[str] = frozenset()
    unless: frozenset[str] = frozenset()
    offline: frozenset[str] = frozenset()
    fetching: frozenset[str] = frozenset()
    changes: str = ""
    interpreter: bool = False
    plain: bool = False
    builtin: bool = False
    tame: bool = False
    single: bool = False
    words: bool = False
    unreached: bool = False
    offline_first: bool = False
    paths: bool = False
    loopback: frozenset[str] | None = None
    grammar: str = ""
    port: str = ""
    registry: str = ""
    family: str = ""
    family_except: frozenset[str] = frozenset()
    consequence: Consequence | None = None
    subs: Mapping[str, "CommandRule"] = field(default_factory=dict)

    @property
    def bounded(self) -> bool:
        """Return True if the command does no more than code inside the sandbox, whatever a word becomes.

        False for a command that may delete files or do something else that cannot be undone, for one whose words may
        contain another command, and for a builtin, which may change how bash reads the rest of the script.
        """
        operands = {*self.operands.head, self.operands.rest, *self.operands.tail}
        flags = self.flags.values()
        tiers = [tier for tier in (self.tier, self.otherwise, *(flag.tier for flag in flags)) if tier is not None]
        roles = {flag.role for flag in flags} | operands
        return max(tiers) < Tier.DANGEROUS and not (self.subs or self.builtin) and roles.isdisjoint(_UNBOUNDED)

    @property
    def bounds_flags(self) -> bool:
        """Return True if the command, with any flag that is not listed here, does no more than code inside the sandbox.

        False for a command that names hosts, because the question about them must stay; for one that a handler judges
        further; and for one of Git that changes the repository, whose state undo does not restore.
        """
        roles = {*self.operands.head, self.operands.rest, *self.operands.tail} | {f.role for f in self.flags.values()}
        changes_repository = self.tier > Tier.READ and self.name.startswith("git ")
        plain = self.grammar in ("", "packages") and self.tier <= Tier.EXECUTE and not changes_repository
        return plain and self.bounded and roles.isdisjoint(_REMOTE)

    def sub(self, name: str | None) -> "CommandRule | None":
        """Return the subcommand `name`: by its exact name, else by the first pattern (`describe-*`) that matches it."""
        found = self.subs.get(name or "")
        if found is None and name is not None and name[:1] != "-":
            found = next((self.subs[word] for word in self.subs if "*" in word and fnmatchcase(name, word)), None)
        if found is None or not self.below:
            return found
        return replace(found, alone=found.alone | self.below, below=self.below | found.below)
