"""The card of one call on the screen: badge and command, the output while it runs, and the end."""

from collections.abc import Callable

from policy.model import action as actions
from policy.model.tier import Ruling, Tier
from policy.model.verdict import Problem
from runner.events import ActionFinished, Denied, MalformedCall, QuestionAnswered, VerdictReached
from runner.frontends import wording
from runner.frontends.tui.code import diff_rows
from runner.frontends.tui.rows import Fragments, cut, fit, hang, plain, safe, wrap
from runner.frontends.tui.theme import Theme
from runner.gate.wording import action_words
from runner.text.phrases import many
from runner.text.sanitize import one_line, visible

_BAR, _END = " │ ", " └ "
DIFF_FOLD = (100, 20)
_TAIL = 4000  # characters of a running command's output that are kept
_BLOCKED_LINES = 5  # last lines of output that are shown above an escalation
_ROOM = 12  # minimum number of cells beside a badge
# Reads, whose results are shown to the model only.
_QUIET = (actions.ReadFile, actions.ListFolder, actions.GlobFiles, actions.GrepFiles)


class CallCard:
    """One call from its proposal to its end."""

    def __init__(self, call: str, tool: str, action: actions.Action | None, cwd: str) -> None:
        self.call = call
        self.tool = tool
        self.action = action
        self.verdict: VerdictReached | None = None
        self.answer: QuestionAnswered | None = None
        self.asks_right = False  # the call ran once, so every further question is an escalation
        self.escalation_answer: QuestionAnswered | None = None  # the answer to an escalation after the first run
        self.asked = False
        self.tier: Tier | None = None  # the tier of the question about the call
        self.began: float | None = None  # the time at which the call was allowed, or None
        self._cwd = cwd
        self._printed = ""
        self._lines = 0

    def printed(self, text: str) -> None:
        """Add output. Only the end of the whole output is kept."""
        self._lines += text.count("\n")
        self._printed = (self._printed + text)[-_TAIL:]

    def running(self, width: int, rows: int, now: float, theme: Theme) -> list[Fragments]:
        """Return the card of a running call in at most `rows` rows. `now` is the current time of the clock."""
        head, *more = self.head(width, theme)
        if more:
            head = fit([*head, (theme.dim, " …")], width)
        state = "waits"
        if self.began is not None:
            state = f"running, {_run_time(now - self.began)}"
        if self._lines > 1:
            state += f", {self._lines} lines"
        if rows < 2:
            return [_ended(head, f"  {state}", width, theme)]
        room = rows - 2
        tail = _last_lines(self._printed, room)
        lines = [[(theme.dim, _BAR), (theme.dim, cut(line, width - 3))] for line in tail]
        return [head, *lines, [(theme.dim, _END), (theme.dim, state)]]

    def blocked(self, now: float, theme: Theme) -> Callable[[int], list[Fragments]]:
        """Return the rows of the run that the sandbox stopped, for a width, to be shown above the escalation.

        From now on the call is not running. The output begins anew with the next run.
        """
        end = f"blocked by the sandbox, {_run_time(now - (now if self.began is None else self.began))}"
        end += f", {self._lines} lines" if self._lines > 1 else ""
        output = self._printed
        self.began, self._printed, self._lines = None, "", 0

        def rows(width: int) -> list[Fragments]:
            tail = [[("", cut(line, width - 5))] for line in _last_lines(output, _BLOCKED_LINES)]
            body = [row for line in tail for row in _body_rows(line, width, theme)]
            return [*self.head(width, theme), *body, *_body_rows([(theme.warn, end)], width, theme, last=True)]

        return rows

    def head(self, width: int, theme: Theme) -> list[Fragments]:
        """Return the badge and the command. Further rows of a long command are indented."""
        lines = wording.command_lines(self.tool if self.action is None else action_words(self.action, self._cwd))
        tier = self.verdict.cell.tier if self.verdict is not None else self.tier
        style, label = (theme.badge_odd, "call") if tier is None else (theme.badge(tier), tier.shown)
        return title_rows(style, label, "\n".join(lines), width, theme)

    def finished(self, event: ActionFinished, width: int, theme: Theme, *, whole: bool = False) -> list[Fragments]:
        """Return the whole card after the action has ended; with `whole`, nothing is folded."""
        body = self._why(width, theme)
        if self.escalation_answer is not None:
            body.append([(theme.dim, "for one more right, "), *_answer_row(self.escalation_answer, theme)])
        good = wording.went_well(event)
        lines = wording.output_lines(event, None if whole else self.action)
        count = ""
        if isinstance(self.action, actions.EditFile | actions.WriteFile) and good:
            # Drop the two lines that repeat the name of the file.
            lines = [line for at, line in enumerate(lines) if at > 2 or not line.startswith(("--- ", "+++ "))]
            body += diff_rows(lines, width - 3, theme, None if whole else DIFF_FOLD)
        elif isinstance(self.action, _QUIET) and good and not whole:
            count = f", {many(len(lines), 'line')}"
        elif whole:
            body += [[("", line)] for line in lines]
        else:
            excerpt = wording.folded(lines, wording.fold_of(event), hint=" (ctrl-o shows them)")
            body += [[("", cut(line, width - 5))] for line in excerpt]
        if reached := wording.reached_words(event):
            body.append(safe(reached, theme.dim))
        body += [[(theme.warn, "contained  "), *safe(words)] for words in wording.contained_words(event)]
        if event.kept:
            body.append(safe(f"complete output: {event.kept}", theme.dim))
        end = wording.end_words(event) + count
        if self.brief(event) and not body:
            return [_ended(self.head(width, theme)[0], f"  {end}", width, theme)]
        rows = self.head(width, theme)
        for row in body:
            rows += _body_rows(row, width, theme)
        return rows + _body_rows(safe(end, theme.good if good else theme.warn), width, theme, last=True)

    def denied(self, event: Denied, width: int, theme: Theme) -> list[Fragments]:
        """Return the header with the refused action, and below it the cause, the rule, and the alternative."""
        problem, answer = event.problem, self.answer
        rows = self.head(width, theme)
        if answer is not None:
            rows += _body_rows(_answer_row(answer, theme), width, theme, last=not answer.yes)
            if not answer.yes:  # the reason is the user's own, who needs no alternative
                return rows
        fix = wording.denial_fix(event, keys=True)
        return rows + problem_rows(
            Problem(wording.reason_words(problem.why, event.rule), "", fix), "denied   ", width, theme
        )

    def stopped(self, width: int, theme: Theme) -> list[Fragments]:
        """Return the rows of a call whose run ended before it did."""
        open_ = self.asked and self.answer is None and self.began is None and not self.asks_right
        words = "stopped before the question was answered: nothing ran" if open_ else "stopped"
        return self.head(width, theme) + _body_rows([(theme.warn, words)], width, theme, last=True)

    def brief(self, event: ActionFinished) -> bool:
        """Return True if the call was a successful read without a question: one row is enough, without the output."""
        return isinstance(self.action, _QUIET) and wording.went_well(event) and self.answer is None

    def folds(self, event: ActionFinished) -> bool:
        """Return True if `finished` leaves lines out."""
        lines = wording.output_lines(event, self.action)
        if isinstance(self.action, actions.RunScript | actions.RunArgv) and "\r" in event.text.replace("\r\n", "\n"):
            return True  # overwritten text is left out
        if isinstance(self.action, _QUIET) and wording.went_well(event):
            return len(lines) > 0
        edit = isinstance(self.action, actions.EditFile | actions.WriteFile)
        return len(lines) - sum(DIFF_FOLD if edit else wording.fold_of(event)) > 1

    def _why(self, width: int, theme: Theme) -> list[Fragments]:
        """Return the answer or the rule that allowed the call, and the reason; empty for a read without a question."""
        if self.answer is not None:
            return [_answer_row(self.answer, theme)]
        if self.verdict is None or self.verdict.verdict is not Ruling.ALLOW or isinstance(self.action, _QUIET):
            return []
        why = cut(
            "  " + one_line(wording.reason_words(self.verdict.why, self.verdict.rule), 300), width - len("   allowed")
        )
        return [[(theme.good, "allowed"), (theme.dim, why)]]


def _answer_row(answer: QuestionAnswered, theme: Theme) -> Fragments:
    words = f"you {'approved' if answer.yes else 'declined'}{f': {answer.feedback}' if answer.feedback else ''}"
    return safe(words, theme.good if answer.yes else theme.bad)


def malformed_rows(event: MalformedCall, width: int, theme: Theme) -> list[Fragments]:
    """Return the rows of a malformed call."""
    head = title_rows(theme.badge_odd, "call", visible(event.tool), width, theme)
    return head + problem_rows(event.problem, "refused  ", width, theme)


def problem_rows(problem: Problem, lead: str, width: int, theme: Theme) -> list[Fragments]:
    """Return the rows of a problem: the fact, the cause, and the alternative."""
    why = f": {problem.why}" if problem.why else ""
    what = _body_rows([(theme.bad, lead), *safe(f"{problem.what}{why}")], width, theme)
    return what + _body_rows([(theme.dim, "instead  "), *safe(problem.fix)], width, theme, last=True)


def _body_rows(row: Fragments, width: int, theme: Theme, *, last: bool = False) -> list[Fragments]:
    """Return `row` wrapped, behind the bar of a card; `last` ends the card."""
    first, rest = ((theme.dim, _END), ("", "   ")) if last else ((theme.dim, _BAR), (theme.dim, _BAR))
    return hang(wrap(row, width - 3), first, rest)


def title_rows(style: str, label: str, words: str, width: int, theme: Theme) -> list[Fragments]:
    """Return `words` behind a badge with `label`, with the further lines indented below."""
    badge: Fragments = [(style, f" {label} "), ("", "  ")]
    first, *rest = words.split("\n")
    room = width - len(plain(badge))
    if room < _ROOM:  # the badge gets a row of its own
        rows, rest = [badge], [first, *rest]
    else:
        wrapped = wrap([(theme.strong, first)], room)
        rows = [[*badge, *wrapped[0]], *hang(wrapped[1:], ("", "    "), ("", "    "))]
    for line in rest:
        rows += hang(wrap([(theme.strong, line)], width - 4), ("", "    "), ("", "    "))
    return rows


def _ended(row: Fragments, words: str, width: int, theme: Theme) -> Fragments:
    """Return `row` with `words` at its end. The words are always visible."""
    return fit([*fit(row, max(width - len(words), _ROOM)), (theme.dim, words)], width)


def _run_time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 60 else wording.seconds_words(seconds)


def _last_lines(text: str, count: int) -> list[str]:
    """Return the non-empty lines among the last `count` of `text`, without overwritten text (progress)."""
    if count <= 0:
        return []
    lines = wording.overwritten_text(text).rstrip("\n").split("\n")[-count:]
    return [visible(line, prose=True).rstrip() for line in lines if line.strip()]
