"""The words and badge colours that every front end shows for events: the start, the changes and the end of a session,
and the end of an action.

The words are as untrusted as the events. Show them through `visible`, except those that a function returns as safe.
"""

from policy.model.action import Action, RunArgv, RunScript
from policy.model.assessment import RuleKind, RuleRef
from policy.model.tier import Tier
from runner import events
from runner.approval.card import safe, squeeze_blanks
from runner.event_values import PastRow
from runner.gate.wording import action_words, rule_words
from runner.problems import Exit
from runner.text.phrases import many
from runner.text.sanitize import one_line, visible

# fmt: off
BADGE_COLOURS = {  # text colour, background colour
    Tier.READ:          ("black", "green"),
    Tier.WRITE:         ("black", "cyan"),
    Tier.EXECUTE:       ("white", "blue"),
    Tier.AGENT_SPAWN:   ("white", "blue"),
    Tier.READ_OUTSIDE:  ("black", "yellow"),
    Tier.NETWORK:       ("black", "yellow"),
    Tier.WRITE_OUTSIDE: ("black", "yellow"),
    Tier.MCP_EXTERNAL:  ("black", "yellow"),
    Tier.DANGEROUS:     ("white", "red"),
    Tier.UNKNOWN:       ("white", "magenta"),
    Tier.SECRET:        ("white", "red"),
    Tier.DENIED:        ("white", "red"),
}
# fmt: on
NOT_HELD = "missing"  # the label of a protection that the sandbox does not enforce
_FOLD, _FAILED_FOLD = (6, 4), (2, 12)  # lines before and after the fold; the cause of a failure is at the end
_HOSTS = 5  # contacted hosts that are named
_LONGEST_AGENT_LINE = 300  # characters
_LONGEST_COMMAND = 200  # characters of the command of a process
_COMMAND_LINES, _COMMAND_CHARACTERS = 12, 2000  # shown of one command; a question shows the whole command

Pairs = tuple[tuple[str, str], ...]  # label, words


def session_labels(event: events.SessionStarted) -> Pairs:
    """Return the workspace, the mode, the model and the enforcement of a session, as labels and words.

    `/sandbox` and `agent doctor` show the backend, its checks, and what enforces the limits.
    """
    enforcement = event.enforcement
    level = enforcement.level.value.lower()
    return (
        ("workspace", event.workspace),
        *((("folder", event.cwd),) if event.cwd != event.workspace else ()),
        ("mode", f"{event.mode.value}{', unattended' if event.unattended else ''}"),
        ("model", f"{event.model}, {event.model_why}" if event.model_why else event.model),
        ("sandbox", "full" if level == "full" else f"{level} ({enforcement.backend})"),
        *((NOT_HELD, words) for words in enforcement.missing),
    )


def resumption_labels(event: events.Resumed, *, shown: bool = False) -> Pairs:
    """Return the description of a continued session, and the changes since its end, as labels and words.

    `shown` is True if the last exchanges are on the screen already.
    """
    since, until = (at[:16].replace("T", " ") for at in (event.began, event.until))
    until = until.removeprefix(f"{since[:10]} ")  # the same day
    so_far = f"{many(event.prompts, 'prompt')}, {many(event.turns, 'request')}, {since} to {until} UTC"
    return (
        ("forked" if event.forked else "resumed", f"{event.session[:8]}: {so_far}"),
        *(() if shown else _ends_of(event)),
        *(("changed", words) for words in event.changes),
    )


def _ends_of(event: events.Resumed) -> Pairs:
    """Return the first and the last prompt, and the last answer."""
    return (
        *((("first", event.first),) if event.first != event.last else ()),
        ("last", event.last),
        *((("answered", event.said),) if event.said else ()),
    )


def past_words(row: PastRow, session: str) -> str:
    """Return the line about a call, or about what is left out, of the earlier part of a session."""
    match row.kind:
        case "left out":
            return f"… {row.text} earlier prompts: agent sessions show {session[:8]}"
        case "more calls":
            return f"… {row.text} more calls"
        case "earlier steps":
            return f"… earlier steps: agent sessions show {session[:8]}"
        case _:
            return f"{row.text}  {row.outcome}"


def prompt_words(event: events.Prompted | events.Steered) -> str:
    """Return the text that the user typed for the prompt, for example a /command."""
    return (event.typed if isinstance(event, events.Prompted) else "") or event.text


def wait_words(count: float) -> str:
    """Return the words for a time to wait of `count` seconds."""
    if count < 10:
        return f"{count:.3g} s"
    whole = round(count)
    return f"{whole} s" if whole < 120 else f"{whole // 60} min {whole % 60} s"


def note_words(
    event: (
        events.Retrying
        | events.Compacted
        | events.Changed
        | events.ProcessStarted
        | events.ProcessEnded
        | events.TaskChanged
    ),
) -> str:
    """Return one line about the event."""
    match event:
        case events.Retrying(_, problem, wait, attempt, attempts):
            return f"{problem.what}; retry in {wait_words(wait)} ({attempt} of {attempts})"
        case events.Compacted(level, before, after):
            return f"compacted ({level}): {before} tokens are now {after}"
        case events.Changed(what, was, now, why):
            name = "thinking level" if what == "thinking" else what
            return f"the {name} is now {now} (was {was}){': ' + why if why else ''}"
        case events.ProcessStarted(process, command):
            return f"{process} runs in the background: {one_line(command, _LONGEST_COMMAND)}"
        case events.ProcessEnded(process, status, seconds, ended_by):
            how = f"ended with status {status}" if ended_by is None else f"was ended ({ended_by})"
            return f"{process} {how} after {wait_words(seconds)}"
        case events.TaskChanged(task, state, subject, owner):
            who = f" ({owner})" if owner is not None else ""
            return f"task {task} is {state.replace('_', ' ')}{who}: {one_line(subject, _LONGEST_COMMAND)}"


def agent_event_words(event: events.Event, cwd: str) -> str:
    """Return one line about the event of a sub-agent; empty for an event that is not shown. Its report to the agent
    that started it has the result of its work.
    """
    match event:
        case events.Prompted(text):
            words = f"started by {event.parent}: {text}"
        case events.ToolProposed(_, tool, action):
            words = action_words(action, cwd) if action is not None else tool
        case events.Denied(_, action, problem=problem):
            words = f"denied: {action}: {problem.why}"
        case events.MalformedCall(_, tool, problem):
            words = f"refused call of {tool}: {problem.what}"
        case events.ErrorRaised(problem):
            words = f"failed: {problem.what}"
        case events.Notice(text):
            words = text
        case (
            events.Retrying() | events.Compacted() | events.Changed() | events.ProcessStarted() | events.ProcessEnded()
        ):
            words = note_words(event)
        case events.RunEnded():
            words = run_end_words(event)
        case _:
            return ""
    return one_line(f"[{event.agent}] {words}", _LONGEST_AGENT_LINE)


def run_end_words(event: events.RunEnded) -> str:
    """Return one line about the end of a run: the reason, and the requests to the model, denials and tokens."""
    count, usage = len(event.denied), event.usage
    denied = f", {count} denied" if count else ""
    used = f"; {usage.input} tokens in, {usage.output} out" if usage.input or usage.output else ""
    reason = "stopped" if event.exit == Exit.INTERRUPTED else event.reason
    return f"{reason} ({many(event.turns, 'request')}{denied}{used})"


def denial_fix(event: events.Denied, *, keys: bool) -> str:
    """Return what the user of a conversation can do about a denial: change the mode, or what the problem says.

    `keys` is True if Shift+Tab changes the mode. The model is told the text of the problem in any case.
    """
    mode = event.allowed_in or event.asked_in
    if mode is None:
        return event.problem.fix
    does = "allows it" if event.allowed_in else "asks you first"
    return f"{'Shift+Tab or ' if keys else ''}/mode {mode.value} {does}"


def reason_words(why: str, rule: RuleRef) -> str:
    """Return the reason of a verdict with its rule, for a block that says `allowed` or `denied` before it.

    The rule has the words of the cards: `built in`, or its place in a file. A reason such as `allowed by your grant g1`
    names its rule itself.
    """
    names_it = rule.kind not in (RuleKind.BUILTIN, RuleKind.COMMAND) and why.startswith("allowed by ")
    return why.removeprefix("allowed ") if names_it else f"{why} ({rule_words(rule)})"


def command_lines(command: str, mark: str = "…") -> list[str]:
    """Return the lines of a command, safe to show. A long command is cut, unlike in its question.

    `mark` precedes the number of characters or lines that are left out.
    """
    words = squeeze_blanks(safe(command))
    if (over := len(words) - _COMMAND_CHARACTERS) > 0:
        words = f"{words[:_COMMAND_CHARACTERS]}{mark} {over} more characters"
    lines = words.rstrip("\n").split("\n")
    if (over := len(lines) - _COMMAND_LINES) > 0:
        lines[_COMMAND_LINES:] = [f"{mark} {over} more lines"]
    return lines


def went_well(event: events.ActionFinished) -> bool:
    """Return True if the action succeeded without a problem."""
    return event.status == 0 and event.problem is None


def fold_of(event: events.ActionFinished) -> tuple[int, int]:
    """Return the numbers of lines to show before and after the fold of an output."""
    return _FOLD if went_well(event) else _FAILED_FOLD


def folded(lines: list[str], fold: tuple[int, int], mark: str = "…", hint: str = "") -> list[str]:
    """Return `lines` with the middle replaced by one line that states the number of the hidden lines.

    `fold` is the number of lines kept before and after the middle. A middle of one line stays.
    """
    hidden = len(lines) - sum(fold)
    if hidden <= 1:
        return lines
    return [*lines[: fold[0]], f"{mark} {hidden} more lines{hint}", *lines[fold[0] + hidden :]]


def output_lines(event: events.ActionFinished, action: Action | None = None) -> list[str]:
    """Return the output lines of an action, safe to show, without the lines that repeat how the action ended.

    In the output of a command, overwritten text is removed. In any other output, every character is shown.
    """
    command = isinstance(action, RunScript | RunArgv)
    text = overwritten_text(event.text) if command else event.text
    lines = visible(text, prose=command).rstrip("\n").split("\n") if text.strip() else []
    if lines and lines[-1].startswith(("[exit status ", "[stopped after ")):
        lines.pop()
    if event.violations:
        lines = [line for line in lines if not (line.startswith("[") and "stopped by the sandbox: " in line[:40])]
    return lines


def overwritten_text(text: str) -> str:
    """Return each line as a terminal leaves it after overwriting, as by a progress bar."""
    if "\r" not in text:
        return text
    return "\n".join(map(_last, text.replace("\r\n", "\n").split("\n")))


def _last(line: str) -> str:
    """Return the last state of a line. Each piece after a carriage return overwrites the line from its first column."""
    state = ""
    for piece in reversed(line.split("\r")):  # a later piece covers the beginning of an earlier one
        state += piece[len(state) :]
    return state


def reached_words(event: events.ActionFinished) -> str:
    """Return the contacted hosts, which are untrusted text; empty if there were none."""
    met = [made for made in event.connections if made.allowed and made.address]
    reached = dict.fromkeys(
        f"{made.host}:{made.port}" + (f" with your credential {made.credential}" if made.credential else "")
        for made in met
    )
    names = list(reached)[:_HOSTS]
    more = f" and {len(reached) - len(names)} more" if len(reached) > len(names) else ""
    return f"connected to {', '.join(names)}{more}" if names else ""


def contained_words(event: events.ActionFinished) -> list[str]:
    """Return one line for each violation. The words are untrusted."""
    return [
        violation.what + (f" ({violation.unnamed_path})" if violation.unnamed_path else "")
        for violation in event.violations
    ]


def end_words(event: events.ActionFinished) -> str:
    """Return the end of an action and its duration: `ok, 12 ms`; `exit 1, ended by the time limit, 30.0 s`."""
    if event.ended_by == "cancelled":
        return f"stopped, {seconds_words(event.seconds)}"
    how = "ok" if went_well(event) else f"exit {event.status}" if event.status else "failed"
    if event.ended_by:
        how += f", ended by {event.ended_by}"
    return f"{how}, {seconds_words(event.seconds)}"


def seconds_words(seconds: float) -> str:
    """Return the words for a duration."""
    if seconds >= 60:
        return f"{int(seconds) // 60} min {int(seconds) % 60} s"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
