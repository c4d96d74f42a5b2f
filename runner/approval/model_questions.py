"""Answers of the user to questions of a model, and the dialogue on a plain terminal.

THREAT T251: a question of a model may look like a question of the gate. Every front end names the model as its author,
no answer is a permission, and no code turns an answer into one: the gate asks its own questions.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from policy.model.frozen import dataclass, field
from policy.model.model_questions import ModelQuestion
from policy.model.profile import MAIN
from runner.text.sanitize import one_line, visible_prose

if TYPE_CHECKING:
    from runner.audit.records import AnsweringClient

LONGEST_ANSWER = 4000  # characters of own words
NO_PERMISSION = "an answer allows no action"
_LONGEST = 500  # characters of a choice on one line
_TRIES = 5

TextPrompt = Callable[
    [Sequence[str], str], Awaitable[str | None]
]  # shows lines, and returns the text typed at a prompt


@dataclass(frozen=True, slots=True)
class AskedByModel:
    """Questions of one call.

    Attributes:
        questions: the questions.
        agent: the name of the agent that asks; `main` for the one that the user instructs.
    """

    questions: tuple[ModelQuestion, ...]
    agent: str = MAIN

    @property
    def author(self) -> str:
        """Return who asks, in words."""
        return "the model" if self.agent == MAIN else f"the agent {one_line(self.agent, 100)}"

    @property
    def heading(self) -> str:
        """Return the line above the questions."""
        return f"{self.author} asks; {NO_PERMISSION}"


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """The answer to one question.

    Attributes:
        chosen: the labels that were selected.
        words: own words of the user, which may be empty.
        client: the client of a hosted session that answered, or None.
    """

    chosen: tuple[str, ...] = ()
    words: str = ""
    client: "AnsweringClient | None" = field(default=None, repr=False, compare=False)


# Shows the questions, and returns an answer to each, or None if the user leaves them without an answer.
QuestionAsker = Callable[[AskedByModel], Awaitable[tuple[ModelAnswer, ...] | None]]


def typed_answer(question: ModelQuestion, said: str) -> ModelAnswer | str:
    """Return the answer that a typed text means, or why it means none.

    A number, or several with commas where several choices may be selected, selects choices; any other text is the
    user's own answer.
    """
    said = said.strip()[:LONGEST_ANSWER]
    if not said:
        return "type an answer"
    words = [part for part in said.replace(",", " ").split() if part]
    if not question.choices or not all(word.isdecimal() and len(word) < 3 for word in words):
        return ModelAnswer(words=said)
    places = list(dict.fromkeys(int(word) for word in words))
    if not all(0 < place <= len(question.choices) for place in places):
        return f"the choices are 1 to {len(question.choices)}"
    if len(places) > 1 and not question.several:
        return "select one choice"
    return ModelAnswer(tuple(question.choices[place - 1].label for place in sorted(places)))


async def ask_at_terminal(asked: AskedByModel, ask: TextPrompt) -> tuple[ModelAnswer, ...] | None:
    """Ask line by line. An empty line leaves the questions without an answer."""
    answers: list[ModelAnswer] = []
    for place, question in enumerate(asked.questions, 1):
        count = f" ({place} of {len(asked.questions)})" if len(asked.questions) > 1 else ""
        lines = [f"{asked.heading}{count}", *question_lines(question)]
        lines += [f"{number}  {_choice(choice.label, choice.description)}" for number, choice in
                  enumerate(question.choices, 1)]  # fmt: skip
        how = "numbers, or your own words" if question.several else "a number, or your own words"
        prompt = f"{how if question.choices else 'your answer'} (empty: no answer): "
        for _ in range(_TRIES):
            said = await ask(lines, prompt)
            if not said:
                return None
            answer = typed_answer(question, said)
            if isinstance(answer, ModelAnswer):
                answers.append(answer)
                break
            lines = [answer]
        else:
            return None
    return tuple(answers)


def question_lines(question: ModelQuestion) -> list[str]:
    """Return the title and the question as lines that begin with a bar, so that no line passes for one of the
    program's own.
    """
    title = [one_line(question.title, _LONGEST)] if question.title.strip() else []
    return [f"| {line}" for line in (*title, *visible_prose(question.question).splitlines())]


def _choice(label: str, description: str) -> str:
    shown = one_line(label, _LONGEST)
    return f"{shown}: {one_line(description, _LONGEST)}" if description.strip() else shown
