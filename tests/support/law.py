"""The number of examples of a law, which depends on how much is run."""

import os
from typing import Any

from hypothesis import settings


def examples(number: int, **more: Any) -> settings:
    """Return the settings of a law with that many examples: with `--smoke` ten at most, with the environment variable
    LAW_EXAMPLES as many as it says. `more` are further settings of Hypothesis.
    """
    if "LAW_EXAMPLES" in os.environ:
        number = int(os.environ["LAW_EXAMPLES"])
    elif settings.get_current_profile_name() == "few":
        number = min(number, settings.get_profile("few").max_examples)
    return settings(max_examples=number, **more)
