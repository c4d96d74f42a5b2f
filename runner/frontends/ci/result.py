"""The result of a run: the last line of `agent ci`, for programs."""

import json
from dataclasses import asdict

from policy.model.frozen import dataclass
from runner.frontends.ci.changes import ChangedFile
from runner.frontends.ci.session_record import DenialRecord
from runner.messages import Usage


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a run.

    Attributes:
        exit: The exit code of the program.
        reason: The reason in words.
        limit: The limit that ended the run, or None.
        cost: The cost of the run, or None if the price is unknown.
        message: The last message of the model.
        patch: The file with the changes, with --review.
    """

    exit: int
    reason: str
    limit: str | None = None
    turns: int = 0
    usage: Usage = Usage()
    cost: float | None = None
    seconds: float = 0.0
    denied: tuple[DenialRecord, ...] = ()
    changed: tuple[ChangedFile, ...] = ()
    session: str | None = None
    head: str | None = None
    patch: str | None = None
    message: str = ""

    def as_json(self) -> dict[str, object]:
        return {
            "type": "result",
            "exit": self.exit,
            "reason": self.reason,
            "limit": self.limit,
            "turns": self.turns,
            "usage": asdict(self.usage),
            "cost": None if self.cost is None else round(self.cost, 6),
            "seconds": round(self.seconds, 3),
            "denied": [asdict(each) for each in self.denied],
            "changed": [asdict(each) for each in self.changed],
            "session": self.session,
            "log": {"head": self.head},
            "patch": self.patch,
            "message": self.message,
        }

    def line(self) -> str:
        """Return the result as one line of ASCII that contains no command for a job runner."""
        return inert(json.dumps(self.as_json(), ensure_ascii=True, separators=(",", ":")))


def inert(line: str) -> str:
    """Return an equivalent line of JSON without the marks of job commands (`##[`, `##vso[`, `##teamcity[`).

    The line begins with `{`, so it cannot be a command that must stand first (`::`).
    """
    return line.replace("##", "#\\u0023")
