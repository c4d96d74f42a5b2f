"""The number of examples of a law, which depends on how much is run."""

import os
from typing import Any

from hypothesis import settings


def number_of_examples(number: int, *, many: int | None = None) -> int:
    """Return the number of examples of a law that makes them by itself, from consecutive seeds or a seeded generator.

    The arguments are those of `examples`, and so is the effect of the options, apart from `--smoke` and LAW_EXAMPLES.
    """
    if settings.get_current_profile_name() == "many":
        return 4 * number if many is None else many
    return number


def examples(number: int, *, many: int | None = None, **more: Any) -> settings:
    """Return the settings of a law, with the number of examples that it tries.

    The examples of each number are always the same ones, so that a law has the same outcome in every run.

    Args:
        number: examples in `make test`. With `--smoke` ten of them at most.
        many: examples with `--matrix`, four times `number` by default. A law that takes more than a second of processor
            time for its examples tries few of them in `make test` and names here how many prove it.
        more: further settings of Hypothesis.

    With the environment variable LAW_EXAMPLES, each law tries as many as it says.
    """
    if "LAW_EXAMPLES" in os.environ:
        number = int(os.environ["LAW_EXAMPLES"])
    elif settings.get_current_profile_name() == "few":
        number = min(number, settings.get_profile("few").max_examples)
    else:
        number = number_of_examples(number, many=many)
    return settings(max_examples=number, **more)
