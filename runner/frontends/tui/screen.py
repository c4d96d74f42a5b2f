"""The screen of a session: finished rows go to the terminal's own scrollback once, and unfinished rows are live below
it.

THREAT T105: the model, files and commands choose most of this text. All of it passes `visible`.
"""

import re
import time
from collections.abc import Callable
from functools import partial
from typing import assert_never

from policy.model.profile import MAIN
from policy.model.tier import Ruling
from policy.model.verdict import Problem
from runner import events
from runner.frontends import wording
from runner.frontends.tui.call_view import CallCard, malformed_rows, problem_rows, title_rows
from runner.frontends.tui.code import diff_rows
from runner.frontends.tui.rows import (
    WIDEST,
    Fragments,
    ansi,
    cells,
    clip_rows,
    cut,
    encode_rows,
    hang,
    measure,
    safe,
    wrap,
)
from runner.frontends.tui.stream_view import Draw, Writing, put_markdown
from runner.frontends.tui.theme import Theme
from runner.text.sanitize import one_line, visible

# Events after which the block that the model is writing stays open.
_LIVE = (
    events.ModelText | events.ModelThinking | events.CallBegun | events.CommandOutput | events.ContextUsed
    | events.Queued | events.Unqueued | events.PickWanted | events.InputWanted
    | events.VerdictReached | events.QuestionAnswered | events.QuestionAsked
)  # fmt: skip


class Screen:
    """The renderer of every event. `columns` returns the current width of the terminal; `now` is a clock in seconds."""

    def __init__(
        self,
        columns: Callable[[], int],
        theme: Theme,
        *,
        encoding: str = "utf-8",
        thinking: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.theme = theme
        self._columns = columns
        self._encoding = encoding
        self._now = now
        self._up: list[tuple[Draw, bool]] = []
        self._cwd = ""
        self._cards: dict[str, CallCard] = {}
        self._writing = Writing(self._put, lambda: self.theme, thinking=thinking)
        self._noted = False  # True if the last finished rows were a note
        self._brief = False  # True if the last finished rows were the one row of a read
        self._folded: Draw | None = None

    def take(self, event: events.Event) -> None:
        """Store the rows of an event, which `done` and `live` return later."""
        if event.agent != MAIN:
            if words := wording.agent_event_words(event, self._cwd):
                self._writing.end()
                self._note(words)
            return
        if not isinstance(event, _LIVE):
            self._writing.end()
        theme = self.theme
        match event:
            case events.ModelText(text):
                self._writing.said(text)
            case events.ModelThinking(text):
                self._writing.thought(text)
            case events.CommandOutput(call, _, text):
                if call in self._cards:
                    self._cards[call].printed(text)
            case events.ContextUsed() | events.Queued() | events.Unqueued():
                pass  # the status line and the queue show these
            case events.PickWanted() | events.InputWanted():
                pass  # the list and the question themselves are shown
            case events.CallBegun(tool):
                self._writing.calls(tool)
            case events.VerdictReached() | events.QuestionAnswered() | events.QuestionAsked():
                self._settled(event)
            case events.SessionStarted():
                self._cwd = event.cwd
                self._put(partial(_labelled, wording.session_labels(event), theme=theme))
            case events.Resumed():
                self._past(event)
                pairs = wording.resumption_labels(event, shown=bool(event.recent))
                self._put(partial(_labelled, pairs, theme=theme))
            case events.Prompted() | events.Steered():
                self._put(partial(prompt_rows, wording.prompt_words(event), theme=theme))
            case events.ToolProposed(call, tool, action):
                self._cards[call] = CallCard(call, tool, action, self._cwd)
            case events.ActionFinished(call):
                card = self._cards.pop(call, None) or CallCard(call, "", None, self._cwd)
                brief = card.brief(event)
                self._put(lambda width: card.finished(event, width, theme), close=brief and self._brief)
                self._brief = brief
                if card.folds(event):
                    self._folded = lambda width: card.finished(event, width, theme, whole=True)
            case events.Denied(call):
                refused = self._cards.pop(call, None) or CallCard(call, event.action, None, self._cwd)
                self._put(lambda width: refused.denied(event, width, theme))
            case events.MalformedCall(call):
                self._cards.pop(call, None)
                self._put(partial(malformed_rows, event, theme=theme))
            case events.PlanProposed(_, plan):
                self._put(lambda width: title_rows(theme.badge_odd, "plan", "", width, theme))
                put_markdown(plan, self._put, theme)
            case events.Notice(text):
                self._note(text)
            case events.Display(text, "markdown"):
                put_markdown(text, self._put, theme)
            case events.Display(text, "diff"):
                self._put(lambda width: diff_rows(visible(text).split("\n"), width, theme))
            case events.Display(text):
                self._put(partial(text_rows, text))
            case events.Retrying():
                self._note(wording.note_words(event), theme.warn)
            case (
                events.Compacted()
                | events.Changed()
                | events.ProcessStarted()
                | events.ProcessEnded()
                | events.TaskChanged()
            ):
                self._note(wording.note_words(event))
            case events.ErrorRaised(problem):
                self._put(partial(failed_rows, problem, theme=theme))
            case events.RunEnded():
                self.halt()
                self._noted = False
                self._note(wording.run_end_words(event))
            case never:
                assert_never(never)

    def done(self) -> str:
        """Return the rows that were finished since the last call, as ANSI text to be written above the live rows."""
        if not self._up:
            return ""
        width = measure(self._columns())
        drawn, self._up = self._up, []
        rows: list[Fragments] = []
        for draw, close in drawn:
            block = draw(width)
            rows += block if close or not block else [[], *block]
        return ansi(clip_rows(encode_rows(rows, self._encoding), width))

    def live(self, width: int, rows: int) -> list[Fragments]:
        """Return the unfinished rows, each at most `width` cells wide.

        They are at most a third of the `rows` rows of the terminal, or three rows if that is more.
        """
        width, room = min(width, WIDEST), max(rows // 3, 3)
        now = self._now()
        cards = [card for card in self._cards.values() if card.began is not None]
        drawn: list[Fragments] = []
        if cards:
            each = max((room - 1) // len(cards) - 1, 1)
            visible = cards if (each + 1) * len(cards) <= room + 1 else cards[: max((room - 2) // 2, 1)]
            for card in visible:
                drawn += [[], *card.running(width, each, now, self.theme)]
            if len(visible) < len(cards):
                drawn.append([(self.theme.dim, f"and {len(cards) - len(visible)} more")])
        if not drawn:
            drawn = self._writing.rows(width, room)
        return clip_rows(encode_rows(drawn, self._encoding), width)[-room:]

    @property
    def thinking(self) -> bool:
        """Return True if the model's reasoning is shown in full."""
        return self._writing.thinking

    @thinking.setter
    def thinking(self, shown: bool) -> None:
        self._writing.thinking = shown

    def expand(self) -> bool:
        """Add the last folded output in full to the rows of `done`. Return False if there is none."""
        if self._folded is None:
            return False
        self._up.append((self._folded, False))
        self._folded = None
        return True

    def halt(self) -> None:
        """End the live rows: calls that did not end were stopped."""
        for card in self._cards.values():
            if card.began is not None or card.asked:
                self._put(partial(card.stopped, theme=self.theme))
        self._cards.clear()

    def _put(self, draw: Draw, *, close: bool = False) -> None:
        """Add finished rows; with `close`, without an empty row before them."""
        self._up.append((draw, close))
        self._noted = self._brief = False

    def _note(self, text: str, style: str | None = None) -> None:
        row = safe(text, self.theme.dim if style is None else style)
        self._put(lambda width: wrap(row, width), close=self._noted)
        self._noted = True

    def _past(self, event: events.Resumed) -> None:
        """Add the last exchanges of the session as they were shown when they happened, with each call as one row."""
        before = ""
        for row in event.recent:
            match row.kind:
                case "prompt":
                    self._put(partial(prompt_rows, row.text, theme=self.theme))
                case "answer":
                    put_markdown(row.text, self._put, self.theme)
                case _:
                    style = self.theme.warn if row.outcome in ("denied", "failed", "stopped") else self.theme.dim
                    draw = partial(_past_row, wording.past_words(row, event.session), style=style, dim=self.theme.dim)
                    self._put(draw, close=before in ("call", "more calls"))
            before = row.kind

    def _settled(self, event: events.VerdictReached | events.QuestionAsked | events.QuestionAnswered) -> None:
        card = self._cards.get(event.call)
        if card is None and isinstance(event, events.QuestionAsked) and event.card is not None:
            # A question of a list whose call was not proposed yet. If the run is stopped, only this card shows it.
            title = f"{'$ ' if event.card.editable else ''}{event.card.command}"
            card = self._cards[event.call] = CallCard(event.call, title, None, self._cwd)
        if card is None:
            # A plan has no card, so the user's words would not be shown otherwise.
            if isinstance(event, events.QuestionAnswered):
                self._note(one_line(f"you declined{': ' if event.feedback else ''}{event.feedback or ''}", 2_000))
            return
        match event:
            case events.VerdictReached():
                card.verdict = event
                if event.verdict is Ruling.ALLOW:
                    card.began = self._now()
            case events.QuestionAsked():
                card.asked, card.tier = True, event.card.tier if event.card is not None else None
                if card.began is not None:  # the call ran, so the question is an escalation
                    card.asks_right = True
                    self._put(card.blocked(self._now(), self.theme))
            case events.QuestionAnswered():
                if card.asks_right:
                    card.escalation_answer = event
                else:
                    card.answer = event
                if event.yes:
                    card.began = self._now()
            case never:
                assert_never(never)


_PROMPT_FOLD = (8, 3)  # first and last lines of a long prompt that are shown
_LINE = 4000  # characters of one shown line of a prompt
_LEAD = 11  # cells of a label


def prompt_rows(text: str, width: int, theme: Theme) -> list[Fragments]:
    """Return the rows of the user's prompt, which make it easy to find later. A long prompt is folded."""
    lines = visible(text.rstrip(), prose=True).split("\n")
    rows: list[Fragments] = []
    for number, line in enumerate(wording.folded(lines, _PROMPT_FOLD)):
        text_row = line if len(line) <= _LINE else f"{line[:_LINE]}… {len(line) - _LINE} more characters"
        rows += hang(wrap([(theme.prompt, text_row)], width - 2), (theme.prompt, "  " if number else "> "), ("", "  "))
    return rows


_COLUMN = re.compile(r" *\S+(?: \S+)* {2,}(?=\S)")  # the first column of a line of a table, with the blanks behind it


def text_rows(text: str, width: int) -> list[Fragments]:
    """Return the rows of a text for the user. A long line continues below its second column, or below its indentation
    with two more blanks.
    """
    rows: list[Fragments] = []
    for line in visible(text).split("\n"):
        column = _COLUMN.match(line)
        start = column[0] if column and cells(column[0]) <= width // 2 else ""
        first = start or line[: len(line) - len(line.lstrip(" "))][: width // 2]
        deeper = 0 if start else 2 if first else 0
        rest: Fragments = [("", line[len(first) :])]
        body = wrap(rest, max(width - cells(first), 1))
        if deeper and len(body) > 1:
            body = wrap(rest, max(width - cells(first) - deeper, 1))
        rows += hang(body, ("", first), ("", " " * (cells(first) + deeper)))
    return rows


def failed_rows(problem: Problem, width: int, theme: Theme) -> list[Fragments]:
    """Return the rows about the failure of the session."""
    head = title_rows(theme.badge_bad, "failed", visible(problem.what), width, theme)
    return head + problem_rows(Problem(problem.why, "", problem.fix), "why      ", width, theme)


def _past_row(words: str, width: int, style: str, dim: str) -> list[Fragments]:
    """Return the row of an earlier call, of which the outcome is always visible."""
    text, _, outcome = visible(words).replace("\n", " ").rpartition("  ")
    end = f"  {outcome}" if text else ""
    return [[(dim, cut(f" {text or outcome}", width - cells(end))), (style, end)]]


def _labelled(pairs: wording.Pairs, width: int, theme: Theme) -> list[Fragments]:
    rows: list[Fragments] = []
    for label, words in pairs:
        body = wrap(safe(words, theme.warn if label == wording.NOT_HELD else ""), max(width - _LEAD, 10))
        rows += hang(body, (theme.dim, f"{label:<{_LEAD}}"), ("", " " * _LEAD))
    return rows
