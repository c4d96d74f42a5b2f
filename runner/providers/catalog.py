"""Facts about models: context window, longest answer, and how thinking is requested.

`profiles/models.toml` contains the facts as the vendors published them; nothing is inferred from a name. Another server
than the vendor's may have a smaller window; its error is then handled as `Failure.CONTEXT`.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from typing import Any

from policy.model.frozen import dataclass
from runner.messages import Thinking

DATED = re.compile(r"-(?:20\d{6}|20\d\d-\d\d-\d\d|latest)$")  # `claude-opus-5-20260724` is `claude-opus-5`


class ThinkingKind(StrEnum):
    """Ways of requesting a certain amount of thinking from a model."""

    NONE = "none"  # it is not
    ADAPTIVE = "adaptive"  # Anthropic: it decides, steered by an effort
    BUDGET = "budget"  # Anthropic and Gemini, older: a number of tokens
    EFFORT = "effort"  # OpenAI: a word
    LEVEL = "level"  # Gemini: a word


# The part of `max_tokens` that a model may think, for a model that takes a number of tokens (BUDGET).
SHARES = {Thinking.LOW: 1 / 8, Thinking.MEDIUM: 1 / 4, Thinking.HIGH: 1 / 2, Thinking.MAX: 3 / 4}


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Facts about one model. None stands for an unknown value.

    Attributes:
        window: tokens of a request and its answer together.
        output: tokens of one answer with its thinking.
        thinking: way of requesting thinking.
        most: word for the largest amount of thinking that the model accepts.
        small: a cheap model of the same vendor for summaries (`provider:model`). A small model names itself.
        thinks: True if the model thinks without a request for it.
        request: tokens of a request alone, if the server accepts fewer than the window leaves.
    """

    window: int | None = None
    output: int | None = None
    thinking: ThinkingKind = ThinkingKind.NONE
    most: str = "high"
    small: str | None = None
    thinks: bool = False
    request: int | None = None

    def effort(self, thinking: Thinking) -> str:
        """Return the word for `thinking`, for a model that takes a word (ADAPTIVE, EFFORT, LEVEL)."""
        return self.most if thinking is Thinking.MAX else thinking.value


def facts_of(spec: str) -> ModelFacts:
    """Return the facts of `provider:model`, also under a dated name. An unknown model has those of its vendor's
    newest.
    """
    models, vendors = _table()
    known = models.get(spec) or models.get(DATED.sub("", spec))
    return known or vendors.get(spec.partition(":")[0], ModelFacts())


def known_models() -> tuple[str, ...]:
    """Return the names `provider:model` of all models with facts."""
    return tuple(_table()[0])


@cache
def _table() -> tuple[Mapping[str, ModelFacts], Mapping[str, ModelFacts]]:
    """Return the facts by model and by vendor. The file is read once and is part of every kind of installation."""
    import os
    import tomllib

    import profiles

    with open(os.path.join(os.path.dirname(str(profiles.__file__)), "models.toml"), "rb") as file:
        data = tomllib.load(file)
    models = {name: _facts(row) for name, row in data["model"].items()}
    return models, {name: _facts(row) for name, row in data["vendor"].items()}


def _facts(row: Mapping[str, Any]) -> ModelFacts:
    return ModelFacts(**{**row, "thinking": ThinkingKind(row["thinking"])})
