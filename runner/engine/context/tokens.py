"""The number of tokens of a request: reported by the provider, and estimated for messages added since then."""

import json
from collections.abc import Iterable, Sequence

from policy.model.frozen import dataclass
from runner.events import ContextUsed
from runner.messages import Block, ImageBlock, Message, ThinkingBlock, ToolCall, ToolMessage, ToolSpec, Usage, texts_of

# The approximate size of one token, in English text and code. Tokenizers differ between models.
_ASCII = 4  # characters
_OTHER = 3  # bytes in UTF-8: a Chinese character, one and a half Cyrillic ones
_FRAME = 4  # tokens of a message or a result in addition to its text: its role and marks
_CALL = 12  # tokens of a call in addition to its text: its id and marks
_IMAGE = 1_600  # tokens. SOURCE: the most of Anthropic's models for one image; other models need about as many or fewer
_UNSAID = 4_000  # tokens of the system prompt and the tools until they are known

# Bounds of `rate`. Outside of them the server counts something other than tokens, or nothing.
_LEAST, _MOST = 0.5, 3.0


@dataclass(frozen=True, slots=True)
class Size:
    """The number of tokens of a request. `exact` is True if the provider counted all of them."""

    tokens: int
    exact: bool


class ContextMeter:
    """A meter of the context window that the next request uses. There is one meter for each conversation.

    The last count of the provider is the base, and only the difference to it is estimated: by characters, at the rate
    observed in the provider's own numbers. The meter therefore also works after messages were shortened.

    Attributes:
        rate: The number of the model's tokens for one estimated token.
    """

    def __init__(self) -> None:
        self._fixed = float(_UNSAID)
        self._counted: int | None = None  # tokens of a request with its answer, by the provider
        self._weighed = 0.0  # the estimate for the same messages, without the fixed parts
        self.rate = 1.0
        self._ours = True  # True if the next request goes to the model that counted
        self._known: dict[int, tuple[Message, float]] = {}  # the last estimates, by `id()` of the message

    def fixed(self, text: str, tools: Sequence[ToolSpec]) -> None:
        """Set the parts of every request beside the messages. They are estimated until the provider reports tokens."""
        self._fixed = weight(text) + weight_of_tools(tools)

    def answered(self, usage: Usage, sent: Sequence[Message], answer: Message) -> None:
        """Learn from the usage of an answered request with `sent`.

        After a usage without input tokens, sizes are estimated until the provider reports tokens again.
        """
        asked = usage.input + usage.cache_read + usage.cache_write
        if asked <= 0:
            self._counted = None
            return
        before = self._weigh(sent)
        self.rate = min(max(asked / (before + self._fixed), _LEAST), _MOST)
        self._counted = asked + usage.output
        self._weighed = before + weight_of(answer)
        self._ours = True

    @property
    def counted(self) -> int | None:
        """Return the tokens of the last request and its answer by the provider's count, or None if there is none."""
        return self._counted

    def model_changed(self) -> None:
        """Treat the last count as an estimate, because another model answers from now on."""
        self._ours = False

    def size(self, messages: Sequence[Message]) -> Size:
        """Return the size of a request with `messages`."""
        weighed = self._weigh(messages)
        if self._counted is None:
            return Size(round((self._fixed + weighed) * self.rate), exact=False)
        more = weighed - self._weighed
        least = round(weighed * _LEAST)  # a lower bound if many messages were removed since the count
        return Size(max(self._counted + round(more * self.rate), least), exact=self._ours and abs(more) < 1)

    def used(self, messages: Sequence[Message], window: int | None, cost: float | None) -> ContextUsed:
        """Return the use of the window by a request with `messages`, as an event.

        `window` is the size of the window in tokens, and `cost` is the cost of the run so far; None if unknown.
        """
        size = self.size(messages)
        return ContextUsed(size.tokens, window, size.exact, cost)

    def _weigh(self, messages: Iterable[Message]) -> float:
        """Return the estimated tokens of `messages`. Estimates of messages from the last request are reused."""
        before, self._known = self._known, {}
        total = 0.0
        for message in messages:
            known = before.get(id(message))
            weighed = known if known is not None and known[0] is message else (message, weight_of(message))
            self._known[id(message)] = weighed
            total += weighed[1]
        return total


def weight(text: str) -> float:
    """Return the estimated number of tokens of a text."""
    if text.isascii():
        return len(text) / _ASCII
    plain = len(text.encode("ascii", "ignore"))
    return plain / _ASCII + (len(text.encode("utf-8", "surrogatepass")) - plain) / _OTHER


def weight_of_tools(tools: Iterable[ToolSpec]) -> float:
    """Return the estimated number of tokens of the descriptions of `tools`."""
    return sum(_CALL + weight(each.name) + weight(each.description) + weight(json.dumps(each.schema)) for each in tools)


def weight_of(message: Message) -> float:
    """Return the estimated number of tokens of a message."""
    if isinstance(message, ToolMessage):
        return _FRAME + sum(_FRAME + sum(map(_block, result.content)) for result in message.results)
    return _FRAME + sum(map(_block, message.content))


def _block(block: Block) -> float:
    if isinstance(block, ImageBlock):
        return float(_IMAGE)  # the number depends on the model
    texts = texts_of(block)
    if isinstance(block, ThinkingBlock):
        texts = (*texts, block.signature, block.redacted)
    return (_CALL if isinstance(block, ToolCall) else 0) + sum(map(weight, texts))
