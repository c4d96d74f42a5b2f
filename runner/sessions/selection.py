"""`--continue`, `--resume [ID]`, `--fork ID`, `--no-session`: which session a run belongs to, as typed."""

import re

from policy.model.frozen import dataclass
from runner.problems import usage


@dataclass(frozen=True, slots=True)
class SessionSelection:
    """At most one of these is set. `resume` is empty when the session is to be picked from a list. `upto` belongs to
    `fork`: the entry of that session's file which is the last of the copy; empty for all of it."""

    latest: bool = False
    resume: str | None = None
    fork: str | None = None
    unkept: bool = False
    upto: str = ""


def parse_selection(latest: bool, resume: str | None, fork: str | None, unkept: bool) -> SessionSelection:
    """The flags of a command line. Raises a usage error for two that cannot both hold."""
    given = {"--continue": latest, "--resume": resume is not None, "--fork": fork is not None, "--no-session": unkept}
    named = [name for name, set in given.items() if set]
    if len(named) > 1:
        why = "each says by itself which session this is"
        raise usage(f"`{named[0]}` and `{named[1]}` stand together", why, "leave one of them out")
    return SessionSelection(latest, resume, fork, unkept)


def with_value(words: list[str]) -> list[str]:
    """The command line with `--resume` as one word: `--resume=ID`, or `--resume=` where no id follows.

    A prompt may follow as well, so only what can be an id is taken as one; `--resume=ID` says it beyond doubt.
    """
    done: list[str] = []
    queue = list(words)
    while queue:
        word = queue.pop(0)
        if word == "--":
            return [*done, word, *queue]
        if word == "--resume":
            word += f"={queue.pop(0) if queue and re.fullmatch('[0-9a-f]{4,16}', queue[0]) else ''}"
        done.append(word)
    return done
