"""The lines that a program writes to JSON mode. Each is one object, which is checked and converted to one value."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TypeVar

from policy.model.frozen import dataclass
from policy.model.tier import Mode
from policy.model.verdict import Problem, ProblemError
from runner.messages import ImageBlock, Thinking
from runner.text.strict_json import DuplicateNameError, parse_strictly

LONGEST = 16 << 20  # bytes of one line: enough for a prompt of 1 MiB with every character escaped
_ID = 100  # characters
_TEXT = 1 << 20  # characters, the limit of every prompt


@dataclass(frozen=True, slots=True)
class Prompt:
    """The request to work on a prompt, after the current work if there is some.

    Attributes:
        images: The images that belong to the text, complete and of their stated type.
    """

    text: str
    images: tuple[ImageBlock, ...] = ()


@dataclass(frozen=True, slots=True)
class Steer:
    """The request to give the model a text within the run, after the current batch of calls."""

    text: str


@dataclass(frozen=True, slots=True)
class FollowUp:
    """The request to give the model a text when the turn is over."""

    text: str


@dataclass(frozen=True, slots=True)
class TakeBack:
    """The request to discard every queued text."""


@dataclass(frozen=True, slots=True)
class AnswerLine:
    """An answer to the question or the list with that `id`.

    `answer` is yes, no, stop, edit (with `command`) or a key of the question's card. For a list, `answer` is the value
    of a row, or no. For input that a tool server requests, it is yes (with `values` for a form), no, or cancel.
    """

    id: str
    answer: str
    feedback: str | None = None
    command: str | None = None
    values: Mapping[str, object] | None = None

    @property
    def bare(self) -> bool:
        """Return True if the answer has neither feedback nor a command nor values."""
        return self.feedback is None and self.command is None and self.values is None


@dataclass(frozen=True, slots=True)
class Interrupt:
    """The request to stop the current work."""


@dataclass(frozen=True, slots=True)
class SetMode:
    mode: Mode


@dataclass(frozen=True, slots=True)
class SetModel:
    """The request to change the model to `provider:model`."""

    model: str


@dataclass(frozen=True, slots=True)
class SetThinking:
    level: Thinking


@dataclass(frozen=True, slots=True)
class Slash:
    """The request to run a /command, as typed."""

    text: str


@dataclass(frozen=True, slots=True)
class Shell:
    """The request to run a command of the user."""

    command: str


@dataclass(frozen=True, slots=True)
class Quit:
    """The request to stop the current work and end the program."""


Input = (
    Prompt | Steer | FollowUp | TakeBack | AnswerLine | Interrupt | SetMode | SetModel | SetThinking | Slash | Shell
    | Quit
)  # fmt: skip


class Misread(ProblemError):
    """The error for a line that is not valid, or not possible during the current work, and had no effect."""


def _misread(why: str, fix: str = 'write for example {"type": "prompt", "text": "what to do"}') -> Misread:
    return Misread(Problem("the line is not valid and was ignored", why, fix))


Field = tuple[type, int, bool]  # type, maximum length in characters, required
_WORDS: Field = (str, _TEXT, True)
_SHORT: Field = (str, _ID, True)

# fmt: off
_SHAPES: Mapping[str, tuple[Mapping[str, Field], Callable[..., Input]]] = {
    "prompt":    ({"text": _WORDS, "images": (list, 0, False)},
                  lambda text, images=(): Prompt(text, _images(images))),
    "steer":     ({"text": _WORDS},                      Steer),
    "follow_up": ({"text": _WORDS},                      FollowUp),
    "take_back": ({},                                    TakeBack),
    "answer":    ({"id": _SHORT, "answer": (str, 2000, True), "feedback": (str, _TEXT, False),
                   "command": (str, _TEXT, False), "values": (dict, 0, False)}, AnswerLine),
    "interrupt": ({},                                    Interrupt),
    "mode":      ({"mode": _SHORT},                      lambda mode: SetMode(_one_of(Mode, "mode", mode))),
    "model":     ({"model": (str, 500, True)},           SetModel),
    "thinking":  ({"level": _SHORT},                     lambda level: SetThinking(_one_of(Thinking, "level", level))),
    "command":   ({"text": _WORDS},                      Slash),
    "shell":     ({"command": _WORDS},                   Shell),
    "quit":      ({},                                    Quit),
}
# fmt: on
TYPES = tuple(_SHAPES)
_KINDS_OF: Mapping[object, str] = {str: "a text", dict: "an object", list: "a list"}
_IMAGES = 20  # images of one prompt


def parse(line: bytes) -> Input:
    """Parse one line. Raise Misread, which names the mistake, if the line is not understood."""
    if len(line) > LONGEST:
        raise _misread(f"it is longer than {LONGEST >> 20} MiB", "let the model read a file")
    try:
        found = parse_strictly(line.decode("utf-8"))
    except UnicodeDecodeError:
        raise _misread("it is not UTF-8") from None
    except DuplicateNameError as error:
        raise _misread(f"`{error.name[:_ID]}` is in the line twice") from None
    except (ValueError, RecursionError):
        raise _misread("it is not JSON") from None
    if not isinstance(found, dict) or not isinstance(kind := found.get("type"), str):
        raise _misread("it is not a JSON object with a text `type`")
    if kind not in _SHAPES:
        raise _misread(f"there is no type `{kind[:_ID]}`", f"the types are {', '.join(TYPES)}")
    fields, make = _SHAPES[kind]
    del found["type"]
    for name in found:
        if name not in fields:
            known = ", ".join(f"`{each}`" for each in fields) or "none"
            raise _misread(f"`{name[:_ID]}` is not a field of {kind}", f"its fields are: {known}")
    for name, (of, most, needed) in fields.items():
        value = found.get(name)
        if value is None and not needed:
            found.pop(name, None)
        elif not isinstance(value, of):
            raise _misread(f"{kind} needs `{name}`, {_KINDS_OF[of]}")
        elif isinstance(value, str) and len(value) > most:
            raise _misread(f"`{name}` is longer than {most} characters", "make it shorter")
        elif name in ("text", "command") and isinstance(value, str) and not value.strip():
            raise _misread(f"`{name}` is empty")
    return make(**found)


E = TypeVar("E", bound=StrEnum)


def _one_of(kind: type[E], name: str, value: str) -> E:
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(each.value for each in kind)
        raise _misread(f"there is no {name} `{value}`", f"the {name}s are {known}") from None


def _images(given: Sequence[object]) -> tuple[ImageBlock, ...]:
    """Return the images of a prompt. Raise Misread for one that no model accepts: it would end the conversation.

    THREAT T249: what a program sends as an image is checked to be complete and of its type.
    """
    if len(given) > _IMAGES:
        raise _misread(f"it has {len(given)} images, and at most {_IMAGES} are sent", "send several prompts")
    return tuple(checked_image(each, number) for number, each in enumerate(given, 1))


def checked_image(given: object, number: int) -> ImageBlock:
    """Return the image in `{"media": ..., "data": ...}`. Raise Misread; `number` names the image in the error."""
    import binascii

    from sandbox.inside.files.image_check import SIDE_CAP, picture  # few prompts have images
    from sandbox.inside.files.read import IMAGE_CAP

    form = 'write {"media": "image/png", "data": "BASE64"}'
    if not isinstance(given, dict) or set(given) != {"media", "data"}:
        raise _misread(f"image {number} is not an object with `media` and `data` alone", form)
    media, data = given["media"], given["data"]
    if not isinstance(media, str) or not isinstance(data, str):
        raise _misread(f"`media` and `data` of image {number} are not texts", form)
    try:
        content = binascii.a2b_base64(data.encode("ascii"), strict_mode=True)
    except (ValueError, binascii.Error):
        raise _misread(f"`data` of image {number} is not base64", form) from None
    found = picture(content)
    if found is None or found[0] != media:
        kinds = "image/png, image/jpeg, image/gif or image/webp"
        raise _misread(f"image {number} is damaged, or its type is not that of `media`", f"the types are {kinds}")
    if len(content) > IMAGE_CAP or max(found[1:]) > SIDE_CAP:
        most = f"{IMAGE_CAP:,} bytes and {SIDE_CAP:,} pixels a side"
        raise _misread(
            f"image {number} is too large: models accept {most}", "send a smaller copy, or name its file with `@`"
        )
    return ImageBlock(media, data)
