"""How an action ended, in words: what a terminal shows of a `Finished` event."""

from policy.model.action import Action, RunArgv, RunScript
from runner.events import Finished
from runner.text.sanitize import visible

_HOSTS_TOLD = 5


def went_well(event: Finished) -> bool:
    """Whether nothing about it needs to be looked at."""
    return event.status == 0 and event.problem is None


def output_lines(event: Finished, action: Action | None = None) -> list[str]:
    """What it printed, safe to show, without what the words about its end say anyway. Of a command as a terminal would
    have left it; of a file every character."""
    command = isinstance(action, RunScript | RunArgv)
    text = settled(event.text) if command else event.text
    lines = visible(text, prose=command).rstrip("\n").split("\n") if text.strip() else []
    if lines and lines[-1].startswith("[exit status "):
        lines.pop()
    if event.violations:
        lines = [line for line in lines if not (line.startswith("[") and "stopped by the sandbox: " in line[:40])]
    return lines


def settled(text: str) -> str:
    """Each line as a terminal leaves it where a program wrote over it again and again, such as a progress bar."""
    if "\r" not in text:
        return text
    return "\n".join(map(_last, text.replace("\r\n", "\n").split("\n")))


def _last(line: str) -> str:
    """Every piece between carriage returns begins in the first column again."""
    found = ""
    for piece in reversed(line.split("\r")):  # the later one covers the earlier one as far as it goes
        found += piece[len(found) :]
    return found


def reached_words(event: Finished) -> str:
    """The hosts it talked to, untrusted; empty when there were none."""
    met = [made for made in event.connections if made.allowed and made.address]
    reached = dict.fromkeys(
        f"{made.host}:{made.port}" + (f" with your credential {made.credential}" if made.credential else "")
        for made in met
    )
    names = list(reached)[:_HOSTS_TOLD]
    more = f" and {len(reached) - len(names)} more" if len(reached) > len(names) else ""
    return f"talked to {', '.join(names)}{more}" if names else ""


def contained_words(event: Finished) -> list[str]:
    """What the sandbox kept it from, untrusted."""
    return [
        violation.what + (f" ({violation.path})" if violation.path not in violation.what else "")
        for violation in event.violations
    ]


def end_words(event: Finished) -> str:
    """`ok, 12 ms`; `exit 1, ended by the time limit, 30.0 s`."""
    how = "ok" if went_well(event) else f"exit {event.status}" if event.status else "failed"
    if event.ended_by:
        how += f", ended by {event.ended_by}"
    return f"{how}, {seconds_words(event.seconds)}"


def seconds_words(seconds: float) -> str:
    """A time as a person reads it."""
    if seconds >= 60:
        return f"{int(seconds) // 60} min {int(seconds) % 60} s"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
