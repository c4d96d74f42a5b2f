"""The tool `ask_user`: the model asks the user what only the user can decide."""

from functools import cache
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from policy.model.action import AskUser
from policy.model.model_questions import (
    MOST_CHOICES,
    MOST_QUESTIONS,
    ModelQuestion,
    QuestionChoice,
    ask_action,
    asked_questions,
)
from policy.model.verdict import Problem
from tools.paths import SeenFiles
from tools.text_result import TextResultTool
from tools.tool import Arguments

_EXACT = ConfigDict(extra="forbid", strict=True, frozen=True)


class ChoiceArgs(BaseModel):
    model_config = _EXACT
    label: Annotated[str, Field(min_length=1, max_length=100)]
    description: Annotated[str, Field(max_length=400)] = ""


class QuestionArgs(BaseModel):
    model_config = _EXACT
    question: Annotated[str, Field(min_length=1, max_length=1000)]
    title: Annotated[str, Field(max_length=40)] = ""
    choices: Annotated[list[ChoiceArgs], Field(max_length=MOST_CHOICES)] = Field(default_factory=list)
    several: bool = False


class AskUserArgs(Arguments):
    questions: Annotated[list[QuestionArgs], Field(min_length=1, max_length=MOST_QUESTIONS)]

    @classmethod
    @cache
    def schema_for_model(cls) -> dict[str, object]:
        """Return the JSON Schema with the nested objects in their places."""
        choice = {
            "type": "object",
            "properties": {
                "label": {"type": "string"},
                "description": {"type": "string", "description": "What follows from this choice."},
            },
            "required": ["label"],
            "additionalProperties": False,
        }
        question = {
            "type": "object",
            "properties": {
                "question": {"type": "string"},
                "title": {"type": "string", "description": "One to three words."},
                "choices": {
                    "type": "array",
                    "items": choice,
                    "description": f"At most {MOST_CHOICES}, the one you recommend first. The user can always answer "
                    "with own words, so do not add `other`.",
                },
                "several": {"type": "boolean", "description": "True if several choices may be selected."},
            },
            "required": ["question"],
            "additionalProperties": False,
        }
        questions = {"type": "array", "items": question, "description": f"1 to {MOST_QUESTIONS} questions."}
        return {
            "type": "object",
            "properties": {"questions": questions},
            "required": ["questions"],
            "additionalProperties": False,
        }


class AskUserTool(TextResultTool):
    """The tool with which a model asks the user. The answer approves no action."""

    name = "ask_user"
    description = (
        "Ask the user to decide something that you cannot find out and that changes what you do. Do not ask what files "
        "or commands can tell you, and do not ask for permission: the gate asks the user about actions by itself."
    )
    example = (
        '{"questions": [{"question": "Which database should the tests use?", "title": "database", '
        '"choices": [{"label": "SQLite", "description": "no server needed"}, {"label": "PostgreSQL"}]}]}'
    )
    Args = AskUserArgs

    def plan(self, args: AskUserArgs, cwd: str, seen: SeenFiles) -> AskUser | Problem:
        """Return the action, or the problem of choices that cannot be told apart."""
        action = ask_action(
            tuple(
                ModelQuestion(
                    each.question,
                    each.title,
                    tuple(QuestionChoice(choice.label, choice.description) for choice in each.choices),
                    each.several,
                )
                for each in args.questions
            )
        )
        if not asked_questions(action):
            why = "a question is blank, or two choices of a question have the same label"
            return Problem("nothing was asked", why, "give each choice a label of its own")
        return action
