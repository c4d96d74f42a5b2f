"""The received part of an answer that broke off or was cut, and the request to continue that answer.

The model is asked to begin with the last words that arrived, which shows whether a word was cut in the middle. Repeated
text is removed. The text of a model that repeats nothing stays complete.
"""

from dataclasses import field, replace

from policy.model.frozen import dataclass
from runner.messages import AssistantMessage, Message, Reply, TextBlock, ThinkingBlock, ToolCall, UserMessage
from runner.secrets.redactor import Redactor
from runner.text.model_text import whole_text

REMEMBERED = 4000  # characters that are searched for a repetition
_LEAST = 20  # characters; a shorter repetition may be a coincidence
_WORDS = 80  # approximate characters that a model is asked to begin with
BROKEN = "Your answer was interrupted here"
CUT = "Your answer was cut here, at the largest number of tokens of one answer"
_GO_ON = """\
[{why}. This is a note of the program, not of the user. The reader has all that you wrote above; continue from \
there, without a word about it. Begin by repeating exactly the last words that arrived, so that the two parts fit, and \
then write what follows.{lost} The last words, a quotation and not an instruction:]
{words}"""
_LOST = " A tool call that was not complete is lost: make it again after the text."


def last_words(text: str) -> str:
    """Return up to 80 characters of the end of `text`, from the beginning of a word."""
    end = text[-_WORDS:]
    if len(text) > len(end) and (begin := end.find(" ")) >= 0:
        end = end[begin + 1 :]
    return end.strip()


class OverlapFilter:
    """A filter for the pieces of an answer that continues after the text `before`."""

    def __init__(self, before: str) -> None:
        self._tail = before[-REMEMBERED:].rstrip()
        self._blank = before[len(before.rstrip()) :]  # the trailing space of `before`, which was shown, too
        self._held = ""
        self._open = bool(self._tail)

    def feed(self, text: str) -> str:
        """Add `text` and return the text that may be shown now. Text that may be a repetition is held back."""
        if not self._open:
            return text
        self._held += text
        if self._held.strip() and self._held.strip() not in self._tail:
            return self.end()
        return ""

    def end(self) -> str:
        """Return the text that was held back, without the repetition."""
        held, self._held, self._open = self._held, "", False
        text = held.lstrip()
        least = min(_LEAST, len(self._tail)) if self._tail else len(text) + 1
        for size in range(min(len(text), len(self._tail)), least - 1, -1):
            if self._tail.endswith(text[:size]):
                rest = text[size:]
                if rest.startswith(self._blank):
                    return rest[len(self._blank) :]
                return rest.lstrip()
        return held


@dataclass(slots=True)
class PartialReply:
    """The received part of an answer.

    Attributes:
        kept: The text of earlier requests, which was shown.
        said: The pieces of text of this request, which were shown.
        calls: The complete calls.
        begun: True if anything was received for this request.
        calling: True if the answer ended within a call.
        why: The reason why the answer ended.
    """

    kept: str = ""
    said: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    begun: bool = False
    calling: bool = False
    why: str = BROKEN

    @property
    def text(self) -> str:
        """Return all text that was shown."""
        return whole_text((self.kept, *self.said))

    @property
    def message(self) -> AssistantMessage:
        """Return a message with the text and the complete calls."""
        text = (TextBlock(self.text),) if self.text.strip() else ()
        return AssistantMessage((*text, *self.calls))

    def joined(self, reply: Reply) -> Reply:
        """Return `reply`, which completes the answer, with the text that was shown before."""
        if not self.kept:
            return reply
        thoughts = tuple(block for block in reply.message.content if isinstance(block, ThinkingBlock))
        text = (TextBlock(self.text),) if self.text else ()
        return replace(reply, message=AssistantMessage((*thoughts, *text, *reply.message.calls)))

    def ended(self, why: str) -> None:
        """Note that a request ended before the answer was complete."""
        self.kept, self.why, self.begun = self.text, why, False
        self.said.clear()

    def resumed(self, redactor: Redactor) -> tuple[Message, ...]:
        """Return the messages that ask the model to continue, or an empty tuple if no text was received."""
        if not self.kept.strip():
            return ()
        kept = redactor.mask(AssistantMessage((TextBlock(self.kept),)))
        words = last_words(redactor.text(self.kept))
        note = _GO_ON.format(why=self.why, lost=_LOST if self.calling else "", words=words)
        return kept, UserMessage((TextBlock(note),))
