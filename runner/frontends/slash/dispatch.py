"""The dispatch of typed lines to `/commands`, with the messages for lines that name no command."""

import difflib
from collections.abc import Sequence

from runner.frontends.slash.command import Command, CommandHost, Mistake, say
from runner.problems import known_problem

Known = Sequence[Command]


def is_command(line: str) -> bool:
    """Return True if a typed line is a `/command`. A path such as `/etc/hosts is wrong` goes to the model."""
    word = line.split(maxsplit=1)[0] if line.strip() else ""
    return word.startswith("/") and "/" not in word[1:]


def find(name: str, known: Known) -> Command | None:
    """Return the command with that name, with or without its `/`; built-in commands come before custom ones."""
    wanted = name.removeprefix("/")
    return next((each for each in known if wanted in each.names), None)


async def run_line(line: str, host: CommandHost) -> None:
    """Execute the command in `line`. Mistakes are shown to the user and raise nothing."""
    name, _, rest = line.strip().partition(" ")
    known = host.commands
    command = find(name, known)
    if command is None:
        near = difflib.get_close_matches(name[1:], [name for each in known for name in each.names], n=3)
        hint = f"did you mean {' or '.join(f'/{each}' for each in near)}?" if near else "/help lists them"
        say(host, f"there is no command `{name}`; {hint}")
        return
    if command.idle and host.conversation.busy:
        say(host, f"/{command.name} waits until the model is done; Ctrl-C stops it")
        return
    try:
        await command.run(rest.strip(), host)
    except Mistake as error:
        say(host, str(error))
    except Exception as error:  # SEAM of a conversation: a Problem is shown, and it continues
        known_one = known_problem(error)
        if known_one is None:
            raise
        problem = known_one[0]
        say(host, f"{problem.what}: {problem.why}", f"  fix: {problem.fix}")
