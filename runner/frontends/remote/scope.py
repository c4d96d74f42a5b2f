"""The scopes of tokens for remote access, and the lines of JSON mode that each of them may send to a session."""

from collections.abc import Mapping
from enum import StrEnum

from policy.model.frozen import dataclass
from policy.model.verdict import Problem, ProblemError

LONGEST_REASON = 2_000  # characters of a reason that comes with a refusal
LONGEST_PROMPT = 32_000  # characters of a prompt of the page


class TokenScope(StrEnum):
    """A level of rights of a token: to see sessions and the record; also to answer questions; also to send prompts."""

    VIEW = "view"
    ANSWER = "answer"
    PROMPT = "prompt"


class NotAllowed(ProblemError):
    """The error for a line that the scope of the token does not allow, or that no page sends."""

    def __init__(self, why: str, fix: str) -> None:
        super().__init__(Problem("the line was refused", why, fix))


@dataclass(frozen=True, slots=True)
class _Shape:
    """The fields of one kind of line with their types, and the smallest scope that may send it."""

    scope: TokenScope
    fields: Mapping[str, type]


_ORDER = tuple(TokenScope)
# THREAT T283: changes of the mode or the model (other than a choice of a card), commands of the user and /commands are
# not for a token at all. They would turn a phone that got lost into a terminal.
_LINES = {
    "answer": _Shape(TokenScope.ANSWER, {"id": str, "answer": str, "feedback": str, "values": dict}),
    "prompt": _Shape(TokenScope.PROMPT, {"text": str}),
    "steer": _Shape(TokenScope.PROMPT, {"text": str}),
    "interrupt": _Shape(TokenScope.PROMPT, {}),
}
_LONGEST = {"feedback": LONGEST_REASON, "text": LONGEST_PROMPT, "id": 100, "answer": 500}
_REQUIRED = {"answer": ("id", "answer"), "prompt": ("text",), "steer": ("text",), "interrupt": ()}


def includes(scope: TokenScope, needed: TokenScope) -> bool:
    """Return True if `scope` allows everything that `needed` allows."""
    return _ORDER.index(scope) >= _ORDER.index(needed)


def permitted_line(scope: TokenScope, line: object) -> dict[str, object]:
    """Return a new line of JSON mode with the checked fields of `line`. Raise NotAllowed.

    THREAT T283: the scope is checked here for each line, and by the session again. An answer with another command
    (`edit`) is not possible from a page: it would be a prompt.
    """
    if not isinstance(line, dict) or not isinstance(kind := line.get("type"), str) or kind not in _LINES:
        raise NotAllowed("a page sends answers, prompts and interrupts alone", f"the lines are: {', '.join(_LINES)}")
    shape = _LINES[kind]
    if not includes(scope, shape.scope):
        raise NotAllowed(f"the scope `{scope}` does not allow `{kind}`", f"use a token with the scope `{shape.scope}`")
    checked: dict[str, object] = {"type": kind}
    for name, value in line.items():
        if name == "type":
            continue
        if name not in shape.fields or not isinstance(value, shape.fields[name]):
            known = ", ".join(shape.fields) or "none"
            raise NotAllowed(f"`{kind}` has a field that it cannot have", f"its fields are: {known}")
        if isinstance(value, str) and len(value) > _LONGEST[name]:
            raise NotAllowed(f"`{name}` is longer than {_LONGEST[name]:,} characters", "make it shorter")
        checked[name] = value
    if missing := [name for name in _REQUIRED[kind] if name not in checked]:
        raise NotAllowed(f"`{kind}` lacks `{missing[0]}`", "reload the page")
    if checked.get("answer") == "edit":
        raise NotAllowed("a page cannot replace a command", "refuse with a reason, or answer at a terminal")
    return checked
