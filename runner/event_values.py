"""Structured values of events: the content of a question, and the JSON form of every value."""

import dataclasses
from enum import Enum, IntEnum

from policy.grants.grant import GrantScope
from policy.model.action import Action
from policy.model.assessment import RuleRef
from policy.model.frozen import dataclass
from policy.model.profile import MAIN
from policy.model.tier import Tier


@dataclass(frozen=True, slots=True)
class Mark:
    """The words of a shown command that are the cause of a reason: `command[start:end]`, which is equal to `text`."""

    start: int
    end: int
    tier: Tier
    text: str


@dataclass(frozen=True, slots=True)
class PastRow:
    """One row of the earlier part of a session that is continued.

    Attributes:
        kind: `prompt`, `answer` (Markdown), `call`, `left out` (`text` is the number of earlier prompts),
            `more calls` (`text` is the number of calls that are left out) or `earlier steps` (`text` is empty: steps
            after the prompt are left out).
        text: The text, shortened.
        outcome: For a call: `done`, `failed`, `stopped` or `denied`.
    """

    kind: str
    text: str
    outcome: str = ""


@dataclass(frozen=True, slots=True)
class FileChange:
    """The change of one file.

    Attributes:
        path: The path of the file.
        new: True if the file does not exist yet.
        added: The number of added lines.
        removed: The number of removed lines.
        diff: The lines of the diff; each begins with `+`, `-`, a blank or `@@`.
        note: A fact that the diff does not show, or an empty string.
    """

    path: str
    new: bool
    added: int
    removed: int
    diff: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Pick:
    """One answer to a question that can be remembered.

    Attributes:
        keys: The keys that select the answer.
        words: The exact description of what is granted or forbidden.
        label: The short description below the action itself, such as "this exact command".
        span: The scope of the grant.
        where: The scope of the grant in words.
        not_covered: Two similar actions that the grant does not cover.
        yes: True for an approval, False for a refusal.
    """

    keys: tuple[str, ...]
    words: str
    label: str
    span: GrantScope
    where: str
    not_covered: tuple[str, ...]
    yes: bool


@dataclass(frozen=True, slots=True)
class TriedCommand:
    """The result of a command on a layer, or of several in turn, before any change counts. All text is safe to print.

    Attributes:
        ended: How the command ended; for several, how each did.
        output: The last lines that it printed.
        diff: The lines of the difference, file by file; each begins as in FileChange or names a file.
        items: The changes that can be kept; their numbers begin with 1.
        notes: What cannot be kept or is not shown, and what the sandbox stopped.
        commands: The commands that rules tried in a turn, in order, each with its end; they are not run again. Empty
            for a command that the user tries from its question.
    """

    ended: str
    output: tuple[str, ...]
    diff: tuple[str, ...]
    items: tuple[str, ...]
    notes: tuple[str, ...]
    commands: tuple[str, ...] = ()

    @property
    def runs(self) -> bool:
        """Return True if the command can still be run as usual."""
        return not self.commands


# The choice of the key `a` in the JSON form of a card.
_ALL_EDITS: dict[str, object] = {
    "keys": ["a"], "answer": "yes", "grant": "all edits in the workspace from now on", "label": "all edits",
    "where": "mode accept-edits",
    "not_covered": [],
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Card:
    """The content of one question.

    Attributes:
        question: The question itself.
        line: One line about the consequence of an approval for the user.
        tier: The tier of the badge.
        tiers: Every tier of the action, the highest first.
        command: The whole action as it would be typed.
        marks: The risky words of the command.
        letters: The letters of the command that look like other letters.
        why: The reason of the question.
        rule: The rule of that reason.
        place: The place of that rule for a reader, which is "built in" for a rule of the program itself.
        special: True if the reason says more than `asks`: a rule of the user, a blocked right or a careful question.
        cell: The cell of the permission matrix.
        asks: The cell as a sentence: "mode default asks before running code".
        more: The other reasons.
        rights: The rights of an approval that differ from action to action, as label and text.
        terms: The exact rights that an approval gives, as label and text.
        caveats: The rights that the action may need but does not get.
        paths: The paths that the command would change.
        change: The change of a file, or None.
        choices: The answers that can be remembered.
        careful: True if only the letter approves, and no other key such as Enter.
        editable: True if the user may change the command.
        edits: True if the key `a` approves this change and every later change of a file of the workspace.
        own: True if the user typed the command, so that no model waits for a reason or another command.
        tries: True if the answer `try` runs the command without network on a layer, and asks again.
        tried: What the command did there, in the question that follows; then the answers are `keep` and, for a
            command that can still be run as usual, `run`.
    """

    question: str
    line: str
    tier: Tier
    tiers: tuple[Tier, ...]
    command: str
    marks: tuple[Mark, ...]
    letters: tuple[str, ...]
    why: str
    rule: str
    place: str
    special: bool
    cell: str
    asks: str
    more: tuple[str, ...]
    rights: tuple[tuple[str, str], ...]
    terms: tuple[tuple[str, str], ...]
    caveats: tuple[str, ...]
    paths: tuple[str, ...]
    change: FileChange | None
    choices: tuple[Pick, ...]
    careful: bool
    editable: bool
    edits: bool = False
    own: bool = False
    agent: str = MAIN
    parent: str | None = None
    tries: bool = False
    tried: TriedCommand | None = None

    def as_json(self) -> dict[str, object]:
        """Return a JSON-able object. Marks are left out if secrets in the command were masked later, since their
        positions would be wrong.
        """
        fields = {item.name: json_value(getattr(self, item.name)) for item in dataclasses.fields(self)}
        del fields["question"]
        return fields | {
            "marks": [json_value(mark) for mark in self.marks if self.command[mark.start : mark.end] == mark.text],
            "rights": dict(self.rights),
            "terms": dict(self.terms),
            "choices": [
                *([_ALL_EDITS] if self.edits else []),
                *({"keys": list(pick.keys), "answer": "yes" if pick.yes else "no", "grant": pick.words,
                   "label": pick.label, "where": pick.where, "not_covered": list(pick.not_covered)}
                  for pick in self.choices),
            ],
        }  # fmt: skip


def json_value(value: object) -> object:
    """Return a JSON-able form: dataclasses as objects (actions and events with their `type`), tiers and rulings as
    labels.
    """
    if isinstance(value, RuleRef):
        return str(value)
    if callable(as_json := getattr(value, "as_json", None)):  # a card, or an event
        return as_json()
    if isinstance(value, Tier):
        return value.label
    if isinstance(value, IntEnum):
        return value.name.lower()
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {item.name: json_value(getattr(value, item.name)) for item in dataclasses.fields(value)}
        return {"type": value.kind, **fields} if isinstance(value, Action) else fields
    if isinstance(value, tuple | list):
        return [json_value(item) for item in value]
    if isinstance(value, dict):
        return {str(key): json_value(item) for key, item in value.items()}
    return value
