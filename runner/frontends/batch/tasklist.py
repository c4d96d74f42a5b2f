"""The list of tasks: JSON Lines, checked as a whole before anything runs."""

import json
import os
import re
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from policy.model.frozen import dataclass
from runner.config.amounts import parse_seconds
from runner.frontends.batch.task import Budget, Task
from runner.problems import Stopped, usage
from runner.text.phrases import many, nearest, os_reason
from runner.text.strict_json import parse_strictly

LARGEST = 256 << 20  # bytes of a list
_LONGEST_PROMPT = 1 << 20  # bytes
_SHOWN = 20  # mistakes that are printed; the rest is counted

PositiveCount = Annotated[int, Field(ge=1, le=1 << 53)]


class Line(BaseModel):
    """One line of the list, as written. The documentation describes the fields (`agent batch check --help`)."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    id: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    prompt: str | None = None
    prompt_file: str | None = None
    model: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    mode: Literal["plan", "default", "accept-edits", "trust-project", "dont-ask"] | None = None
    workspace: str | None = None
    max_turns: PositiveCount | None = None
    max_tokens: PositiveCount | None = None
    max_cost: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    timeout: str | Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    max_output: str | PositiveCount | None = None
    max_denials: PositiveCount | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)

    @field_validator("id")
    @classmethod
    def _printable(cls, id: str | None) -> str | None:
        if id is not None and (not id.isprintable() or id != id.strip()):
            raise ValueError("an id is one line of printable text without blanks around it")
        return id

    @field_validator("max_cost", "timeout", mode="before")
    @classmethod
    def _whole(cls, value: object) -> object:
        return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


@dataclass(frozen=True, slots=True)
class Defaults:
    """The values for a task that does not set them. `base` is the base folder of relative paths in the list."""

    base: Path
    cwd: Path
    model: str | None = None
    mode: str | None = None
    budget: Budget = field(default_factory=Budget)


def parse(data: bytes, shown: str, defaults: Defaults) -> tuple[Task, ...]:
    """Return every task of the list; `shown` is its name in messages.

    Raise Stopped if the list is empty or has mistakes. The error names the lines, the mistakes and their corrections.
    """
    tasks: list[Task] = []
    mistakes: list[str] = []
    ids: dict[str, int] = {}
    names: dict[str, int] = {}
    for number, raw in enumerate(data.split(b"\n"), start=1):
        if not raw.strip():
            continue
        try:
            task = _task(number, raw, defaults)
            if (before := ids.setdefault(task.id, number)) != number:
                raise _Mistake(f"line {before} has the id `{task.id}` too", "give one of them another id")
            if (before := names.setdefault(task.name, number)) != number:
                raise _Mistake(
                    f"its result files would have the same names as those of line {before}",
                    "give one of them another id",
                )
        except _Mistake as wrong:
            mistakes.append(f"line {number}: {wrong.what}; {wrong.fix}")
        else:
            tasks.append(task)
    if mistakes:
        more = len(mistakes) - _SHOWN
        lines = mistakes[:_SHOWN] + ([f"and {more} more"] if more > 0 else [])
        fix = "correct the list; no task was started. The fields are in `agent batch check --help`"
        raise usage(f"{many(len(mistakes), 'line')} of {shown} cannot be used", "\n".join(lines), fix)
    if not tasks:
        fix = 'write one JSON object per line, such as {"prompt": "..."}'
        raise usage(f"there is no task in {shown}", "it is empty", fix)
    return tuple(tasks)


class _Mistake(Exception):
    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.what, self.fix = what, fix


def _task(number: int, raw: bytes, defaults: Defaults) -> Task:
    line = _line(raw)
    where = _workspace(line, defaults)
    budget = Budget(
        line.max_turns or defaults.budget.turns,
        line.max_tokens or defaults.budget.tokens,
        line.max_cost or defaults.budget.cost,
        _seconds(line.timeout) or defaults.budget.seconds,
        str(line.max_output) if line.max_output is not None else defaults.budget.output,
        line.max_denials or defaults.budget.denials,
    )
    return Task(
        line.id if line.id is not None else f"line-{number}",
        number,
        _prompt(line, defaults),
        where,
        line.model or defaults.model,
        line.mode or defaults.mode,
        budget,
        line.metadata,
    )


def _line(raw: bytes) -> Line:
    try:
        found = parse_strictly(raw.decode("utf-8"))
    except UnicodeDecodeError:
        raise _Mistake("it is not UTF-8 text", "save the list as UTF-8") from None
    except RecursionError:
        raise _Mistake("it is nested too deeply", "use less nesting") from None
    except json.JSONDecodeError as error:
        what = f"it is not valid JSON ({error.msg.lower()}, column {error.colno})"
        raise _Mistake(what, "write one object per line") from None
    except ValueError as error:
        raise _Mistake(str(error), "correct the line") from None
    if not isinstance(found, dict):
        raise _Mistake("it is not a JSON object", 'write it as {"id": "...", "prompt": "..."}')
    try:
        return Line.model_validate(found)
    except ValidationError as error:
        raise _mistake_of(error) from None


def _mistake_of(error: ValidationError) -> _Mistake:
    """Return the first error of pydantic about a line as a mistake, in the words of this program."""
    first = error.errors(include_url=False)[0]
    name = str(first["loc"][0]) if first["loc"] else ""
    known = list(Line.model_fields)
    if first["type"] == "extra_forbidden":
        return _Mistake(f"a task has no field `{name}`", nearest(name, known) or f"the fields are {', '.join(known)}")
    if name == "mode" and first["input"] == "dangerously":
        fix = "use `trust-project` or `dont-ask`"
        return _Mistake("`mode` `dangerously` is not for a batch: its tasks could reach each other's files", fix)
    said = first["msg"].removeprefix("Value error, ")
    said = said[:1].lower() + said[1:]
    for theirs, ours in _WORDS.items():
        said = said.replace(theirs, ours)
    return _Mistake(f"`{name}`: {said}", _FIXES.get(name, "see `agent batch check --help`"))


_WORDS = {  # replacements in messages of pydantic; "string" must come after the longer term that contains it
    "a valid string": "text", "a valid integer": "a whole number", "string": "text", "a valid dictionary": "an object",
}  # fmt: skip
_FIXES = {
    "timeout": "write seconds, or 90s, 30m, 2h in quotes",
    "max_cost": "write an amount in the currency of the prices, such as 0.5",
    "metadata": 'write an object, such as {"suite": "nightly"}',
}


def _seconds(text: str | float | None) -> float | None:
    if text is None or isinstance(text, float):
        return text
    try:
        return parse_seconds(text, "`timeout`")
    except Stopped as error:
        raise _Mistake(f"{error.problem.what}: {error.problem.why}", _FIXES["timeout"]) from None


def _prompt(line: Line, defaults: Defaults) -> str:
    if (line.prompt is None) == (line.prompt_file is None):
        what = "it has no prompt" if line.prompt is None else "it has two prompts"
        raise _Mistake(what, "give either `prompt` or `prompt_file`")
    text = line.prompt
    if text is None:
        path = defaults.base / str(line.prompt_file)
        try:
            with open(path, "rb") as file:
                data = file.read(_LONGEST_PROMPT + 1)
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            raise _Mistake(f"`{path}` is not UTF-8 text", "name a text file") from None
        except (OSError, ValueError) as error:
            why = os_reason(error)
            raise _Mistake(f"`{path}` cannot be read: {why}", "correct `prompt_file`") from None
    if not text.strip():
        raise _Mistake("its prompt is empty", "write the task into it")
    if len(text.encode("utf-8", "surrogatepass")) > _LONGEST_PROMPT:
        raise _Mistake("its prompt is longer than 1 MiB", "put the material into a file of the workspace")
    if re.search("[\ud800-\udfff]", text):
        raise _Mistake("its prompt contains half a character (a lone surrogate)", "write the complete character")
    return text


def _workspace(line: Line, defaults: Defaults) -> str:
    path = defaults.base / line.workspace if line.workspace is not None else defaults.cwd
    try:
        real = os.path.realpath(path, strict=True)
        if not os.path.isdir(real):
            raise NotADirectoryError
    except (OSError, ValueError):
        raise _Mistake(f"there is no folder `{path}`", "correct `workspace`") from None
    return real
