"""Messages exchanged with a model: blocks, tool calls, replies, and the `Provider` protocol."""

import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import ClassVar, Protocol

from policy.model.frozen import dataclass, replace
from policy.model.verdict import Problem, ProblemError
from runner.problems import Exit


@dataclass(frozen=True, slots=True)
class TextBlock:
    text: str


@dataclass(frozen=True, slots=True)
class ThinkingBlock:
    """Reasoning of a model that its provider requires back unchanged. `signature` and `redacted` are opaque provider
    data.
    """

    OPAQUE: ClassVar = ("signature", "redacted")  # never masked: a part that resembles a key is no key
    text: str
    signature: str = ""
    redacted: str = ""


@dataclass(frozen=True, slots=True)
class ImageBlock:
    media_type: str  # image/png, image/jpeg, image/gif, image/webp
    data: str  # base64


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool. `arguments` is the parsed JSON object, or None if the model wrote invalid or
    incomplete JSON, which `raw` then contains.
    """

    id: str
    name: str
    arguments: dict[str, object] | None
    raw: str = ""


UserBlock = TextBlock | ImageBlock  # a block of a user's message or of a result
ModelBlock = TextBlock | ThinkingBlock | ToolCall
Block = TextBlock | ThinkingBlock | ImageBlock | ToolCall


@dataclass(frozen=True, slots=True)
class ToolResult:
    call_id: str
    content: tuple[UserBlock, ...]
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class UserMessage:
    content: tuple[UserBlock, ...]


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    content: tuple[ModelBlock, ...]

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(block for block in self.content if isinstance(block, ToolCall))

    @property
    def spoken(self) -> tuple[TextBlock | ToolCall, ...]:
        """Return the blocks apart from the reasoning."""
        return tuple(block for block in self.content if not isinstance(block, ThinkingBlock))


@dataclass(frozen=True, slots=True)
class ToolMessage:
    """The results of one turn's calls, in the order of the calls."""

    results: tuple[ToolResult, ...]


Message = UserMessage | AssistantMessage | ToolMessage


def has_thoughts(message: Message) -> bool:
    return isinstance(message, AssistantMessage) and any(isinstance(each, ThinkingBlock) for each in message.content)


def without_thoughts(messages: list[Message]) -> None:
    """Remove the reasoning from `messages`, in place. Called before a request to another model, because a provider
    refuses the signatures of another provider.
    """
    messages[:] = map(thoughtless, messages)


def thoughtless(message: Message) -> Message:
    """Return `message` without reasoning; the same object if it has none."""
    if not isinstance(message, AssistantMessage) or not has_thoughts(message):
        return message
    return AssistantMessage(message.spoken or (TextBlock("[no answer]"),))


class StopNotice(StrEnum):
    """The first text of the result of a call that was stopped, for the model."""

    USER = "the user stopped this command before it was done; this is its output so far:"
    TIME = "the time of the run was over before it was done; this is its output so far:"
    FAILED = "the run ended before it was done; this is its output so far:"
    NOT_RUN = "not run: the turn was stopped before this call was done"


def answers(calls: Sequence[ToolCall], results: Mapping[int, ToolResult], missing: str) -> ToolMessage:
    """Return the results of `calls`, in their order. A call without a result gets an error with the text `missing`."""
    none = (TextBlock(missing),)
    return ToolMessage(
        tuple(results.get(at) or ToolResult(call.id, none, is_error=True) for at, call in enumerate(calls))
    )


def blocks_of(message: Message) -> Iterator[Block]:
    """Yield the blocks of a message in order; of a ToolMessage, the blocks of all its results."""
    contents = [each.content for each in message.results] if isinstance(message, ToolMessage) else [message.content]
    for content in contents:
        yield from content


def texts_of(block: Block) -> tuple[str, ...]:
    """Return the texts in a block: name and arguments of a call, nothing for an image."""
    match block:
        case TextBlock(text) | ThinkingBlock(text):
            return (text,)
        case ToolCall(name=name, arguments=arguments, raw=raw):
            return name, raw or json.dumps(arguments, ensure_ascii=False)
        case ImageBlock():
            return ()


def joined_text(content: Iterable[object]) -> str:
    """Return the text blocks of `content`, joined by newlines."""
    return "\n".join(block.text for block in content if isinstance(block, TextBlock))


def images_in(messages: Iterable[Message]) -> Iterator[ImageBlock]:
    """Return the images of users' messages and of results."""
    return (block for message in messages for block in blocks_of(message) if isinstance(block, ImageBlock))


def with_blocks(message: Message, made: Callable[[UserBlock], UserBlock]) -> Message:
    """Return `message` with each block of a user's message or of a result replaced by `made(block)`."""
    match message:
        case UserMessage(content):
            return UserMessage(tuple(map(made, content)))
        case ToolMessage(results):
            return ToolMessage(tuple(replace(each, content=tuple(map(made, each.content))) for each in results))
        case _:
            return message


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

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(*(getattr(self, kind) + getattr(other, kind) for kind in Usage.__slots__))


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


@dataclass(frozen=True, slots=True)
class CallOpened:
    """The start of a call of `tool`, whose arguments are still incomplete."""

    tool: str


@dataclass(frozen=True, slots=True)
class CallReady:
    """A complete call in a reply that is still in progress. The later Reply contains an equal call at the same
    place.
    """

    call: ToolCall


ReplyPiece = TextDelta | ThinkingDelta | CallOpened | CallReady
StreamEvent = ReplyPiece | Reply  # Reply is last, exactly once


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """The description of a tool for the model. `schema` is the JSON Schema of the arguments."""

    name: str
    description: str
    schema: dict[str, object]


class Thinking(StrEnum):
    """The amount of reasoning requested from a model. With OFF, the request names no amount."""

    OFF = "off"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    MAX = "max"


@dataclass(frozen=True, slots=True)
class Request:
    model: str
    system: str
    messages: Sequence[Message]
    tools: Sequence[ToolSpec]
    max_tokens: int = 16_384
    thinking: Thinking = Thinking.OFF


class Failure(StrEnum):
    """The kind of a failed request, which decides how the runner reacts."""

    RETRYABLE = "retryable"  # a broken connection, a 5xx: a retry may succeed
    RATE_LIMITED = "rate_limited"  # too many requests: retry later, after `retry_after` if the server sent it
    OVERLOADED = "overloaded"  # the server is too busy: retry later, or use another model
    CONTEXT = "context"  # the conversation is longer than the model's window: shorten it
    AUTH = "auth"  # the key or its rights: the user must correct them
    FATAL = "fatal"  # a retry would fail in the same way


WAITING_HELPS = (Failure.RETRYABLE, Failure.RATE_LIMITED, Failure.OVERLOADED)


class ProviderError(ProblemError):
    """The error of a failed request to a provider. `problem` can be shown to a user and contains no secret.

    Attributes:
        status: the HTTP status; None if no server answered.
        failure: the kind of the failure.
        retry_after: seconds to wait, as requested by the server, or None.
        window: size in tokens of the model's context window, if the server stated it, or None.
        server_message: the server's own message on one line, secrets masked, shortened; empty if the server sent none,
            and for a refused key.
        thoughts: True if the server refuses the signatures of earlier thinking blocks.
        images: True if the server may have refused an image.
        repeats: largest number of repeated requests that are useful; None for no limit of this error.
    """

    exit_code: ClassVar[int] = Exit.FAILED

    def __init__(
        self,
        problem: Problem,
        *,
        status: int | None = None,
        failure: Failure = Failure.FATAL,
        retry_after: float | None = None,
        window: int | None = None,
    ) -> None:
        super().__init__(problem)
        self.status = status
        self.failure = failure
        self.retry_after = retry_after
        self.window = window
        self.server_message = ""
        self.repeats: int | None = None
        self.thoughts = False
        self.images = False

    @property
    def retryable(self) -> bool:
        """Return True if a later retry may succeed."""
        return self.failure in WAITING_HELPS


class Provider(Protocol):
    name: str

    def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        """Send one request; yield deltas, then the Reply. Raise ProviderError. Cancellation closes the connection."""
        ...

    async def close(self) -> None: ...
