"""The card of one call: badge and command, what it prints while it runs, and how it ended."""

from policy.model.action import (
    Action,
    EditFile,
    GlobFiles,
    GrepFiles,
    ListFolder,
    ReadFile,
    RunArgv,
    RunScript,
    WriteFile,
)
from policy.model.tier import Ruling, Tier
from policy.model.verdict import Problem
from runner.events import ActionFinished, Denied, MalformedCall, QuestionAnswered, VerdictReached
from runner.frontends.tui.code import diff_rows
from runner.frontends.tui.rows import Fragments, cut, fit, hang, plain, safe, wrap
from runner.frontends.tui.theme import Theme
from runner.frontends.wording import (
    FAILED_FOLD,
    FOLD,
    command_lines,
    contained_words,
    end_words,
    output_lines,
    overwritten_text,
    reached_words,
    seconds_words,
    went_well,
)
from runner.gate.wording import action_words
from runner.text.sanitize import one_line, visible

DIFF_FOLD = (100, 20)
_TAIL = 4000  # characters of a running command's output that are kept
_ROOM = 12  # cells beside a badge, at least
_QUIET = (ReadFile, ListFolder, GlobFiles, GrepFiles)  # what these found is for the model


class CallCard:
    """One call from its proposal to its end."""

    def __init__(self, call: str, tool: str, action: Action | None, cwd: str) -> None:
        self.call = call
        self.tool = tool
        self.action = action
        self.verdict: VerdictReached | None = None
        self.answer: QuestionAnswered | None = None
        self.beyond: QuestionAnswered | None = None  # to the question about one right more, after it had run
        self.asked = False
        self.tier: Tier | None = None  # the tier of the question about the call
        self.began: float | None = None  # when it was allowed to run
        self._cwd = cwd
        self._printed = ""
        self._lines = 0

    def printed(self, text: str) -> None:
        """Add output. Only the end of the whole output is kept."""
        self._lines += text.count("\n")
        self._printed = (self._printed + text)[-_TAIL:]

    def running(self, width: int, rows: int, now: float, theme: Theme) -> list[Fragments]:
        """While it runs: at most `rows` rows, two at least when there is something to say."""
        head, *more = self.head(width, theme)
        if more:
            head = fit([*head, (theme.dim, " …")], width)
        state = "waits" if self.began is None else f"running, {_elapsed(now - self.began)}"
        if self._lines > 1:
            state += f", {self._lines} lines"
        if rows < 2:
            return [_ended(head, f"  {state}", width, theme)]
        room = rows - 2
        tail = _last_lines(self._printed, room)
        bar, end = _bars(theme)
        return [head, *([bar, (theme.dim, cut(line, width - 3))] for line in tail), [end, (theme.dim, state)]]

    def head(self, width: int, theme: Theme) -> list[Fragments]:
        """Badge and command; further rows of a long command stand below it, set in."""
        lines = command_lines(self.tool if self.action is None else action_words(self.action, self._cwd))
        tier = self.verdict.cell.tier if self.verdict is not None else self.tier
        if tier is None:
            badge: Fragments = [(theme.badge_odd, " call "), ("", "  ")]
        else:
            badge = [(theme.badge(tier), f" {tier.label} "), ("", "  ")]
        return title_rows(badge, "\n".join(lines), width, theme)

    def finished(self, event: ActionFinished, width: int, theme: Theme, *, whole: bool = False) -> list[Fragments]:
        """Return the whole card after the action has ended; with `whole`, nothing is folded."""
        bar, end = _bars(theme)
        body = self._why(width, theme)
        if self.beyond is not None:
            body.append([(theme.dim, "for one right more, "), *_answer_row(self.beyond, theme)])
        good = went_well(event)
        lines = output_lines(event, None if whole else self.action)
        count = ""
        if isinstance(self.action, EditFile | WriteFile) and good:
            # The two lines that name the file say it again.
            lines = [line for at, line in enumerate(lines) if at > 2 or not line.startswith(("--- ", "+++ "))]
            body += diff_rows(lines, width - 3, theme, None if whole else DIFF_FOLD)
        elif isinstance(self.action, _QUIET) and good and not whole:
            count = f", {len(lines)} {'line' if len(lines) == 1 else 'lines'}"
        else:
            excerpt = folded(lines, None if whole else FOLD if good else FAILED_FOLD)
            body += [[("", line if whole else cut(line, width - 5))] for line in excerpt]
        if reached := reached_words(event):
            body.append(safe(reached, theme.dim))
        body += [[(theme.warn, "contained  "), *safe(words)] for words in contained_words(event)]
        if event.kept:
            body.append(safe(f"all of it: {event.kept}", theme.dim))
        style = theme.good if good else theme.warn
        if self.brief(event) and not body:
            return [_ended(self.head(width, theme)[0], f"  {end_words(event)}{count}", width, theme)]
        rows = self.head(width, theme)
        for row in body:
            rows += hang(wrap(row, width - 3), bar, bar)
        return rows + hang(wrap(safe(end_words(event) + count, style), width - 3), end, ("", "   "))

    def denied(self, event: Denied, width: int, theme: Theme) -> list[Fragments]:
        """Return the header with the refused action, and below it the cause, the rule, and the alternative."""
        problem = event.problem
        rows, (bar, end) = self.head(width, theme), _bars(theme)
        if self.answer is not None and not self.answer.yes:  # the reason is theirs, and they know what to do instead
            return rows + hang(wrap(_answer_row(self.answer, theme), width - 3), end, ("", "   "))
        if self.answer is not None:
            rows += hang(wrap(_answer_row(self.answer, theme), width - 3), bar, bar)
        return rows + problem_rows(Problem(f"{problem.why} ({event.rule})", "", problem.fix), "denied   ", width, theme)

    def stopped(self, width: int, theme: Theme) -> list[Fragments]:
        """Return the rows of a call whose run ended before it did."""
        open_ = self.asked and self.answer is None and self.began is None
        words = "asked about, and stopped before an answer: nothing ran" if open_ else "stopped"
        return [*self.head(width, theme), *hang(wrap([(theme.warn, words)], width - 3), _bars(theme)[1], ("", "   "))]

    def brief(self, event: ActionFinished) -> bool:
        """Return True if the call was a read, for which one row is enough: its output is for the model."""
        return isinstance(self.action, _QUIET) and went_well(event) and self.answer is None

    def folds(self, event: ActionFinished) -> bool:
        """Return True if `finished` leaves lines out."""
        lines = output_lines(event, self.action)
        if isinstance(self.action, RunScript | RunArgv) and "\r" in event.text.replace("\r\n", "\n"):
            return True  # what was written over
        if isinstance(self.action, _QUIET) and went_well(event):
            return len(lines) > 0
        fold = DIFF_FOLD if isinstance(self.action, EditFile | WriteFile) else FOLD if went_well(event) else FAILED_FOLD
        return len(lines) - sum(fold) > 1

    def _why(self, width: int, theme: Theme) -> list[Fragments]:
        """Return who allowed the call, and why; empty for a read without a question."""
        if self.answer is not None:
            return [_answer_row(self.answer, theme)]
        if self.verdict is None or self.verdict.ruling is not Ruling.ALLOW or isinstance(self.action, _QUIET):
            return []
        why = cut("  " + one_line(f"{self.verdict.why} ({self.verdict.rule})", 300), width - len("   allowed"))
        return [[(theme.good, "allowed"), (theme.dim, why)]]


def _answer_row(answer: QuestionAnswered, theme: Theme) -> Fragments:
    feedback = f": {answer.feedback}" if answer.feedback else ""
    words, style = ("you said yes", theme.good) if answer.yes else ("you said no", theme.bad)
    return safe(f"{words}{feedback}", style)


def malformed_rows(event: MalformedCall, width: int, theme: Theme) -> list[Fragments]:
    """Return the rows of a malformed call."""
    head = title_rows([(theme.badge_odd, " call "), ("", "  ")], visible(event.tool), width, theme)
    return head + problem_rows(event.problem, "refused  ", width, theme)


def problem_rows(problem: Problem, lead: str, width: int, theme: Theme) -> list[Fragments]:
    """Return the rows of a problem: the fact, the cause, and the alternative."""
    bar, end = _bars(theme)
    why = f": {problem.why}" if problem.why else ""
    what = wrap([(theme.bad, lead), *safe(f"{problem.what}{why}")], width - 3)
    instead = wrap([(theme.dim, "instead  "), *safe(problem.fix)], width - 3)
    return hang(what, bar, bar) + hang(instead, end, ("", "   "))


def title_rows(badge: Fragments, words: str, width: int, theme: Theme) -> list[Fragments]:
    """Return `words` behind a badge, with the further lines indented below."""
    first, *rest = words.split("\n")
    room = width - len(plain(badge))
    if room < _ROOM:  # the badge stands alone
        rows, rest = [badge], [first, *rest]
    else:
        wrapped = wrap([(theme.strong, first)], room)
        rows = [[*badge, *wrapped[0]], *hang(wrapped[1:], ("", "    "), ("", "    "))]
    for line in rest:
        rows += hang(wrap([(theme.strong, line)], width - 4), ("", "    "), ("", "    "))
    return rows


def folded(lines: list[str], fold: tuple[int, int] | None) -> list[str]:
    """Return `lines` without the middle, and a row with the number of lines left out."""
    if fold is None or (hidden := len(lines) - sum(fold)) <= 1:
        return lines
    first = fold[0]
    return [*lines[:first], f"… {hidden} more lines (ctrl-o shows them)", *lines[first + hidden :]]


def _ended(row: Fragments, words: str, width: int, theme: Theme) -> Fragments:
    """Return `row` with `words` at its end. The words are always visible."""
    return fit([*fit(row, max(width - len(words), _ROOM)), (theme.dim, words)], width)


def _last_lines(text: str, count: int) -> list[str]:
    """Return the last non-empty lines of `text`; of a line that was rewritten (progress), the newest state."""
    if count <= 0:
        return []
    lines = overwritten_text(text).rstrip("\n").split("\n")[-count:]
    return [visible(line, prose=True).rstrip() for line in lines if line.strip()]


def _elapsed(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 60 else seconds_words(seconds)


def _bars(theme: Theme) -> tuple[tuple[str, str], tuple[str, str]]:
    return (theme.dim, " │ "), (theme.dim, " └ ")
