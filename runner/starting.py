"""How the sessions of an agent begin: all that can be known before anything is opened."""

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from policy.record import dataclass
from runner.model_run import RunArgs, begun, chosen_model, opener, prepared

if TYPE_CHECKING:
    from runner.config import Settings
    from runner.providers import Opened
    from runner.session import SessionOptions
    from runner.trust.question import Asker


@dataclass(frozen=True, slots=True)
class Start:
    """What the sessions of one agent are opened with: `options` of the first, `model` and how another is opened."""

    options: "SessionOptions"
    settings: "Settings"
    environ: Mapping[str, str]
    model: "Opened"
    opener: "Callable[[str], Opened] | None" = None


def starting(
    args: RunArgs,
    *,
    unattended: bool,
    asks: bool = True,
    asker: "Asker | None" = None,
    model: "Opened | None" = None,
) -> Start:
    """All that can be known before anything is opened; reads the disk, so an event loop may want a thread for it.

    `asks`: a question about trust may be put on this terminal, or by `asker`. Raises Stopped, ConfigError, SetupError,
    SecretError, SessionError, StateError, PlaceError; KeyboardInterrupt when the person leaves.
    """
    options, settings = prepared(args, unattended, asks=asks, asker=asker)
    model = model or chosen_model(args, settings, options.cwd)
    options = begun(args, options, settings, model)
    return Start(options, settings, os.environ, model, opener(args, settings, options.cwd, model))
