"""The public names of this program, which `import ringfence` provides (`ringfence.py`).

May import everything except `cli` and `frontends`. Nothing in this project imports this module but `ringfence.py`.
"""

from policy.model.action import (
    Action,
    CallServerTool,
    EditFile,
    EditNotebook,
    FetchAddress,
    GlobFiles,
    GrepFiles,
    ListFolder,
    LoadSkill,
    ProposeNote,
    QueryCode,
    ReadFile,
    ReadServerResource,
    RunArgv,
    RunScript,
    ScheduleJob,
    SearchNotes,
    SearchTools,
    SearchWeb,
    SignGit,
    SpawnAgent,
    WriteFile,
)
from policy.model.tier import Mode, Ruling, Tier
from policy.model.verdict import Allow, Ask, Deny, Limits, Permit, Problem, Rights, Terms
from policy.model.verdict import ProblemError as Error
from runner import VERSION as __version__
from runner.agent.agent import Agent, Answering, Decide
from runner.agent.conversation import Conversation
from runner.approval.approver import (
    Answer,
    Approver,
    Edited,
    Halt,
    Leave,
    No,
    PlanAnswer,
    Question,
    Stay,
    Yes,
)
from runner.approval.remembered import Offer
from runner.audit.chain import AuditError
from runner.config.settings import ConfigError
from runner.engine.budget import Limit
from runner.engine.run_limits import RunBudget
from runner.event_values import Card, FileChange, Mark, Pick
from runner.events import (
    ActionFinished,
    CallBegun,
    Changed,
    CommandOutput,
    Compacted,
    ContextUsed,
    Denied,
    Display,
    Emit,
    ErrorRaised,
    Event,
    InputWanted,
    MalformedCall,
    ModelText,
    ModelThinking,
    Notice,
    PickWanted,
    PlanProposed,
    ProcessEnded,
    ProcessStarted,
    Prompted,
    QuestionAnswered,
    QuestionAsked,
    Queued,
    Resumed,
    Retrying,
    RunEnded,
    SessionStarted,
    Steered,
    TaskChanged,
    ToolProposed,
    Unqueued,
    VerdictReached,
)
from runner.gate.gate import GateArgs, open_gate
from runner.loop import Ending
from runner.messages import (
    AssistantMessage,
    Failure,
    Message,
    Provider,
    ProviderError,
    Reply,
    Request,
    Stop,
    StreamEvent,
    TextBlock,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from runner.problems import Exit, Stopped
from runner.providers import OpenModel
from runner.providers.endpoint import SetupError
from runner.providers.scripted import ScriptedProvider, Turn
from runner.secrets.secret import SecretError
from runner.sessions.selection import SessionSelection
from runner.sessions.store import SessionError
from runner.state.json_file import StateError
from runner.state.paths import PlaceError
from sandbox.backend import Backend, Connection, Enforcement, Level, Outcome, SandboxUnavailable, Violation
from sandbox.backends import open_backend

# fmt: off
__all__ = [  # noqa: RUF022  # by subject
    "__version__",
    # an agent
    "Agent", "Answering", "Conversation", "Ending", "Exit", "Limit", "Mode", "OpenModel", "RunBudget",
    "SessionSelection", "Thinking", "Usage",
    # questions and answers
    "Answer", "Approver", "Ask", "Card", "Decide", "Edited", "FileChange", "Halt", "Leave", "Mark", "No", "Offer",
    "Pick", "PlanAnswer", "Question", "Ruling", "Stay", "Tier", "Yes",
    # events
    "ActionFinished", "CallBegun", "Changed", "CommandOutput", "Compacted", "ContextUsed", "Denied", "Display", "Emit",
    "ErrorRaised", "Event", "InputWanted", "MalformedCall", "ModelText", "ModelThinking", "Notice", "PickWanted",
    "PlanProposed", "ProcessEnded", "ProcessStarted", "Prompted", "QuestionAnswered", "QuestionAsked", "Queued",
    "Resumed", "Retrying", "RunEnded", "SessionStarted", "Steered", "TaskChanged", "ToolProposed", "Unqueued",
    "VerdictReached",
    # errors
    "AuditError", "ConfigError", "Error", "Failure", "PlaceError", "Problem", "ProviderError", "SandboxUnavailable",
    "SecretError", "SessionError", "SetupError", "StateError", "Stopped",
    # a provider of the program
    "AssistantMessage", "Message", "Provider", "Reply", "Request", "ScriptedProvider", "Stop", "StreamEvent",
    "TextBlock", "TextDelta", "ThinkingDelta", "ToolCall", "ToolMessage", "Turn", "UserMessage",
    # actions
    "Action", "CallServerTool", "EditFile", "EditNotebook", "FetchAddress", "GlobFiles", "GrepFiles", "ListFolder",
    "LoadSkill", "ProposeNote", "QueryCode", "ReadFile", "ReadServerResource", "RunArgv", "RunScript", "ScheduleJob",
    "SearchNotes",
    "SearchTools",
    "SearchWeb", "SignGit", "SpawnAgent", "WriteFile",
    # the sandbox alone
    "Allow", "Backend", "Connection", "Deny", "Enforcement", "GateArgs", "Level", "Limits", "Outcome", "Permit",
    "Rights", "Terms", "Violation", "open_backend", "open_gate",
]
# fmt: on
