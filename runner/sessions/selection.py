"""The session that a run belongs to, as typed: `--continue`, `--resume [ID]`, `--fork ID` or `--no-session`."""

from typing import Self

from policy.model.frozen import dataclass
from runner.problems import option, usage
from runner.state.session_id import is_session_id


@dataclass(frozen=True, slots=True)
class SessionSelection:
    """The user's choice of a session. At most one of the first four fields is set.

    Attributes:
        latest: True for the latest session of the workspace.
        resume: The id of the session to continue, or an empty string to pick one from a list.
        fork: The id of the session to copy.
        unkept: True if no session is kept.
        upto: The last entry of `fork` to copy, or an empty string for all entries.
    """

    latest: bool = False
    resume: str | None = None
    fork: str | None = None
    unkept: bool = False
    upto: str = ""

    def checked(self) -> Self:
        """Return this selection. Raise a usage error if two fields exclude each other."""
        given = {"--continue": self.latest, "--resume": self.resume is not None, "--fork": self.fork is not None}
        named = [option(name) for name, is_given in (given | {"--no-session": self.unkept}).items() if is_given]
        if len(named) > 1:
            why = "each of them selects the session"
            raise usage(f"`{named[0]}` and `{named[1]}` exclude each other", why, "leave one of them out")
        return self


def parse_selection(latest: bool, resume: str | None, fork: str | None, unkept: bool) -> SessionSelection:
    """Return the selection of the command-line options. Raise a usage error for two options that exclude each other."""
    return SessionSelection(latest, resume, fork, unkept).checked()


def with_value(words: list[str]) -> list[str]:
    """Return the command line with `--resume` as one word: `--resume=ID`, or `--resume=` if no id follows.

    A prompt may follow as well, so only a word that has the form of an id is taken; `--resume=ID` is unambiguous.
    """
    done: list[str] = []
    queue = list(words)
    while queue:
        word = queue.pop(0)
        if word == "--":
            return [*done, word, *queue]
        if word == "--resume":
            word += f"={queue.pop(0) if queue and is_session_id(queue[0]) else ''}"
        done.append(word)
    return done
