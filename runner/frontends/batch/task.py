"""One task, parsed from a line of the list, with the defaults filled in."""

import hashlib
import json
import re
from dataclasses import asdict, field, replace

from policy.model.frozen import dataclass

_PLAIN = re.compile(r"[a-z0-9][a-z0-9._-]{0,79}")
_SLUG = 40  # characters of the readable part of a file name


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of one run; None means the configured value. `seconds` is wall time, `cost` is in the currency of the
    prices.
    """

    turns: int | None = None
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None
    output: str | None = None
    denials: int | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """One prompt to work on. `cwd` is real and absolute; `line` is its number in the list, counted from 1.

    A task has no field for a credential or the name of one, since tasks are sent to other machines.
    """

    id: str
    line: int
    prompt: str
    cwd: str
    model: str | None = None
    mode: str | None = None
    budget: Budget = field(default_factory=Budget)
    metadata: dict[str, object] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return the name of the task's files without suffix (see `file_name`)."""
        return file_name(self.id)

    @property
    def fingerprint(self) -> str:
        """Return a hash of everything in the task except its id, line and metadata."""
        asked = {key: value for key, value in asdict(self).items() if key not in ("id", "line", "metadata")}
        text = json.dumps(asked, sort_keys=True, separators=(",", ":"))
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def within(task: Task, left: float | None) -> Task:
    """Return the task with a cost limit of at most `left`, in the currency of the prices; None for no further limit."""
    amounts = [amount for amount in (left, task.budget.cost) if amount is not None]
    return replace(task, budget=replace(task.budget, cost=min(amounts, default=None)))


def file_name(id: str) -> str:
    """Return `id` itself if it matches `_PLAIN` and does not end like a hash, else its permitted characters and a hash.

    THREAT: the author of the list chooses an id. The name never contains a `/`, is never `.` or `..`, starts with no
    dot or dash, and differs from the name of every other id on a file system that folds case.
    """
    if _PLAIN.fullmatch(id) and not re.search(r"-[0-9a-f]{16}$", id):
        return id
    slug = re.sub(r"[^a-z0-9._-]+", "-", id.lower()).strip("-.")[:_SLUG].strip("-.")
    digest = hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{slug or 'task'}-{digest}"
