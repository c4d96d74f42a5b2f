"""What is known of a model: how much fits into it, how it is asked to think. Nothing is guessed from a name.

`profiles/models.toml` holds it, as the vendors published it. A model behind another server than its vendor's may be cut
shorter there than these facts say; its server then answers so, and `Failure.CONTEXT` is dealt with.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import cache

from policy.model.frozen import dataclass
from runner.messages import Thinking

DATED = re.compile(r"-(?:20\d{6}|20\d\d-\d\d-\d\d|latest)$")  # `claude-opus-5-20260724` is `claude-opus-5`


class ThinkingKind(StrEnum):
    """How a model is told how much to think."""

    NONE = "none"  # it is not
    ADAPTIVE = "adaptive"  # Anthropic: it decides, steered by an effort
    BUDGET = "budget"  # Anthropic and Gemini, older: a number of tokens
    EFFORT = "effort"  # OpenAI: a word
    LEVEL = "level"  # Gemini: a word


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """None: nobody knows. `window` counts the request and its answer together, `output` one answer, with its thinking;
    `request` a request alone, where its server takes less than the window leaves.

    `most` is the word for the most thinking that it takes, `thinks` says that it does so also when it is not asked to.
    `small` (`provider:model`) is a cheap model of the same vendor, for summaries; a small model names itself.
    """

    window: int | None = None
    output: int | None = None
    thinking: ThinkingKind = ThinkingKind.NONE
    most: str = "high"
    small: str | None = None
    thinks: bool = False
    request: int | None = None

    def effort(self, thinking: Thinking) -> str:
        """The word for that much thinking, for a model that is told by a word (ADAPTIVE, EFFORT, LEVEL)."""
        return self.most if thinking is Thinking.MAX else thinking.value


def facts_of(spec: str) -> ModelFacts:
    """Of `provider:model`, also under a dated name; of an unknown model, what holds for its vendor's newest."""
    models, vendors = _table()
    known = models.get(spec) or models.get(DATED.sub("", spec))
    return known or vendors.get(spec.partition(":")[0], ModelFacts())


def known_models() -> tuple[str, ...]:
    """Every `provider:model` of which something is known."""
    return tuple(_table()[0])


@cache
def _table() -> tuple[Mapping[str, ModelFacts], Mapping[str, ModelFacts]]:
    """The models, and the vendors. Read once; it lies beside our code in every kind of installation."""
    import os
    import tomllib

    import profiles

    with open(os.path.join(os.path.dirname(str(profiles.__file__)), "models.toml"), "rb") as file:
        data = tomllib.load(file)
    models = {name: _facts(row) for name, row in data["model"].items()}
    return models, {name: _facts(row) for name, row in data["vendor"].items()}


def _facts(row: Mapping[str, str | int]) -> ModelFacts:
    kind = ThinkingKind(str(row["thinking"]))
    small = str(row["small"]) if "small" in row else None
    return ModelFacts(
        _count(row, "window"),
        _count(row, "output"),
        kind,
        str(row["most"]),
        small,
        bool(row.get("thinks")),
        _count(row, "request"),
    )


def _count(row: Mapping[str, str | int], key: str) -> int | None:
    return int(row[key]) if key in row else None
