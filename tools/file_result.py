"""The sandbox's answer to a file action, parsed once: the answer comes from a confined process and is
not trusted.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from policy.model.verdict import Problem
from tools.paths import SeenFiles
from tools.text import short
from tools.tool import Finished, Keep, ResultPart, TextPart

_AGAIN = "try again; if it fails again, tell the user"


class ToolAnswer(BaseModel):
    """The base of every answer."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ProblemAnswer(ToolAnswer):
    what: str
    why: str
    fix: str


class PlacedFile(ToolAnswer):
    """A file that was written: `diff` has lines, `dropped` is the number of further lines, `notes` are texts."""

    real: str
    sha256: str
    size: int
    lines: int
    diff: list[str]
    dropped: int
    notes: list[str]


A = TypeVar("A", bound=BaseModel)


def answer_of(shape: type[A], finished: Finished) -> A | Problem:
    """Return the answer, or the Problem: the action's own, the limit that ended the action, or an
    invalid answer.
    """
    if (problem := problem_of(finished)) is not None:
        return problem
    try:
        return shape.model_validate(dict(finished.data))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the answer"
        why = f"`{short(where)}`: {short(first['msg'].lower(), 100)}"
        return Problem("the answer of the sandbox is not valid", why, _AGAIN)


def problem_of(finished: Finished) -> Problem | None:
    """Return the reason why the action has no result, or None if it has one. An answer that a limit cut short is a
    result, and a command's exit status is not a problem.
    """
    if finished.problem is not None:
        return finished.problem
    if "problem" in finished.data:
        try:
            stated = ProblemAnswer.model_validate(finished.data["problem"])
        except ValidationError:
            return Problem("the action failed", "the sandbox reported no reason", _AGAIN)
        return Problem(stated.what, stated.why, stated.fix)
    if finished.ended_by == "cancelled":
        return Problem("the action was stopped", "the run was stopped before it was done", "use its output so far")
    if finished.ended_by is not None and not finished.data:
        why = f"it reached the {short(finished.ended_by)} limit"
        return Problem("the action was stopped", why, "request less in one call")
    return None


def tell(problem: Problem) -> str:
    """Return a Problem as text for the model."""
    return f"error: {problem.what}\nwhy: {problem.why}\nfix: {problem.fix}"


def violations(finished: Finished) -> list[str]:
    """Return one remark for each of the first 20 attempts that the boundary stopped, and one for the others."""
    remarks: list[str] = []
    for attempt in finished.violations[:20]:
        sure = "probably stopped" if attempt.inferred else "stopped"
        where = f" (`{short(attempt.unnamed_path, 300)}`)" if attempt.unnamed_path else ""
        fix = f"; {attempt.fix}" if attempt.fix else ""
        remarks.append(f"[{sure} by the sandbox: {attempt.what}{where}{fix}]")
    if len(finished.violations) > 20:
        remarks.append(f"[and {len(finished.violations) - 20:,} more attempts that the sandbox stopped]")
    return remarks


class FileTool(ABC):
    """The rendering of an answer of the sandbox to a file action; a subclass formats one kind of answer."""

    Answer: ClassVar[type[BaseModel]]

    def render(
        self, action: Any, finished: Finished, seen: SeenFiles, *, keep: Keep | None = None
    ) -> tuple[ResultPart, ...]:
        answer = answer_of(self.Answer, finished)
        if isinstance(answer, Problem):
            return (TextPart("\n".join([tell(answer), *violations(finished)])),)
        return self.parts(action, answer, seen)

    @abstractmethod
    def parts(self, action: Any, answer: Any, seen: SeenFiles) -> tuple[ResultPart, ...]:
        """Return the text for the model about a valid answer, and note the content that the model now has seen."""


def change_lines(change: PlacedFile) -> list[str]:
    """Return the diff and the notes of a change as lines of a result."""
    lines = list(change.diff)
    if change.dropped:
        lines.append(f"[{change.dropped:,} more lines of the diff are not shown]")
    return [*lines, *(f"[{note}]" for note in change.notes)]
