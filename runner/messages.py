"""What travels between the loop and a model: messages, tool calls, replies, and the Provider protocol."""

from collections.abc import AsyncIterator, Sequence
from enum import StrEnum
from typing import Protocol

from policy.record import dataclass
from policy.verdict import Problem


@dataclass(frozen=True, slots=True)
class TextBlock:
    text: str


@dataclass(frozen=True, slots=True)
class ThinkingBlock:
    """Reasoning the provider wants back verbatim. `signature` and `redacted` are opaque provider data."""

    text: str
    signature: str = ""
    redacted: str = ""


@dataclass(frozen=True, slots=True)
class ImageBlock:
    media_type: str  # image/png, image/jpeg, image/gif, image/webp
    data: str  # base64


@dataclass(frozen=True, slots=True)
class ToolCall:
    """`arguments` is the parsed JSON object, or None when the model's JSON did not parse (`raw` keeps it)."""

    id: str
    name: str
    arguments: dict[str, object] | None
    raw: str = ""


@dataclass(frozen=True, slots=True)
class ToolResult:
    call_id: str
    content: tuple[TextBlock | ImageBlock, ...]
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class UserMessage:
    content: tuple[TextBlock | ImageBlock, ...]


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    content: tuple[TextBlock | ThinkingBlock | ToolCall, ...]

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(block for block in self.content if isinstance(block, ToolCall))


@dataclass(frozen=True, slots=True)
class ToolMessage:
    """The results of one turn's calls, in source order."""

    results: tuple[ToolResult, ...]


Message = UserMessage | AssistantMessage | ToolMessage


class Stop(StrEnum):
    END = "end"
    TOOLS = "tools"
    LENGTH = "length"
    REFUSAL = "refusal"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts as the provider reports them."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's whole answer to one request."""

    message: AssistantMessage
    stop: Stop
    usage: Usage


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    text: str


StreamEvent = TextDelta | ThinkingDelta | Reply  # Reply is last, exactly once


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """What the model is told about a tool. `schema` is JSON Schema of the arguments."""

    name: str
    description: str
    schema: dict[str, object]


@dataclass(frozen=True, slots=True)
class Request:
    model: str
    system: str
    messages: Sequence[Message]
    tools: Sequence[ToolSpec]
    max_tokens: int = 16_384


class ProviderError(Exception):
    """The provider failed. `problem` is fit for a user and holds no secret. `retryable` says if waiting may help."""

    def __init__(self, problem: Problem, *, status: int | None = None, retryable: bool = False) -> None:
        super().__init__(str(problem))
        self.problem = problem
        self.status = status
        self.retryable = retryable


class Provider(Protocol):
    name: str

    def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        """Send one request; yield deltas, then the Reply. Raises ProviderError; cancellation closes the connection."""
        ...

    async def close(self) -> None: ...
