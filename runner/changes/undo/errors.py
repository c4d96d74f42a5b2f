"""The error of the undo store, in a module of its own so that catching it does not load SQLite."""

from pathlib import Path

from policy.model.verdict import Problem, ProblemError


class UndoError(ProblemError):
    """An error for stored files that cannot be used, or for an undo that is not possible. `problem` has the details."""


def unusable(folder: Path, why: str, fix: str = "check who owns it and whether the disk is full") -> UndoError:
    return UndoError(Problem(f"the kept files in `{folder}` cannot be used", why or "the system refused it", fix))
