"""The `/commands` that ringfence brings, in the order in which /help lists them."""

from runner.slash import decisions, files, settings, talks
from runner.slash.command import Command

COMMANDS: tuple[Command, ...] = (
    *talks.COMMANDS[:1],
    *settings.COMMANDS,
    *decisions.COMMANDS,
    *files.COMMANDS,
    *talks.COMMANDS[1:],
)
