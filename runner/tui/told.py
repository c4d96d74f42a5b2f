"""What is told of a session and not of a call: its beginning, its prompts, its end."""

from policy.verdict import Problem
from runner.events import Resumed, RunEnded, SessionStarted
from runner.tui.cards import problem_rows, titled
from runner.tui.rows import Row, hang, safe, wrap
from runner.tui.theme import Theme
from runner.visible import visible

_PROMPT_FOLD = (8, 3)  # lines of a long prompt that are shown again
_LINE = 4000  # characters of one of them
_LEAD = 11  # cells of a label


def started_rows(event: SessionStarted, width: int, theme: Theme) -> list[Row]:
    """Where it works, as what, and what holds it."""
    found = event.enforcement
    held = sum(ok for _, ok in found.checks)
    alone = ", unattended" if event.unattended else ""
    pairs = (
        ("workspace", event.workspace),
        *((("folder", event.cwd),) if event.cwd != event.workspace else ()),
        ("mode", f"{event.mode.value}{alone}"),
        ("model", event.model),
        ("sandbox", f"{found.backend} {found.level.value}, {held} of {len(found.checks)} checks held"),
        *((("limits", f"kept by {found.limits}"),) if found.limits else ()),
        *(("not held", words) for words in found.missing),
    )
    return _labelled(pairs, width, theme)


def resumed_rows(event: Resumed, width: int, theme: Theme) -> list[Row]:
    """What is gone on with, and what is other than it was."""
    prompts = f"{event.prompts} {'prompt' if event.prompts == 1 else 'prompts'}"
    turns = f"{event.turns} {'turn' if event.turns == 1 else 'turns'}"
    since, until = (at[:16].replace("T", " ") for at in (event.began, event.until))
    pairs = (
        ("forked" if event.forked else "resumed", f"{event.session[:8]}: {prompts}, {turns}, {since} to {until} UTC"),
        *((("first", event.first),) if event.first != event.last else ()),
        ("last", event.last),
        *((("answered", event.said),) if event.said else ()),
        *(("changed", words) for words in event.changes),
    )
    return _labelled(pairs, width, theme)


def prompt_rows(text: str, width: int, theme: Theme) -> list[Row]:
    """What a person said, so that it is found again above; a long one is folded."""
    lines = visible(text.rstrip()).split("\n")
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


def ended_words(event: RunEnded) -> str:
    """How a run ended, untrusted."""
    count = len(event.denied)
    denied = f", {count} denied" if count else ""
    usage = event.usage
    used = f"; {usage.input} tokens in, {usage.output} out" if usage.input or usage.output else ""
    turns = f"{event.turns} {'turn' if event.turns == 1 else 'turns'}"
    return f"{event.reason} ({turns}{denied}{used})"


def _labelled(pairs: tuple[tuple[str, str], ...], width: int, theme: Theme) -> list[Row]:
    rows: list[Row] = []
    for label, words in pairs:
        body = wrap(safe(words, theme.warn if label == "not held" else ""), max(width - _LEAD, 10))
        rows += hang(body, (theme.dim, f"{label:<{_LEAD}}"), ("", " " * _LEAD))
    return rows
