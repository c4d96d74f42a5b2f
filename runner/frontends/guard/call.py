"""One call of a guarded agent, as its hook reports it, and the answer that the hook gives."""

from enum import StrEnum

from policy.model.frozen import dataclass

TYPE_CHECKING = False  # the name that type checkers know, without the import of `typing`
if TYPE_CHECKING:
    from policy.model.action import Action

LONGEST_INPUT = 16 << 20  # bytes of one hook input


class CallKind(StrEnum):
    """The kind of a reported call.

    A `SHELL` call runs a script that can be rewritten. `ACTIONS` are judged as they are. An `INERT` call has no effect
    outside of its agent. `REFUSED` is never allowed, for the reason in `note`. `UNKNOWN` needs a question. `AFTER`
    reports that a call is over.
    """

    SHELL = "shell"
    ACTIONS = "actions"
    INERT = "inert"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class GuardedCall:
    """One call of a guarded agent.

    Attributes:
        agent: The name of the agent: `claude`, `codex`, `gemini`, `cursor` or `opencode`.
        kind: The kind of the call.
        tool: The name that the agent gives its tool.
        session: The id of the agent's session; empty if the hook does not report it.
        call: The id of the call; empty if the hook does not report it.
        cwd: The working folder of the call (absolute).
        script: The script of a `SHELL` call, or of the shell call that is over.
        actions: The actions of a call of the kind `ACTIONS`.
        plan: True if the agent is in a mode in which it only plans.
        asks: True if the agent can put a question to its user now.
        input: The arguments of the tool, as the agent reported them.
        note: The reason of a `REFUSED` call.
        rewrites: True if the agent runs the command that a hook returns in place of its own.
    """

    agent: str
    kind: CallKind
    tool: str
    session: str
    call: str
    cwd: str
    script: str = ""
    actions: "tuple[Action, ...]" = ()
    plan: bool = False
    asks: bool = False
    input: "dict[str, object] | None" = None
    note: str = ""
    rewrites: bool = True


class HookAnswer(StrEnum):
    """The decision of a hook about a call. `NONE` leaves the call to the agent's own rules."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class GuardAnswer:
    """The answer to one call.

    Attributes:
        answer: What the agent must do.
        reason: The reason in words, for the user and the model.
        rewritten: The command that replaces the script of a shell call; empty if nothing is replaced.
    """

    answer: HookAnswer
    reason: str = ""
    rewritten: str = ""


class UnreadableCallError(ValueError):
    """The error for a hook input that has not the form that its agent documents. The text says what is wrong."""
