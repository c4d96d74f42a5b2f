"""The `/commands` that ringfence brings, in the order in which /help lists them."""

from runner.frontends.slash import conversation, files, policy, settings
from runner.frontends.slash.command import Command

COMMANDS: tuple[Command, ...] = (
    *conversation.COMMANDS[:1],
    *settings.COMMANDS,
    *policy.COMMANDS,
    *files.COMMANDS,
    *conversation.COMMANDS[1:],
)
