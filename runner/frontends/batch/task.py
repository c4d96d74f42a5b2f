"""One task, parsed from a line of the list, with the defaults filled in."""

import hashlib
import json
import re
from dataclasses import asdict, field, replace

from policy.model.frozen import dataclass

_PLAIN = re.compile(r"[a-z0-9][a-z0-9._-]{0,79}")
_SLUG = 40


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of one run; None stands for the configured value. `seconds` is wall time, `cost` is in US dollars."""

    turns: int | None = None
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None
    output: str | None = None
    denials: int | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """One prompt to work on. `cwd` is real and absolute; `line` is its number in the list, counted from 1.

    A task contains no credential, and no name of one: it is sent to other machines as it is.
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
        """Return the name of the task's files: one path component for any id, unique even if case is folded."""
        return file_name(self.id)

    @property
    def fingerprint(self) -> str:
        """Equal for two tasks that ask for the same. The id, the line and the metadata ask for nothing."""
        asked = {key: value for key, value in asdict(self).items() if key not in ("id", "line", "metadata")}
        text = json.dumps(asked, sort_keys=True, separators=(",", ":"))
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def within(task: Task, left: float | None) -> Task:
    """Return the task with a cost limit of at most `left`."""
    amounts = [amount for amount in (left, task.budget.cost) if amount is not None]
    return replace(task, budget=replace(task.budget, cost=min(amounts, default=None)))


def file_name(id: str) -> str:
    """Return `id` itself if it is plain and in lower case, else its plain characters and a hash.

    THREAT: the author of the list chooses an id. The name never contains a `/`, is never `.` or `..`, starts with no
    dot or dash, and differs from the name of every other id on a file system that folds case.
    """
    if _PLAIN.fullmatch(id) and not re.search(r"-[0-9a-f]{16}$", id):
        return id
    slug = re.sub(r"[^a-z0-9._-]+", "-", id.lower()).strip("-.")[:_SLUG].strip("-.")
    digest = hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{slug or 'task'}-{digest}"
