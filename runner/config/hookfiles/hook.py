"""One hook of a configuration file: a command, an address or a question that is asked at an event of a session."""

from dataclasses import field
from enum import StrEnum

from policy.model.frozen import dataclass

EVENTS = (
    "SessionStart", "SessionEnd", "Setup", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PermissionRequest",
    "PostSampling", "Stop", "SubagentStart", "SubagentStop", "PreCompact", "PostCompact", "Notification", "FileChanged",
)  # fmt: skip
# Events whose hooks guard something: a hook that fails counts as a denial.
FAIL_CLOSED = frozenset(("PreToolUse", "PermissionRequest", "UserPromptSubmit"))
USUAL_TIMEOUT = 60.0  # seconds
LONGEST_TIMEOUT = 600.0  # seconds


class HookKind(StrEnum):
    """The kinds of hooks."""

    COMMAND = "command"
    HTTP = "http"
    PROMPT = "prompt"


class HookForm(StrEnum):
    """The program whose names of events and tools, and whose input, a hook expects."""

    OURS = "ringfence"  # the form of Claude Code, with the names of both programs in the matcher
    CLAUDE = "claude"
    CODEX = "codex"
    GEMINI = "gemini"


class HookScope(StrEnum):
    """The owner of the file that contains a hook."""

    USER = "user"
    REPOSITORY = "repository"
    BUNDLE = "bundle"
    SKILL = "skill"


@dataclass(frozen=True, slots=True)
class Hook:
    """One hook.

    Attributes:
        event: The event, one of EVENTS.
        matcher: The names of tools, or other subjects of the event, that the hook is for; empty for all.
        kind: What the hook does.
        form: The program for which the hook was written.
        scope: The owner of the file.
        source: The path of the file, as the user is shown it.
        line: The line of the hook in that file, from 1.
        argv: The program and its arguments of a command without a shell; empty for a command line.
        command: The command line for `bash`; empty for a command without a shell and for other kinds.
        url: The address of an HTTP hook.
        headers: Pairs of the name and the value of a header of an HTTP hook.
        prompt: The question of a prompt hook. `$ARGUMENTS` stands for the input.
        model: The model (`provider:model`) of a prompt hook; empty for the small model of the session.
        timeout: The largest wall time in seconds.
        lenient: True if a failure of the hook counts as no objection, because the user chose `on_failure = "continue"`.
        hosts: The hosts that the command may connect to.
        read: Absolute paths beyond the workspace that the command may read.
        write: Absolute paths that the command may change.
        condition: A permission rule such as `Bash(git *)`. The hook runs only for calls that match it.
        background: True if nothing waits for the hook and its answer has no effect.
        once: True if the hook runs once in a session.
        root: The folder of the bundle or skill that contains the hook; empty for other hooks.
        files: Pairs of the path and the SHA-256 of each trusted file of the repository that the command names.
    """

    event: str
    matcher: str = ""
    kind: HookKind = HookKind.COMMAND
    form: HookForm = HookForm.OURS
    scope: HookScope = HookScope.USER
    source: str = ""
    line: int = 1
    argv: tuple[str, ...] = ()
    command: str = ""
    url: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    prompt: str = ""
    model: str = ""
    timeout: float = USUAL_TIMEOUT
    lenient: bool = False
    hosts: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    condition: str = ""
    background: bool = False
    once: bool = False
    root: str = ""
    files: tuple[tuple[str, str], ...] = field(default=())

    @property
    def place(self) -> str:
        """Return the file and the line: `~/.claude/settings.json:12`."""
        return f"{self.source}:{self.line}"

    @property
    def words(self) -> str:
        """Return what the hook runs or asks, on one line or several."""
        import shlex  # only for lists and questions

        return self.command or self.url or self.prompt or shlex.join(self.argv)

    @property
    def closed(self) -> bool:
        """Return True if a failure of the hook counts as a denial."""
        return self.event in FAIL_CLOSED and not self.lenient


@dataclass(frozen=True, slots=True)
class HookFault:
    """An entry of a file that is no usable hook.

    Attributes:
        place: The file and the line.
        event: The event of the entry, or empty if it is not known.
        why: The reason.
    """

    place: str
    event: str
    why: str

    def __str__(self) -> str:
        return f"{self.place}: a hook cannot be used: {self.why}"


@dataclass(frozen=True, slots=True)
class HookFile:
    """The hooks of one file.

    Attributes:
        path: The path as the user is shown it.
        hooks: The hooks in the order of the file.
        faults: The entries that cannot be used.
        left: Sentences about what is not taken over.
    """

    path: str
    hooks: tuple[Hook, ...] = ()
    faults: tuple[HookFault, ...] = ()
    left: tuple[str, ...] = ()
