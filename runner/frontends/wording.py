"""What a person is told of a session, in words: how it began, what became other, how it ended; and how much of what is
long is told. The same on a screen and in plain lines.

The words are as untrusted as the events: show them through `visible`.
"""

from runner.approval.card_text import safe, squeezed
from runner.events import Changed, Compacted, Prompted, Resumed, Retrying, RunEnded, SessionStarted, Steered
from runner.text.counts import many

NOT_HELD = "not held"  # the label of what the sandbox does not keep
FOLD, FAILED_FOLD = (6, 4), (2, 12)  # lines kept before and after the fold; what went wrong stands at the end
_COMMAND_LINES, _COMMAND_CHARACTERS = 12, 2000  # of one command; a question shows all of it

Pairs = tuple[tuple[str, str], ...]  # label, words


def started(event: SessionStarted) -> Pairs:
    """Where it works, as what, and what holds it."""
    found = event.enforcement
    held = sum(ok for _, ok in found.checks)
    return (
        ("workspace", event.workspace),
        *((("folder", event.cwd),) if event.cwd != event.workspace else ()),
        ("mode", f"{event.mode.value}{', unattended' if event.unattended else ''}"),
        ("model", event.model),
        ("sandbox", f"{found.backend} {found.level.value}, {held} of {len(found.checks)} checks held"),
        *((("limits", f"kept by {found.limits}"),) if found.limits else ()),
        *((NOT_HELD, words) for words in found.missing),
    )


def resumed(event: Resumed) -> Pairs:
    """What is gone on with, and what is other than it was."""
    since, until = (at[:16].replace("T", " ") for at in (event.began, event.until))
    so_far = f"{many(event.prompts, 'prompt')}, {many(event.turns, 'turn')}, {since} to {until} UTC"
    return (
        ("forked" if event.forked else "resumed", f"{event.session[:8]}: {so_far}"),
        *((("first", event.first),) if event.first != event.last else ()),
        ("last", event.last),
        *((("answered", event.said),) if event.said else ()),
        *(("changed", words) for words in event.changes),
    )


def prompted(event: Prompted | Steered) -> str:
    """What a person said, as they typed it."""
    return (event.typed if isinstance(event, Prompted) else "") or event.text


def seconds(count: float) -> str:
    """A time to wait, as people say it."""
    if count < 10:
        return f"{count:.3g} s"
    whole = round(count)
    return f"{whole} s" if whole < 120 else f"{whole // 60} min {whole % 60} s"


def note(event: Retrying | Compacted | Changed) -> str:
    """What happened meanwhile, in a line."""
    match event:
        case Retrying(_, problem, wait, attempt, attempts):
            return f"{problem.what}; asking again in {seconds(wait)} ({attempt} of {attempts})"
        case Compacted(level, before, after):
            return f"compacted ({level}): {before} tokens are now {after}"
        case Changed(what, was, now, why):
            return f"the {what} is now {now} (was {was}){': ' + why if why else ''}"


def ended(event: RunEnded) -> str:
    """How a run ended, after how much."""
    count, usage = len(event.denied), event.usage
    denied = f", {count} denied" if count else ""
    used = f"; {usage.input} tokens in, {usage.output} out" if usage.input or usage.output else ""
    return f"{event.reason} ({many(event.turns, 'turn')}{denied}{used})"


def command_lines(command: str, mark: str = "…") -> list[str]:
    """The lines of a command as its question shows them; of a long one the beginning, and how much is left out behind
    `mark`."""
    words = squeezed(safe(command))
    if (over := len(words) - _COMMAND_CHARACTERS) > 0:
        words = f"{words[:_COMMAND_CHARACTERS]}{mark} {over} more characters"
    lines = words.rstrip("\n").split("\n")
    if (over := len(lines) - _COMMAND_LINES) > 0:
        lines[_COMMAND_LINES:] = [f"{mark} {over} more lines"]
    return lines
