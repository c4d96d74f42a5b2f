"""The content of a prompt of an editor: the words of the user, images, and material such as files and selections.

THREAT T289: an editor attaches files, selections and links by itself, and their texts were written by others. Only text
blocks are words of the user. Each file is read through the gate like any call, so that a secret is not sent because it
is open in the editor. The text is marked as material, with its source. A file of the workspace has the label of that
file; everything else is untrusted. Names and addresses of attachments never become words of the user.
"""

import os
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from acp import schema

from policy.model.facts import Kind
from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from runner.agent.conversation import ATTACHED
from runner.engine.execute import execute_call
from runner.engine.judge import judge_call
from runner.engine.run_context import RunContext
from runner.engine.steering import UserInput
from runner.engine.tool_calls import CallResult, ModelCall
from runner.events import Notice
from runner.frontends.jsonl.protocol import Misread, checked_image
from runner.messages import ImageBlock, TextBlock, ToolCall, joined_text
from runner.problems import Exit, Stopped
from runner.text.phrases import many
from runner.text.sanitize import marked, one_line

PromptBlock = (
    schema.TextContentBlock
    | schema.ImageContentBlock
    | schema.AudioContentBlock
    | schema.ResourceContentBlock
    | schema.EmbeddedResourceContentBlock
)
IDE = "ringfence/ide"  # the key of the state of the editor in `_meta` of a prompt
_MOST = 50  # attachments of one prompt
_MOST_IMAGES = 20
_LONGEST_PROMPT = 1 << 20  # characters of the words of the user
_LONGEST_TEXT = 200_000  # characters of one attachment
_LONGEST_NAME = 300  # characters
_LINES = re.compile(r"L?(\d{1,7})(?:[:-]L?(\d{1,7}))?")


@dataclass(frozen=True, slots=True)
class Attachment:
    """One attachment of a prompt.

    Attributes:
        name: Its name, which is untrusted.
        path: The absolute path of the file, or empty if it is no file.
        lines: The first and the last line of a part of the file, or None for the whole file.
        text: The text that the editor sent, or None for a link.
        image: The data and type of an image that the editor sent, or None.
        what: The kind of the attachment, in words.
    """

    name: str
    path: str = ""
    lines: tuple[int, int] | None = None
    text: str | None = None
    image: tuple[str, str] | None = None
    what: str = "attachment"


@dataclass(frozen=True, slots=True)
class EditorPrompt:
    """A prompt as the editor sent it.

    Attributes:
        words: The words of the user, with the places of attachments.
        images: The images.
        attachments: The attachments, in the order of their numbers.
    """

    words: str
    images: tuple[ImageBlock, ...] = ()
    attachments: tuple[Attachment, ...] = ()


def refused(why: str, fix: str) -> Stopped:
    """Return the error for a prompt that cannot be sent."""
    return Stopped(Problem("the prompt cannot be sent", why, fix), Exit.USAGE)


def read_blocks(blocks: Sequence[PromptBlock], meta: object = None) -> EditorPrompt:
    """Return the prompt in the blocks of an editor; `meta` is the `_meta` of the request. Raise Stopped."""
    words, images, attachments = "", list[ImageBlock](), list[Attachment]()

    def add(piece: str) -> None:
        nonlocal words
        apart = bool(words) and not words[-1].isspace() and piece[:1] not in (" ", "\n", "\t", ",", ".", ":", ";", ")")
        words += f"{' ' if apart else ''}{piece}"

    def attach(found: Attachment) -> None:
        if len(attachments) >= _MOST:
            raise refused(f"it has more than {_MOST} attachments", "attach fewer, or name files in the text")
        attachments.append(found)
        add(f"[attached {len(attachments)}]")

    for block in blocks:
        match block:
            case schema.TextContentBlock() if not _of_user(block):
                attach(Attachment("a text that the editor added", text=block.text, what="text"))
            case schema.TextContentBlock():
                add(block.text)
            case schema.ImageContentBlock():
                images.append(_good_image(block.mime_type, block.data, len(images) + 1))
            case schema.AudioContentBlock():
                raise refused("it has a recording, and this agent reads text and images", "write the text")
            case schema.ResourceContentBlock():
                attach(_link(block))
            case schema.EmbeddedResourceContentBlock():
                attach(_resource(block.resource))
    for found in _of_ide(meta):
        attach(found)
    if len(words) > _LONGEST_PROMPT:
        raise refused(f"it is longer than {_LONGEST_PROMPT:,} characters", "let the model read a file")
    if len(images) > _MOST_IMAGES:
        raise refused(f"it has more than {_MOST_IMAGES} images", "send several prompts")
    if not words.strip() and not images:
        raise refused("it is empty", "write what to do")
    return EditorPrompt(words or "[image]", tuple(images), tuple(attachments))


def _of_user(block: schema.TextContentBlock) -> bool:
    """Return False for a text that the editor marked as not meant for the user."""
    audience = block.annotations.audience if block.annotations is not None else None
    return not audience or "user" in audience


def _link(block: schema.ResourceContentBlock) -> Attachment:
    path, lines = _file(block.uri)
    if path:
        return Attachment(block.name, path, lines, what="file")
    text = "\n".join(each for each in (block.title or block.name, block.uri, block.description) if each)
    return Attachment(block.name or block.uri, text=text, what="link")


def _resource(resource: Any) -> Attachment:
    path, lines = _file(resource.uri)
    if isinstance(resource, schema.TextResourceContents):
        return Attachment(resource.uri, path, lines, text=resource.text, what="file" if path else "resource")
    media = resource.mime_type or ""
    if media.startswith("image/"):
        return Attachment(resource.uri, path, image=(media, resource.blob), what="image")
    return Attachment(resource.uri, path, what="file" if path else "binary resource")


def _file(uri: str) -> tuple[str, tuple[int, int] | None]:
    """Return the path and the lines that a `file:` address or an absolute path names; an empty path for others."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return "", None
    local = parts.scheme == "file" and parts.netloc in ("", "localhost")
    if not local and not (uri.startswith("/") and not uri.startswith("//")):
        return "", None
    path = unquote(parts.path)
    if not path.startswith("/") or "\0" in path:
        return "", None
    found = _LINES.fullmatch(parts.fragment)
    lines = (int(found[1]), int(found[2] or found[1])) if found is not None else None
    return os.path.normpath(path), lines if lines is not None and 1 <= lines[0] <= lines[1] else None


def _of_ide(meta: object) -> list[Attachment]:
    """Return the open file and the selection in the `_meta` of a prompt. Raise Stopped if they have another form."""
    state = meta.get(IDE) if isinstance(meta, dict) else None
    if state is None:
        return []
    found = []
    opened = state.get("openFile") if isinstance(state, dict) else None
    chosen = state.get("selection") if isinstance(state, dict) else None
    good = isinstance(state, dict) and set(state) <= {"openFile", "selection"}
    if opened is not None:
        path = _file(opened)[0] if isinstance(opened, str) else ""
        good = good and bool(path)
        found.append(Attachment(path, text=f"The file that is open in the editor: {path}", what="open file"))
    if chosen is not None:
        uri, text = (chosen.get("uri"), chosen.get("text")) if isinstance(chosen, dict) else (None, None)
        lines = (chosen.get("startLine"), chosen.get("endLine")) if isinstance(chosen, dict) else (None, None)
        path = _file(uri)[0] if isinstance(uri, str) else ""
        numbers = [each for each in lines if type(each) is int]
        good = good and bool(path) and isinstance(text, str | None) and len(numbers) == 2 and min(numbers) >= 1
        if good:
            found.append(Attachment(path, path, (min(numbers), max(numbers)), text=text, what="selection"))
    if not good:
        form = '{"openFile": "file:///...", "selection": {"uri": "file:///...", "startLine": 1, "endLine": 2}}'
        raise refused(f"`{IDE}` in `_meta` has another form", f"write {form}, each part optional")
    return found


async def with_attachments(prompt: EditorPrompt, ctx: RunContext, key: str) -> UserInput:
    """Return the prompt for the model with what its attachments contain. `key` is the beginning of the keys of calls.

    Raise what `execute_call` raises.
    """
    texts: list[str] = []
    images = list(prompt.images)
    for number, each in enumerate(prompt.attachments, 1):
        text, more = await _content(each, ctx, f"{key}.{number}")
        images += more
        if text:
            lines = f"{each.lines[0]}-{each.lines[1]}" if each.lines is not None else ""
            where = {"lines": lines} if lines else {}
            name = one_line(each.path or each.name, _LONGEST_NAME)
            texts.append(marked("attached", text, place=str(number), kind=each.what, source=name, **where))
    if not texts:
        return UserInput(prompt.words, prompt.words if prompt.attachments else "", tuple(images))
    material = "\n\n".join(texts)
    return UserInput(f"{prompt.words}\n\n{ATTACHED}\n\n{material}", prompt.words, tuple(images))


async def _content(found: Attachment, ctx: RunContext, key: str) -> tuple[str, tuple[ImageBlock, ...]]:
    """Return the text and the images of an attachment; neither if it is left out, which a notice says."""
    name = one_line(found.path or found.name, _LONGEST_NAME)
    if found.image is not None and not found.path:
        return _image(found, ctx)
    if found.path:
        missing = ctx.look().look(found.path).kind is Kind.MISSING
        if not missing:
            return await _of_file(found, ctx, key)
        if found.text is None:
            ctx.emit(Notice(f"`{name}` is not attached: there is no such file"))
            return "", ()
    if found.text is None:
        ctx.emit(Notice(f"`{name}` is not attached: it is neither text nor an image"))
        return "", ()
    if found.what != "open file":
        _untrusted(found, found.text, ctx)
    return _cut(found.text, name, ctx), ()


async def _of_file(found: Attachment, ctx: RunContext, key: str) -> tuple[str, tuple[ImageBlock, ...]]:
    """Read a file through the gate, and return its content, or the text that the editor has in its place."""
    arguments: dict[str, object] = {"path": found.path}
    if found.lines is not None:
        arguments |= {"offset": found.lines[0], "limit": min(found.lines[1] - found.lines[0] + 1, 100_000)}
    call = ModelCall(key, ToolCall(key, "read", arguments), own=True)
    judged = judge_call(call, ctx)
    assert isinstance(judged, CallResult) or hasattr(judged, "planned")  # reading is no proposal of a plan
    report = judged if isinstance(judged, CallResult) else await execute_call(judged, ctx, lambda stopped: None)
    name = one_line(found.path, _LONGEST_NAME)
    if report.denied is not None:
        ctx.emit(Notice(f"`{name}` is not attached: {report.denied.problem.why}"))
        return "", ()
    images = tuple(block for block in report.result.content if isinstance(block, ImageBlock))
    text = joined_text(tuple(block for block in report.result.content if isinstance(block, TextBlock)))
    if found.text is not None:  # what the editor shows, which may be newer than the file
        text = _cut(found.text, name, ctx)
    elif report.result.is_error:
        ctx.emit(Notice(f"`{name}` is not attached: {one_line(text, _LONGEST_NAME)}"))
        return "", ()
    workspace = ctx.look().workspace.rstrip("/")
    if not os.path.realpath(found.path).startswith(f"{workspace}/"):
        _untrusted(found, text, ctx)
    return text, images


def _image(found: Attachment, ctx: RunContext) -> tuple[str, tuple[ImageBlock, ...]]:
    assert found.image is not None  # the caller has checked it
    media, data = found.image
    image = _good_image(media, data, 1)
    _untrusted(found, data, ctx)
    return "", (image,)


def _good_image(media: str, data: str, number: int) -> ImageBlock:
    """Return an image that is complete and of its type. Raise Stopped for another one."""
    try:
        return checked_image({"media": media, "data": data}, number)
    except Misread as error:
        raise refused(error.problem.why, error.problem.fix) from None


def _untrusted(found: Attachment, text: str, ctx: RunContext) -> None:
    if ctx.flow is not None:
        name = one_line(found.path or found.name, 100)
        ctx.flow.note_untrusted(f"the {found.what} {name}, which the editor attached", text)


def _cut(text: str, name: str, ctx: RunContext) -> str:
    if len(text) <= _LONGEST_TEXT:
        return text
    left = len(text) - _LONGEST_TEXT
    ctx.emit(Notice(f"of `{name}`, {many(left, 'character')} are not attached"))
    return f"{text[:_LONGEST_TEXT]}\n[{many(left, 'character')} more are not attached]"
