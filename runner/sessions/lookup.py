"""Lookup of a session by the beginning of its id, in any workspace, for display and export."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from policy.model.verdict import Problem
from runner.problems import Exit, Stopped, usage
from runner.sessions.entries import Unsound
from runner.sessions.export import Session, as_html, as_lines, as_markdown
from runner.sessions.history import history_of, index, no_session
from runner.sessions.store import Store, choose

FORMATS: dict[str, Callable[[Session], Iterator[str]]] = {"md": as_markdown, "html": as_html, "jsonl": as_lines}


@contextmanager
def reading(state: Path, words: str) -> Iterator[Session]:
    """Yield the session whose id begins with `words`. Raise SessionError, also for a line that turns out to be
    invalid."""
    store, id = choose(Store.all(state), words)
    with store.reading(id) as file:
        tree = index(file, id)
        try:
            yield Session(tree, history_of(tree, id, lenient=True))
        except Unsound as error:
            raise no_session(id, str(error)) from None


def write_new(path: Path, lines: Iterable[str]) -> int:
    """Write `lines` to a new file that only the user can read, and return their number. Raise Stopped."""
    count = 0
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            for line in lines:
                file.write(f"{line.encode('utf-8', 'replace').decode()}\n")
                count += 1
    except FileExistsError:
        raise usage(f"`{path}` exists", "nothing is written over", "name a new file") from None
    except ValueError:  # NUL, or half a character
        raise usage("the name of that file cannot be used", "no file has such a name", "name another file") from None
    except OSError as error:
        why = (error.strerror or "the system refused it").lower()
        raise Stopped(Problem(f"`{path}` could not be written", why, "name another file"), Exit.FAILED) from None
    return count
