"""What is told of a session and not of a call, as rows: its beginning, its prompts, why it failed."""

from policy.model.verdict import Problem
from runner.events import Resumed, SessionStarted
from runner.frontends.tui.call_view import problem_rows, titled
from runner.frontends.tui.rows import Row, hang, safe, wrap
from runner.frontends.tui.theme import Theme
from runner.frontends.wording import NOT_HELD, Pairs, resumed, started
from runner.text.sanitize import visible

_PROMPT_FOLD = (8, 3)  # lines of a long prompt that are shown again
_LINE = 4000  # characters of one of them
_LEAD = 11  # cells of a label


def started_rows(event: SessionStarted, width: int, theme: Theme) -> list[Row]:
    """Where it works, as what, and what holds it."""
    return _labelled(started(event), width, theme)


def resumed_rows(event: Resumed, width: int, theme: Theme) -> list[Row]:
    """What is gone on with, and what is other than it was."""
    return _labelled(resumed(event), width, theme)


def prompt_rows(text: str, width: int, theme: Theme) -> list[Row]:
    """What a person said, so that it is found again above; a long one is folded."""
    lines = visible(text.rstrip(), prose=True).split("\n")
    first, last = _PROMPT_FOLD
    hidden = len(lines) - first - last
    if hidden > 1:
        lines[first : first + hidden] = [f"… {hidden} more lines"]
    rows: list[Row] = []
    for number, line in enumerate(lines):
        shown = line if len(line) <= _LINE else f"{line[:_LINE]}… {len(line) - _LINE} more characters"
        rows += hang(wrap([(theme.prompt, shown)], width - 2), (theme.prompt, "  " if number else "> "), ("", "  "))
    return rows


def failed_rows(problem: Problem, width: int, theme: Theme) -> list[Row]:
    """Why the session could not go on."""
    head = titled([(theme.badge_bad, " failed "), ("", "  ")], visible(problem.what), width, theme)
    return head + problem_rows(Problem(problem.why, "", problem.fix), "why      ", width, theme)


def _labelled(pairs: Pairs, width: int, theme: Theme) -> list[Row]:
    rows: list[Row] = []
    for label, words in pairs:
        body = wrap(safe(words, theme.warn if label == NOT_HELD else ""), max(width - _LEAD, 10))
        rows += hang(body, (theme.dim, f"{label:<{_LEAD}}"), ("", " " * _LEAD))
    return rows
