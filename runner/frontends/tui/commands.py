"""The completion of `/`: the names of commands, and their first arguments."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from runner.frontends.tui.fuzzy import best
from runner.frontends.tui.menu import Entry, Proposals

if TYPE_CHECKING:
    from runner.frontends.tui.controller import TerminalController


def commands(controller: "TerminalController", before: str) -> Proposals | None:
    """Return the proposals for the first line of the input. Fits `Source`."""
    if not before.startswith("/") or "\n" in before:
        return None
    name, blank, rest = before[1:].partition(" ")
    if not blank:
        if "/" in name:
            return None  # a path
        found = best(name, controller.commands, lambda each: " ".join(each.names))
        found.sort(key=lambda each: not any(own.startswith(name) for own in each.names))
        return Proposals(
            0,
            [
                Entry(f"/{each.name}", each.summary, ready=each.usage[:1] in ("", "["), more=bool(each.usage))
                for each in found
            ],
        )
    command = next((each for each in controller.commands if name in each.names), None)
    if command is None or " " in rest or not controller.open:
        return None
    words: Sequence[str] = [word for word in command.words(controller) if word.startswith(rest)]
    if not words or list(words) == [rest]:
        return None
    return Proposals(len(before) - len(rest), [Entry(word, ready=True) for word in words])
