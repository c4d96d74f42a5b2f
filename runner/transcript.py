"""What a person sees of a session: events drawn on a terminal, or as plain lines where there is none.

THREAT: the model, files and commands choose most of this text. All of it passes `visible` and becomes rich Text, never
markup, so nothing in it can move the cursor, forge a badge, hide a part of a command, or colour itself.
"""

import re
from collections.abc import Callable
from typing import assert_never

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from policy.action import Action, EditFile, WriteFile
from policy.matrix import Ruling
from policy.tier import Tier
from policy.verdict import Problem
from runner.events import (
    Answered,
    Asked,
    CallBegun,
    Changed,
    Chunk,
    Compacted,
    ContextUsed,
    Denied,
    Event,
    Failed,
    Finished,
    Judged,
    Malformed,
    Notice,
    PickWanted,
    PlanProposed,
    Prompted,
    Proposed,
    Queued,
    Resumed,
    Retrying,
    RunEnded,
    Said,
    SessionStarted,
    Shown,
    Steered,
    Thought,
    Unqueued,
)
from runner.outcome import contained_words, end_words, output_lines, reached_words, went_well
from runner.visible import visible
from runner.wording import action_words

WIDEST = 120  # long lines are hard to read on a wide screen
_PIECES = re.compile(r"\n| |[^ \n]+")
COMMAND_LINES, COMMAND_CHARACTERS = 12, 2000  # of one command; a question shows all of it
FOLD, FAILED_FOLD = (6, 4), (2, 12)  # lines kept before and after the fold; what went wrong stands at the end

# fmt: off
_BADGE = {
    Tier.READ:          "black on green",
    Tier.WRITE:         "black on cyan",
    Tier.EXECUTE:       "white on blue",
    Tier.AGENT_SPAWN:   "white on blue",
    Tier.READ_OUTSIDE:  "black on yellow",
    Tier.NETWORK:       "black on yellow",
    Tier.WRITE_OUTSIDE: "black on yellow",
    Tier.MCP_EXTERNAL:  "black on yellow",
    Tier.DANGEROUS:     "white on red",
    Tier.UNKNOWN:       "white on magenta",
    Tier.SECRET:        "white on red",
    Tier.DENIED:        "white on red",
}
# fmt: on
_WORD = {Ruling.ALLOW: ("allowed", "green"), Ruling.ASK: ("asks", "yellow"), Ruling.DENY: ("denied", "bold red")}


class Transcript:
    """Draws each event as it comes. Calls that only read run side by side, so theirs are drawn when they end."""

    def __init__(self, console: Console, *, thinking: bool = False) -> None:
        self._console = console
        self._thinking = thinking
        self._cwd = ""
        self._actions: dict[str, tuple[str, Action | None]] = {}
        self._verdicts: dict[str, Judged] = {}
        self._drawn: set[str] = set()
        self._open: set[str] = set()  # asked about or allowed, and not yet ended
        self._flow = _Flow(console, lambda: self._width)
        self._encoding = console.encoding or "utf-8"
        fancy = self._encoding.lower().replace("-", "").startswith("utf")
        self._bar, self._end, self._cut = ("│", "└", "…") if fancy else ("|", "`", "...")

    @property
    def _width(self) -> int:
        """The columns we use, as the terminal is now."""
        return min(self._console.width, WIDEST)

    def __call__(self, event: Event) -> None:
        """Draw `event`. Fits `Emit`."""
        match event:
            case Said(text):
                self._flow.write(text, "")
                return
            case Thought(text):
                if self._thinking:
                    self._flow.write(text, "dim italic")
                return
            case PlanProposed(call):  # whoever asks shows it; a call of an earlier prompt may have had its key
                self._actions.pop(call, None)
                return
            case Chunk() | CallBegun() | ContextUsed() | PickWanted():
                return  # the end of a call shows its output, folded; whoever asks shows the plan
            case _:
                self._flow.end()
        match event:
            case SessionStarted():
                self._started(event)
            case Resumed():
                self._resumed(event)
            case Prompted(text):
                self._print(Text("\n").append_text(self._styled(f"> {text.rstrip()}", "bold")))
            case Proposed(call, tool, action):
                self._actions[call] = (tool, action)
                self._drawn.discard(call)  # in a conversation, the keys of a later prompt start again
                self._verdicts.pop(call, None)
            case Judged():
                self._verdicts[event.call] = event
                if event.ruling is Ruling.ALLOW:
                    self._open.add(event.call)
                if event.tiers != (Tier.READ,) and event.ruling is not Ruling.ASK:
                    self._header(event.call)
            case Asked():
                return  # whoever asks shows the question
            case Answered(call) if call not in self._actions:
                return  # to a plan: the line that was typed stands there
            case Answered(call, yes, feedback, edited):
                if edited is not None:
                    self._header(call)
                    self._row(self._styled("you wrote another command", "yellow"))
                    return
                self._header(call)
                said = "you said yes" if yes else "you said no" + (f": {feedback}" if feedback else "")
                self._row(self._styled(said, "green" if yes else "red"))
            case Finished():
                self._header(event.call)
                self._finished(event)
                self._open.discard(event.call)
            case Denied(call, _, _, rule, problem):
                self._header(call)
                self._open.discard(call)
                # The header shows what was refused; here is why, by which rule, and what to do instead.
                self._problem(Problem(f"{problem.why} ({rule})", "", problem.fix), "denied   ")
            case Malformed(_, tool, problem):
                self._title(" call ", "black on yellow", tool)
                self._problem(problem, "refused  ")
            case Notice(text):
                self._print(self._styled(f"note: {text}", "dim"))
            case Shown(text, kind):
                for line in text.split("\n"):
                    self._print(self._styled(line, _diff_style(line) if kind == "diff" else ""))
            case Retrying():
                again = f"{event.problem.what}; asking again in {event.wait:g} s ({event.attempt} of {event.attempts})"
                self._print(self._styled(f"note: {again}", "dim"))
            case Compacted(level, before, after):
                self._print(self._styled(f"note: compacted ({level}): {before} tokens are now {after}", "dim"))
            case Queued(text, kind):
                when = "after this batch of calls" if kind == "steer" else "after this turn"
                self._print(self._styled(f"note: goes to the model {when}: {text}", "dim"))
            case Unqueued(texts):
                self._print(self._styled(f"note: taken back: {'; '.join(texts)}", "dim"))
            case Steered(text):
                self._print(Text("\n").append_text(self._styled(f"> {text.rstrip()}", "bold")))
            case Changed(what, was, now, why):
                self._print(
                    self._styled(f"note: the {what} is now {now} (was {was}){': ' + why if why else ''}", "dim")
                )
            case Failed(problem):
                self._title(" failed ", "white on red", problem.what)
                self._problem(Problem(problem.why, "", problem.fix), "why      ")
            case RunEnded():
                for call in sorted(self._open):
                    self._header(call)  # a read is drawn when it ends, and this one never did
                    self._row(self._styled("stopped", "yellow"), last=True)
                self._open.clear()
                self._ended(event)
            case never:
                assert_never(never)

    def _started(self, event: SessionStarted) -> None:
        self._cwd = event.cwd
        found = event.enforcement
        held = sum(ok for _, ok in found.checks)
        alone = ", unattended" if event.unattended else ""
        for label, words in (
            ("workspace", event.workspace),
            *((("folder", event.cwd),) if event.cwd != event.workspace else ()),
            ("mode", f"{event.mode.value}{alone}"),
            ("model", event.model),
            ("sandbox", f"{found.backend} {found.level.value}, {held} of {len(found.checks)} checks held"),
            *((("limits", f"kept by {found.limits}"),) if found.limits else ()),
            *(("not held", words) for words in found.missing),
        ):
            self._labelled(label, words)

    def _resumed(self, event: Resumed) -> None:
        prompts = f"{event.prompts} {'prompt' if event.prompts == 1 else 'prompts'}"
        turns = f"{event.turns} {'turn' if event.turns == 1 else 'turns'}"
        since, until = (time[:16].replace("T", " ") for time in (event.began, event.until))
        how = "forked" if event.forked else "resumed"
        self._labelled(how, f"{event.session[:8]}: {prompts}, {turns}, {since} to {until} UTC")
        for label, words in (
            *((("first", event.first),) if event.first != event.last else ()),
            ("last", event.last),
            *((("answered", event.said),) if event.said else ()),
            *(("changed", words) for words in event.changes),
        ):
            self._labelled(label, words)

    def _labelled(self, label: str, words: str) -> None:
        self._print(Text().append(f"{label:<10} ", "dim").append_text(self._styled(words)))

    def _header(self, call: str) -> None:
        """Badge and command, then verdict and why; once per call."""
        if call in self._drawn or call not in self._verdicts:
            return
        self._drawn.add(call)
        self._open.add(call)
        verdict = self._verdicts[call]
        _, action = self._actions[call]
        words = visible(action_words(action, self._cwd)) if action is not None else ""
        if len(words) > COMMAND_CHARACTERS:
            words = f"{words[:COMMAND_CHARACTERS]}{self._cut} {len(words) - COMMAND_CHARACTERS} more characters"
        lines = words.rstrip("\n").split("\n")
        if len(lines) > COMMAND_LINES:
            lines[COMMAND_LINES:] = [f"{self._cut} {len(lines) - COMMAND_LINES} more lines"]
        tier = verdict.cell.tier
        self._title(f" {tier.label} ", _BADGE[tier], "\n".join(lines))
        word, style = _WORD[verdict.ruling]
        if verdict.ruling is not Ruling.DENY:  # a denial says it with its Problem
            why = Text().append(word, style).append_text(self._styled(f"  {verdict.why} ({verdict.rule})", "dim"))
            self._row(why)

    def _title(self, badge: str, style: str, words: str) -> None:
        """The badge, and what it is about; further rows of a long command stand below it, set in."""
        lead = Text("\n").append(badge, style).append("  ")
        first, *rest = words.split("\n")
        rows = list(self._styled(first, "bold").wrap(self._console, max(self._width - cell_len(badge) - 2, 20)))
        for line in rest:
            rows += self._styled(line, "bold").wrap(self._console, max(self._width - 4, 20))
        for number, row in enumerate(rows or [Text()]):
            row.rstrip()
            self._print(lead.append_text(row) if number == 0 else Text("    ").append_text(row))

    def _finished(self, event: Finished) -> None:
        action = self._actions[event.call][1]
        diff = isinstance(action, EditFile | WriteFile)
        lines = output_lines(event)
        good = went_well(event)
        first, last = FOLD if good else FAILED_FOLD
        hidden = len(lines) - first - last
        if hidden > 1 and not diff:
            lines[first : first + hidden] = [f"{self._cut} {hidden} more lines"]
        for line in lines:
            style = _diff_style(line) if diff else ""
            shown = f"  {line}" if diff else self._fit(f"  {line}")  # a change is shown whole
            self._row(self._styled(shown, style))
        if reached := reached_words(event):
            self._row(self._styled(reached, "dim"))
        for words in contained_words(event):
            self._row(Text().append("contained  ", "bold yellow").append_text(self._styled(words)))
        if event.kept:
            self._row(self._styled(f"all of it: {event.kept}", "dim"))
        self._row(self._styled(end_words(event), "green" if good else "yellow"), last=True)

    def _problem(self, problem: Problem, lead: str) -> None:
        why = f": {problem.why}" if problem.why else ""
        self._row(Text().append(lead, "bold red").append_text(self._styled(f"{problem.what}{why}")))
        self._row(Text().append("instead  ", "dim").append_text(self._styled(problem.fix)), last=True)

    def _ended(self, event: RunEnded) -> None:
        count = len(event.denied)
        denied = f", {count} denied" if count else ""
        usage = event.usage
        used = f"; {usage.input} tokens in, {usage.output} out" if usage.input or usage.output else ""
        turns = f"{event.turns} {'turn' if event.turns == 1 else 'turns'}"
        self._print(Text("\n").append_text(self._styled(f"{event.reason} ({turns}{denied}{used})", "dim")))

    def _row(self, text: Text, *, last: bool = False) -> None:
        """One row of a call's block: wrapped by us, so that every line keeps the bar."""
        rows = list(text.wrap(self._console, max(self._width - 3, 20))) or [Text()]
        for number, row in enumerate(rows):
            mark = self._end if last and number == len(rows) - 1 else self._bar
            line = Text().append(f" {mark} ", "dim").append_text(row)
            line.rstrip()
            self._print(line)

    def _fit(self, line: str) -> str:
        """`line` cut to the width of a row."""
        room = max(self._width - 3, 20)
        if cell_len(line) <= room:
            return line
        return set_cell_size(line, room - len(self._cut)).rstrip() + self._cut

    def _styled(self, text: str, style: str = "") -> Text:
        """Untrusted text as safe Text in one style."""
        shown = visible(text)
        return Text().append(shown.encode(self._encoding, "backslashreplace").decode(self._encoding), style)

    def _print(self, text: Text) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=False, width=self._width)


class _Flow:
    """Streams prose, wrapped at words as it comes: the same lines on a terminal and in a file.

    A piece costs what its length costs, however long the word is that it belongs to.
    """

    def __init__(self, console: Console, width: Callable[[], int]) -> None:
        self._console = console
        self._width = width
        self._column = 0
        self._word: list[str] = []  # which waits, with the blank before it
        self._size = 0
        self._long = False  # the word is longer than a row: nothing of it waits
        self._open = False
        self._style = ""
        self._ready: list[str] = []

    def write(self, text: str, style: str) -> None:
        if not self._open or style != self._style:
            self.end()
            self._ready.append("\n")
            self._open, self._style = True, style
        for piece in _PIECES.findall(visible(text)):
            if piece[0] not in " \n":
                self._add(piece)
                continue
            self._flush()
            if piece == "\n":
                self._ready.append("\n")
                self._column = 0
            elif self._column:
                self._word, self._size = [" "], 1
            else:  # what is set in stays so: it may be code
                self._ready.append(" ")
                self._column = 1
        self._out()

    def end(self) -> None:
        """Finish the paragraph, if one is open."""
        if self._open:
            self._flush()
            self._ready.append("\n")
            self._out()
        self._open, self._column, self._word, self._size, self._long = False, 0, [], 0, False

    def _add(self, piece: str) -> None:
        size = cell_len(piece)
        if self._long:
            self._ready.append(piece)
            self._column += size
            return
        self._word.append(piece)
        self._size += size
        if self._size > self._width() + 1:
            self._put()
            self._long = True

    def _flush(self) -> None:
        """The word is over."""
        self._put()
        self._long = False

    def _put(self) -> None:
        """Put the pending word (with the blank before it) on this line or the next."""
        blank = self._word[:1] == [" "]
        if self._column and self._column + self._size > self._width() and len(self._word) > blank:
            self._ready.append("\n")
            self._column = 0
            if blank:
                del self._word[0]
                self._size -= 1
        self._ready += self._word
        self._column += self._size
        self._word, self._size = [], 0

    def _out(self) -> None:
        encoding = self._console.encoding or "utf-8"
        text = "".join(self._ready).encode(encoding, "backslashreplace").decode(encoding)
        self._ready = []
        if text:
            self._console.print(Text(text, self._style), end="", markup=False, highlight=False, soft_wrap=True)
        self._console.file.flush()


def _diff_style(line: str) -> str:
    match line[:1]:
        case "+":
            return "green"
        case "-":
            return "red"
        case "@":
            return "cyan"
        case _:
            return ""
