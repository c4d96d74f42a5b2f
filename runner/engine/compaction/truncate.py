"""Shortening of a single message. Calls and results keep their ids, so every result still belongs to its call."""

from collections.abc import Callable
from dataclasses import replace

from runner.messages import (
    AssistantMessage,
    ImageBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolMessage,
    UserMessage,
)

_TRIMMED = 1_500  # characters that are left of a long result
_LINE = 160
_NO_IMAGE = TextBlock("[an image was here; it was left out to save room]")

_Shown = tuple[TextBlock | ImageBlock, ...]


def trimmed(message: Message) -> Message:
    """Remove the middle of long results, and all images."""
    return _results(message, lambda content: tuple(_picture(block, _TRIMMED) for block in content))


def lined(message: Message) -> Message:
    """Shorten each result to one line, and remove the model's thoughts if the message contains anything else."""
    if isinstance(message, AssistantMessage):
        rest = tuple(block for block in message.content if not isinstance(block, ThinkingBlock))
        return AssistantMessage(rest) if rest and len(rest) < len(message.content) else message
    return _results(message, _one_line)


def capped(message: Message, most: int) -> Message:
    """Shorten every text of `message` to at most `most` characters, whoever wrote the text."""
    match message:
        case ToolMessage():
            return _results(message, lambda content: tuple(_picture(block, most) for block in content))
        case UserMessage(content):
            return UserMessage(tuple(_picture(block, most) for block in content))
        case AssistantMessage(content):
            return AssistantMessage(tuple(_shorten_block(block, most) for block in content))


def middle_out(text: str, most: int, why: str = "left out to save room") -> str:
    """Return the beginning and the end of `text` in about `most` characters, with the number of characters left out."""
    if len(text) <= most + 80:  # the word itself takes room
        return text
    head = most * 2 // 3
    tail = most - head
    return f"{text[:head]}\n[{len(text) - head - tail} characters {why}]\n{text[len(text) - tail :]}"


def _results(message: Message, shorter: Callable[[_Shown], _Shown]) -> Message:
    if not isinstance(message, ToolMessage):
        return message
    results = tuple(
        result if (content := shorter(result.content)) == result.content else replace(result, content=content)
        for result in message.results
    )
    return message if results == message.results else ToolMessage(results)


def _picture(block: TextBlock | ImageBlock, most: int) -> TextBlock | ImageBlock:
    return _NO_IMAGE if isinstance(block, ImageBlock) else _text(block, most)


def _text(block: TextBlock, most: int) -> TextBlock:
    text = middle_out(block.text, most)
    return block if text is block.text else TextBlock(text)


def _one_line(content: _Shown) -> _Shown:
    text = "\n".join(block.text for block in content if isinstance(block, TextBlock))
    images = sum(isinstance(block, ImageBlock) for block in content)
    first = next((line.strip() for line in text.split("\n") if line.strip()), "")
    if not images and len(text) <= _LINE:
        return content
    line = first[:_LINE]
    rest = len(text) - len(line)
    left = [f"{rest} more characters"] * (rest > 0) + [f"{images} images"] * (images > 0)
    return (TextBlock(f"{line} [{' and '.join(left)} left out to save room]".strip()),)


def _shorten_block(block: TextBlock | ThinkingBlock | ToolCall, most: int) -> TextBlock | ThinkingBlock | ToolCall:
    match block:
        case TextBlock():
            return _text(block, most)
        case ToolCall(arguments=arguments, raw=raw):
            return replace(
                block,
                arguments=None if arguments is None else {name: _value(each, most) for name, each in arguments.items()},
                raw=middle_out(raw, most),
            )
        case ThinkingBlock():
            return block  # its signature is about these very words


def _value(value: object, most: int) -> object:
    match value:
        case str():
            return middle_out(value, most)
        case list():
            return [_value(each, most) for each in value]
        case dict():
            return {name: _value(each, most) for name, each in value.items()}
        case _:
            return value
