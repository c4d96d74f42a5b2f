"""Questions of a model to the user, as the action `AskUser` holds them."""

import json

from policy.model.action import AskUser
from policy.model.frozen import dataclass
from policy.model.tool_arguments import canonical_value

MOST_QUESTIONS = 4
MOST_CHOICES = 8
_TEXTS = {"question": 1000, "title": 40}  # characters of each
_CHOICE_TEXTS = {"label": 100, "description": 400}


@dataclass(frozen=True, slots=True)
class QuestionChoice:
    """One choice: a label, and a description that may be empty."""

    label: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class ModelQuestion:
    """One question. All texts are by the model, and so is what they claim.

    Attributes:
        question: the question.
        title: a name for it of a few words, or empty.
        choices: the choices; empty if only text of the user answers the question.
        several: True if several choices may be selected.
    """

    question: str
    title: str = ""
    choices: tuple[QuestionChoice, ...] = ()
    several: bool = False


def ask_action(questions: tuple[ModelQuestion, ...]) -> AskUser:
    """Return the action that asks `questions`."""
    rows = [
        {
            "question": each.question,
            "title": each.title,
            "choices": [{"label": choice.label, "description": choice.description} for choice in each.choices],
            "several": each.several,
        }
        for each in questions
    ]
    return AskUser(canonical_value(rows))


def asked_questions(action: AskUser) -> tuple[ModelQuestion, ...]:
    """Return the questions of `action`; an empty tuple if they cannot be read."""
    try:
        rows = json.loads(action.questions)
    except (ValueError, RecursionError):
        return ()
    if not isinstance(rows, list) or not 0 < len(rows) <= MOST_QUESTIONS:
        return ()
    found = tuple(filter(None, map(_question, rows)))
    return found if len(found) == len(rows) else ()


def questions_text(action: AskUser) -> str:
    """Return the questions with their choices as lines of text. The text is as untrusted as the action."""
    lines: list[str] = []
    for each in asked_questions(action):
        lines.append(f"{each.title}: {each.question}" if each.title else each.question)
        for choice in each.choices:
            lines.append(f"- {choice.label}" + (f": {choice.description}" if choice.description else ""))
    return "\n".join(lines) or action.questions


def _question(row: object) -> ModelQuestion | None:
    if not isinstance(row, dict) or set(row) != {*_TEXTS, "choices", "several"} or not _texts(row, _TEXTS):
        return None
    choices = row["choices"]
    if not isinstance(choices, list) or len(choices) > MOST_CHOICES or not isinstance(row["several"], bool):
        return None
    for each in choices:
        if not isinstance(each, dict) or set(each) != set(_CHOICE_TEXTS) or not _texts(each, _CHOICE_TEXTS):
            return None
    made = tuple(QuestionChoice(each["label"], each["description"]) for each in choices)
    distinct = len({each.label for each in made}) == len(made) and all(each.label.strip() for each in made)
    if not row["question"].strip() or not distinct:
        return None
    return ModelQuestion(row["question"], row["title"], made, row["several"])


def _texts(row: dict[str, object], longest: dict[str, int]) -> bool:
    """Return True if each of these fields is a text that is not too long."""
    values = ((row[name], most) for name, most in longest.items())
    return all(isinstance(value, str) and len(value) <= most for value, most in values)
