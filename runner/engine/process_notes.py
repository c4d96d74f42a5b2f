"""The notes for the model about processes that stay: which of them run, and which have ended.

A note goes to the end of a prompt or of a result, and stays in the conversation: text that a later request leaves out
or changes would cost the cache of the provider.
"""

from typing import TYPE_CHECKING

from runner.engine.process_actions import state_of
from runner.engine.process_view import listening
from runner.text.phrases import many
from runner.text.sanitize import one_line

if TYPE_CHECKING:
    from runner.engine.processes import SessionProcess, SessionProcesses

_LONGEST = 200  # characters of a command
_MOST = 20  # processes of one kind in a note


def prompt_note(processes: "SessionProcesses", reader: str) -> str:
    """Return the note that goes with a prompt: what runs, what has ended since the last note, and, once, what ended
    with an earlier run of the session. Empty if there is nothing of these.
    """
    earlier = processes.take_earlier()
    alive = tuple(each for each in processes.commands if each.alive)
    lines = _bounded([_line(each, reader) for each in (*_newly_ended(processes, reader), *alive)])
    parts = []
    if lines:
        parts.append("\n".join(("Processes of this session, as of now:", *lines)))
    if earlier:
        names = _bounded([f"{id}: {one_line(words, _LONGEST)}" for id, words in earlier])
        head = "These processes of the earlier session ended with it, and their ids are not used again:"
        parts.append("\n".join((head, *names)))
    return _framed("\n".join(parts))


def end_note(processes: "SessionProcesses", reader: str) -> str:
    """Return the note about the processes that have ended since the last note; empty if none has."""
    return _framed("\n".join(_bounded([_line(each, reader) for each in _newly_ended(processes, reader)])))


def _newly_ended(processes: "SessionProcesses", reader: str) -> "list[SessionProcess]":
    """Return the processes whose end `reader` does not know, which it then knows."""
    ended = [each for each in processes.commands if not each.alive and reader not in each.end_known]
    for each in ended:
        each.end_known.add(reader)
    return ended


def _line(found: "SessionProcess", reader: str) -> str:
    details = []
    if found.by_user:
        details.append("started by the user")
    if ports := listening(found):
        details.append(f"listens on {', '.join(map(str, ports))}")
    if unread := found.log.end - found.read.get(reader, 0):
        details.append(f"{many(unread, 'character')} of output not read")
    more = f" ({'; '.join(details)})" if details else ""
    return f"{state_of(found)}{more}: {one_line(found.words, _LONGEST)}"


def _bounded(lines: list[str]) -> list[str]:
    rest = len(lines) - _MOST
    return [*lines[:_MOST], f"and {rest} more"] if rest > 0 else lines


def _framed(text: str) -> str:
    return f"[note of the program] {text} [end of the note]" if text else ""
