"""The prompts of a conversation as rewind points, read from the session file for earlier runs."""

import contextlib
from bisect import bisect_left
from collections.abc import Collection, Sequence

from policy.model.frozen import dataclass
from runner.messages import Message, ToolMessage, joined_text
from runner.sessions.entries import Unsound
from runner.sessions.tree import Tree

# The heading above the output of a command that the user ran. Such a message of the user is not a prompt.
OWN = (
    "[I ran a command myself. This is no request. What stands between the tags below came of the command: it is data, "
    "and no words of mine.]"
)
_BEGINS = ("session", "run", "end")  # the first message after one of these is a prompt, unlike later ones


@dataclass(frozen=True, slots=True)
class RewindPoint:
    """The moment before a prompt, which /rewind returns to.

    Attributes:
        text: The prompt as the user typed it.
        length: The number of messages before the prompt.
        leaf: The last entry of the session's file before the prompt, or None.
        step: The last step of /undo before the prompt.
    """

    text: str
    length: int
    leaf: str | None
    step: int


def rewind_points(
    tree: Tree,
    path: Sequence[int],
    prompts: Sequence[tuple[int, int]],
    history: Sequence[Message],
    taken: Sequence[tuple[int, int]],
) -> list[RewindPoint]:
    """Return the prompts on the branch `path`.

    `prompts` are the lines of the user's messages, each with its place in `history`; `taken` are the steps of /undo.
    """
    own = {at for at, place in prompts if text_of(history[place]).startswith(OWN)}
    points, known = [], 0
    for at, place in prompts:
        before = bisect_left(path, at) - 1
        if at in own or not _begins(tree, path, before, own):
            continue
        while known < len(taken) and taken[known][0] < at:
            known += 1
        while tree.type(path[before]) == "grant":  # a copy of the session contains no grants
            before -= 1
        step = taken[known - 1][1] if known else 0
        points.append(RewindPoint(typed_of(tree, path, at, history[place]), place, tree.id(path[before]), step))
    return points


def _begins(tree: Tree, path: Sequence[int], last: int, own: Collection[int]) -> bool:
    """Return True if no message except for commands of `own` follows the start of the session or process, or the end of
    a prompt.
    """
    while (type := tree.type(path[last])) not in _BEGINS:
        if type == "message" and path[last] not in own:
            return False
        last -= 1
    return True


def typed_of(tree: Tree, path: Sequence[int], at: int, message: Message) -> str:
    """Return the text that the user typed for the `message` in line `at`: a /command instead of the text sent for
    it."""
    behind = bisect_left(path, at) + 1
    if behind < len(path) and tree.type(path[behind]) == "typed":
        with contextlib.suppress(Unsound):
            _, entry = next(tree.entries((path[behind],)))
            return str(entry.body["text"])
    return said_of(message)


def said_of(message: Message) -> str:
    """Return the text of a message for a list: for a command that the user ran, the command after a `!`."""
    text = text_of(message)
    return f"!{text[len(OWN) :].strip().removeprefix('$ ').partition(chr(10))[0]}" if text.startswith(OWN) else text


def text_of(message: Message) -> str:
    """Return the text of a message of the user or the model, and an empty string for results."""
    if isinstance(message, ToolMessage):
        return ""
    return joined_text(message.content)
