"""The assessment of an action: its effects and tiers, each tier with its reasons in the script."""

import re
from collections.abc import Mapping
from enum import StrEnum

from policy.model.abstract_word import AbstractWord, SourceSpan
from policy.model.action import Action
from policy.model.frozen import dataclass, field
from policy.model.tier import Tier


class Consequence(StrEnum):
    """One kind of harm or change. The summary is chosen by tiers, effects and consequences, never by the text of a
    reason.

    A rule sets a consequence with `does = "moves"`; code passes a consequence with a reason. The summary may quote the
    text of a reason without a consequence.
    """

    __hash__ = str.__hash__  # that of Enum is a Python function

    # fmt: off
    MOVES                 = "moves"                   # renames files: deleted paths exist under new names
    CHANGES_FILES         = "changes-files"           # changes files without naming them
    RUNS_CODE             = "runs-code"               # runs or builds code from a file or a text
    RUNS_DOWNLOADED       = "runs-downloaded"         # fetches code, or rules that are code, and runs them
    RUNS_PROJECT_PROGRAM  = "runs-project-program"    # starts a program that the project has installed
    STARTS_EDITOR         = "starts-editor"           # starts an editor, from which other programs can be started
    STARTS_PROGRAMS       = "starts-programs"         # starts other programs from a text of its own language
    TRANSFERS             = "transfers"               # copies, sends or does something on another machine
    NEEDS_ADMINISTRATOR   = "needs-administrator"     # has the rights of the administrator
    IRREVERSIBLE          = "irreversible"            # cannot be undone, or goes around a protection
    DISCARDS_CHANGES      = "discards-changes"        # throws away all changes that are not committed
    DISCARDS_STASH_ENTRY  = "discards-stash-entry"    # throws away changes that Git put aside
    DISCARDS_STASH        = "discards-stash"          # throws away all changes that Git put aside
    DELETES_UNTRACKED     = "deletes-untracked"       # deletes files that Git does not track
    DELETES_BRANCHES      = "deletes-branches"        # deletes branches of this repository, merged or not
    OVERWRITES_BRANCH     = "overwrites-branch"       # overwrites or deletes a branch on the server
    OVERWRITES_COMMITS    = "overwrites-commits"      # overwrites commits on the server
    DELETES_REMOTE        = "deletes-remote"          # deletes branches on the server
    MIRRORS               = "mirrors"                 # makes the server a copy of this repository
    # Set only by code, for reasons about a path.
    WRITES_PATH           = "writes-path"             # writes or changes the path
    DELETES_PATH          = "deletes-path"            # deletes the path
    WRITES_FILES          = "writes-files"            # writes files anywhere in the workspace
    CHANGES_WORKSPACE     = "changes-workspace"       # changes every file in the workspace
    DELETES_WORKSPACE     = "deletes-workspace"       # deletes everything in the workspace
    CHANGES_ROOT          = "changes-root"            # changes the root folder of the system
    # fmt: on


PATH_CONSEQUENCES = frozenset((
    Consequence.WRITES_PATH, Consequence.DELETES_PATH, Consequence.WRITES_FILES, Consequence.CHANGES_WORKSPACE,
    Consequence.DELETES_WORKSPACE, Consequence.CHANGES_ROOT,
))  # fmt: skip
# The consequences that a rule file may set: `moves` -> MOVES.
RULE_CONSEQUENCES = {each.value: each for each in Consequence if each not in PATH_CONSEQUENCES}

# fmt: off
# The end of a sentence about the action, for consequences with a more specific text than "cannot be undone".
CONSEQUENCE_TEXTS = {
    Consequence.DISCARDS_CHANGES:     "throws away uncommitted changes",
    Consequence.DISCARDS_STASH_ENTRY: "throws away changes that were put aside",
    Consequence.DISCARDS_STASH:       "throws away all changes that were put aside",
    Consequence.DELETES_UNTRACKED:    "deletes files that Git does not track",
    Consequence.DELETES_BRANCHES:     "deletes branches, merged or not",
    Consequence.OVERWRITES_COMMITS:   "overwrites commits on the server",
    Consequence.DELETES_REMOTE:       "deletes branches on the server",
    Consequence.MIRRORS:              "makes the server a copy of this repository, and deletes what is only there",
}
# Flags with such a consequence, each after the command that it belongs to.
FLAG_CONSEQUENCES = {
    "git reset --hard":             Consequence.DISCARDS_CHANGES,
    "git checkout -f":              Consequence.DISCARDS_CHANGES,
    "git checkout --force":         Consequence.DISCARDS_CHANGES,
    "git switch -f":                Consequence.DISCARDS_CHANGES,
    "git switch --force":           Consequence.DISCARDS_CHANGES,
    "git switch --discard-changes": Consequence.DISCARDS_CHANGES,
    "git push --force":             Consequence.OVERWRITES_COMMITS,
    "git push -f":                  Consequence.OVERWRITES_COMMITS,
    "git push --force-with-lease":  Consequence.OVERWRITES_COMMITS,
    "git push --mirror":            Consequence.MIRRORS,
    "git push --prune":             Consequence.DELETES_REMOTE,
    "git push --delete":            Consequence.DELETES_REMOTE,
    "git push -d":                  Consequence.DELETES_REMOTE,
    "git branch -D":                Consequence.DELETES_BRANCHES,
}
# fmt: on


class EffectKind(StrEnum):
    __hash__ = str.__hash__  # that of Enum is a Python function

    READS = "reads"
    WRITES = "writes"
    DELETES = "deletes"
    RUNS = "runs"  # code whose effects are unknown
    CONNECTS = "connects"
    USES_LOOPBACK = "uses-loopback"  # a connection to, or a server on, the loopback of the sandbox itself
    CALLS = "calls"  # a tool or resource of a server, or another agent; the effects are those of the server or agent
    PRIVILEGE = "needs-privilege"
    UNKNOWN = "cannot-tell"


class Scope(StrEnum):
    __hash__ = str.__hash__  # that of Enum is a Python function

    WORKSPACE = "workspace"
    SYSTEM = "system"
    OUTSIDE = "outside"
    SCRATCH = "scratch"  # /tmp of the sandbox: private to the session, without files of the machine
    SECRET = "secret"  # noqa: S105  # the name of a scope
    NONE = "none"  # not a path


@dataclass(frozen=True, slots=True)
class Effect:
    """One effect that an action would have.

    Attributes:
        target: a resolved path, a host, a program, or a reason; empty for a host that is unknown, and for a server on
            the loopback.
        scope: the area that contains the path. For a host, the place that names the host: `workspace` is settings of
            the repository, `outside` is the user's own settings, `none` is the command itself, and `system` is the
            tool, which contacts this host where nothing names one.
        exact: False if `target` only bounds the effect: a folder below which a glob may match, or a host that is
            contacted by packets no proxy forwards.
    """

    kind: EffectKind
    target: str
    scope: Scope = Scope.NONE
    exact: bool = True


class RuleKind(StrEnum):
    """The origin of a rule. The values of BUILTIN, COMMAND and GRANT begin the text of a reference."""

    __hash__ = str.__hash__  # that of Enum is a Python function

    BUILTIN = "builtin"  # a check that is written in code; `Check` lists all of them
    COMMAND = "command"  # a table of a rule file that comes with the program
    USER = "user"  # a rule in a configuration file of any layer
    GRANT = "grant"  # a remembered answer
    FLAG = "flag"  # a flag of the command line


_PREFIXED = (RuleKind.BUILTIN, RuleKind.COMMAND, RuleKind.GRANT)
_LIKE_ANOTHER = ("--", *(f"{kind}:" for kind in _PREFIXED))


@dataclass(frozen=True, slots=True)
class RuleRef:
    """A reference to the rule that caused a reason. A reference names no source file, so that moving code does not
    change records.

    The text form is `builtin:AREA/CHECK`, `command:FILE:LINE`, `grant:ID`, the flag itself (`--read`), and for a rule
    in a configuration file `PATH:LINE`.

    Attributes:
        kind: The origin of the rule.
        id: `AREA/CHECK` of a check, the name of the rule file without `.toml`, the path of the configuration file, the
            id of the grant, or the flag with its dashes.
        line: Line of the rule in its file, from 1; 0 where the rule has no line.
    """

    kind: RuleKind
    id: str
    line: int = 0

    def __str__(self) -> str:
        text = self.id
        if self.kind in _PREFIXED:
            text = f"{self.kind}:{text}"
        elif self.kind is RuleKind.USER and text.startswith(_LIKE_ANOTHER):
            text = f"./{text}"  # a relative path must not look like a reference of another kind
        return f"{text}:{self.line}" if self.line else text

    @classmethod
    def parse(cls, text: str) -> "RuleRef":
        """Return the reference whose text form is `text`. Never raises: a text without a known form names a file."""
        match = re.fullmatch(r"(.*):([1-9][0-9]{0,8})", text, re.DOTALL)
        name, line = (match[1], int(match[2])) if match else (text, 0)
        for kind in _PREFIXED:
            if text.startswith(f"{kind}:") and (kind is RuleKind.COMMAND) == bool(line):
                return cls(kind, name[len(kind) + 1 :], line)
        return cls(RuleKind.FLAG if text.startswith("--") else RuleKind.USER, name, line)


@dataclass(frozen=True, slots=True)
class Reason:
    """The cause of one tier: a text for the user with the range of the script that it is about.

    Attributes:
        about: the one effect that the reason states, if it states nothing else.
        names: the effect whose path `text` contains, if the reason states more than that effect.
        consequence: the kind of harm or change by which the summary is chosen. None: the summary quotes `predicate`.
        command: the command that the reason states a fact about (`git push --force`); empty for other reasons.
        predicate: the end of a sentence that starts with the command, or with the action if there is no command. Empty:
            `text` is such an end.
        deferrable: True for a host that the command may not need: the command may start without network, and a
            refused connection becomes the question.
        bounded: True if it is not certain what the command does, and the worst that it can do is what any code inside
            the sandbox can do. The tier of such a reason is EXECUTE.
    """

    tier: Tier
    text: str
    rule: RuleRef
    span: SourceSpan | None = None
    about: Effect | None = None
    names: Effect | None = None
    consequence: Consequence | None = None
    command: str = ""
    predicate: str = ""
    deferrable: bool = False
    bounded: bool = False

    @property
    def uncertain(self) -> bool:
        """Return True if the reason states that something about the action is not certain."""
        return self.bounded or self.tier is Tier.UNKNOWN

    @property
    def phrase(self) -> str:
        """Return the phrase of the consequence if it has one, else the predicate."""
        return (CONSEQUENCE_TEXTS.get(self.consequence) if self.consequence else None) or self.predicate


@dataclass(frozen=True, slots=True)
class Step:
    """A simple command, including one inside a wrapper, a substitution or a script given as text.

    Attributes:
        words: the expanded words, the program first; empty for effects of the shell itself between the commands.
        named: the words as the interpreter understands them, without options before a subcommand.
        name: the number of words at the start of `named` that are the program and its subcommands.
        also: another spelling of these words (`npm install` for `npm i`).
        text: a script that could not be read; empty for a command.
        cwds: the folders that may be the current folder; None if they are unknown.
        set_up: True if variables were set that the command may obey.
        stranger: True if nothing is known about the program.
        interprets: True if the program may run its standard input.
        family: the family of reading commands that the command certainly belongs to; empty if there is none.
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
    family: str = ""
    reasons: tuple[Reason, ...] = ()
    effects: tuple[Effect, ...] = ()

    @property
    def literal(self) -> tuple[str, ...] | None:
        """Return the words if there are any and every one of them is certain, else None."""
        texts = [word.text for word in self.words]
        return tuple(text for text in texts if text is not None) if texts and None not in texts else None


@dataclass(frozen=True, slots=True)
class Assessment:
    """The complete answer of the classifier for one action.

    Attributes:
        plain_edit: True if `accept-edits` may allow the action.
        steps: the reasons and effects, grouped by the command that causes them.
        asked: the reasons that require a question whatever the tiers are: the users' rules, or a failed analysis.
        covered: the reasons that the users' rules allow, each with the reason that names the rule.
        opened: the hosts that those rules allow, by effect; such a host is more exact than the target of the effect.
        typed: the effects that flags of the user add to this one action.
        sourced: the files of shell text whose commands were judged, as pairs (path, SHA-256 of the content).
        tried: those of `asked` that are rules with the verdict `try`.
    """

    action: Action
    effects: tuple[Effect, ...]
    reasons: tuple[Reason, ...]
    plain_edit: bool = False
    tree: str = field(default="", compare=False)  # the syntax tree as text, for the user
    steps: tuple[Step, ...] = field(default=(), compare=False, repr=False)
    asked: tuple[Reason, ...] = ()
    covered: Mapping[Reason, Reason] = field(default_factory=dict)
    opened: Mapping[Effect, tuple[str, ...]] = field(default_factory=dict)
    typed: tuple[Effect, ...] = ()
    sourced: tuple[tuple[str, str], ...] = ()
    tried: tuple[Reason, ...] = ()

    @property
    def tiers(self) -> tuple[Tier, ...]:
        """Return the tiers that apply, worst first. Never empty: without any reason the tier is `unknown`."""
        found = sorted({reason.tier for reason in self.reasons}, reverse=True)
        return tuple(found) or (Tier.UNKNOWN,)


class Check:
    """The rules that are written in code, by name."""

    # fmt: off
    # The request as a whole
    CONVERSION              = RuleRef(RuleKind.BUILTIN, "classification/conversion")
    EMPTY_COMMAND           = RuleRef(RuleKind.BUILTIN, "classification/empty-command")
    EMPTY_SCRIPT            = RuleRef(RuleKind.BUILTIN, "classification/empty-script")
    FILE_TOOL               = RuleRef(RuleKind.BUILTIN, "classification/file-tool")
    GATE_FAILURE            = RuleRef(RuleKind.BUILTIN, "classification/gate-failure")
    RELATIVE_PATH           = RuleRef(RuleKind.BUILTIN, "classification/relative-path")
    TIME_LIMIT              = RuleRef(RuleKind.BUILTIN, "classification/time-limit")
    PROCESS_INPUT           = RuleRef(RuleKind.BUILTIN, "processes/input")
    PROCESS_OUTPUT          = RuleRef(RuleKind.BUILTIN, "processes/output")
    PROCESS_SIGNAL          = RuleRef(RuleKind.BUILTIN, "processes/signal")
    UNREADABLE_SCRIPT       = RuleRef(RuleKind.BUILTIN, "classification/unreadable-script")

    # Calls of servers, agents and web tools
    ASK_USER                = RuleRef(RuleKind.BUILTIN, "tools/ask-user")
    AGENT_CONTROL           = RuleRef(RuleKind.BUILTIN, "tools/agent-control")
    SCHEDULE_JOB            = RuleRef(RuleKind.BUILTIN, "tools/schedule-job")
    TASKS                   = RuleRef(RuleKind.BUILTIN, "tools/tasks")
    AGENT_LIMIT             = RuleRef(RuleKind.BUILTIN, "tools/agent-limit")
    AGENT_START             = RuleRef(RuleKind.BUILTIN, "tools/agent-start")
    ARGUMENTS_FORM          = RuleRef(RuleKind.BUILTIN, "tools/arguments-form")
    LANGUAGE_SERVER         = RuleRef(RuleKind.BUILTIN, "tools/language-server")
    CODE_QUERY              = RuleRef(RuleKind.BUILTIN, "tools/code-query")
    NOTE                    = RuleRef(RuleKind.BUILTIN, "tools/note")
    NOTE_SEARCH             = RuleRef(RuleKind.BUILTIN, "tools/note-search")
    HOOK_RUN                = RuleRef(RuleKind.BUILTIN, "tools/hook-run")
    SERVER_HINT             = RuleRef(RuleKind.BUILTIN, "tools/server-hint")
    SERVER_RESOURCE         = RuleRef(RuleKind.BUILTIN, "tools/server-resource")
    SERVER_START            = RuleRef(RuleKind.BUILTIN, "tools/server-start")
    SKILL                   = RuleRef(RuleKind.BUILTIN, "tools/skill")
    SERVER_TOOL             = RuleRef(RuleKind.BUILTIN, "tools/server-tool")
    TOOL_SEARCH             = RuleRef(RuleKind.BUILTIN, "tools/tool-search")
    UNCLEAR_NAME            = RuleRef(RuleKind.BUILTIN, "tools/unclear-name")
    WEB_TOOL                = RuleRef(RuleKind.BUILTIN, "tools/web-tool")

    # Commands, redirections and control flow of a script
    AMBIGUOUS_COMMAND       = RuleRef(RuleKind.BUILTIN, "shell-syntax/ambiguous-command")
    ARITHMETIC_COMMAND      = RuleRef(RuleKind.BUILTIN, "shell-syntax/arithmetic-command")
    ASSIGNMENT              = RuleRef(RuleKind.BUILTIN, "shell-syntax/assignment")
    CASE_COMMAND            = RuleRef(RuleKind.BUILTIN, "shell-syntax/case-command")
    COMPUTED_PROGRAM_NAME   = RuleRef(RuleKind.BUILTIN, "shell-syntax/computed-program-name")
    CONDITION               = RuleRef(RuleKind.BUILTIN, "shell-syntax/condition")
    FUNCTION_CALL_LIMIT     = RuleRef(RuleKind.BUILTIN, "shell-syntax/function-call-limit")
    FUNCTION_DEFINITION     = RuleRef(RuleKind.BUILTIN, "shell-syntax/function-definition")
    INHERITED_DESCRIPTOR    = RuleRef(RuleKind.BUILTIN, "shell-syntax/inherited-descriptor")
    INTEGER_VARIABLE        = RuleRef(RuleKind.BUILTIN, "shell-syntax/integer-variable")
    PROGRAM_BY_PATH         = RuleRef(RuleKind.BUILTIN, "shell-syntax/program-by-path")
    REDIRECTION             = RuleRef(RuleKind.BUILTIN, "shell-syntax/redirection")
    SPECIAL_VARIABLE        = RuleRef(RuleKind.BUILTIN, "shell-syntax/special-variable")
    TOO_MANY_WORDS          = RuleRef(RuleKind.BUILTIN, "shell-syntax/too-many-words")
    UNLISTED_PROGRAM        = RuleRef(RuleKind.BUILTIN, "shell-syntax/unlisted-program")
    WORKSPACE_PROGRAM       = RuleRef(RuleKind.BUILTIN, "shell-syntax/workspace-program")

    # Expansion of words
    AMBIGUOUS_WORD          = RuleRef(RuleKind.BUILTIN, "word-expansion/ambiguous-word")
    ARRAY_INDEX             = RuleRef(RuleKind.BUILTIN, "word-expansion/array-index")
    ARITHMETIC_EVALUATION   = RuleRef(RuleKind.BUILTIN, "word-expansion/arithmetic-evaluation")
    PATTERN_LISTING         = RuleRef(RuleKind.BUILTIN, "word-expansion/pattern-listing")
    UNKNOWN_HOME            = RuleRef(RuleKind.BUILTIN, "word-expansion/unknown-home")

    # Verdicts
    ADDITIONAL_RIGHT        = RuleRef(RuleKind.BUILTIN, "escalation/additional-right")
    SIGNATURE               = RuleRef(RuleKind.BUILTIN, "signing/signature")
    NO_REASON               = RuleRef(RuleKind.BUILTIN, "decision/no-reason")
    FLOW_DANGEROUS          = RuleRef(RuleKind.BUILTIN, "information-flow/dangerous")
    FLOW_NEW_DESTINATION    = RuleRef(RuleKind.BUILTIN, "information-flow/new-destination")
    FLOW_PRIVATE_DATA       = RuleRef(RuleKind.BUILTIN, "information-flow/private-data")
    FLOW_TRUSTED_FILE       = RuleRef(RuleKind.BUILTIN, "information-flow/trusted-file")
    OFFLINE_START           = RuleRef(RuleKind.BUILTIN, "decision/offline-start")
    PREVIEW                 = RuleRef(RuleKind.BUILTIN, "decision/preview")
    TRIED                   = RuleRef(RuleKind.BUILTIN, "decision/tried")
    RIGHTS_FLOOR            = RuleRef(RuleKind.BUILTIN, "rights/floor")
    SANDBOX_SHOW            = RuleRef(RuleKind.BUILTIN, "sandbox-show/shown-rights")
    # fmt: on
