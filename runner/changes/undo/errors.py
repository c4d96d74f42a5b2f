"""Why kept files cannot be used. On its own, so that who only catches it loads no database."""

from pathlib import Path

from policy.model.verdict import Problem, ProblemError


class UndoError(ProblemError):
    """The kept files cannot be used, or nothing can be brought back. `problem` says why, and what to do."""


def unusable(folder: Path, why: str, fix: str = "check who owns it and whether the disk is full") -> UndoError:
    return UndoError(Problem(f"the kept files in `{folder}` cannot be used", why or "the system refused it", fix))
