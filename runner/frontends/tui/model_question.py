"""The panel with questions of the model: choices, own words, and one question after the other.

THREAT T251: the panel must not pass for a question of the gate. Its first row says who asks and that an answer allows
no action, every row with text of the model begins with a bar, and the panel has no letter that approves.
"""

import time
from collections.abc import Callable

from policy.model.model_questions import ModelQuestion
from runner.approval.model_questions import LONGEST_ANSWER, AskedByModel, ModelAnswer
from runner.frontends.tui.panel import Done, Edit, Guard, Panel, PanelStep, Unanswered
from runner.frontends.tui.rows import Fragments, fit, wrapped
from runner.text.sanitize import one_line, visible_prose

_LONGEST = 500  # characters of a text on one row
_BAR = ("ansimagenta", "| ")
_LEAST = 3  # rows for the choices


class ModelQuestionPanel(Panel[tuple[ModelAnswer, ...] | None]):
    """A Panel whose value is the answer to each question, or None if the user leaves them without an answer."""

    alone = True

    def __init__(self, asked: AskedByModel, clock: Callable[[], float] = time.monotonic) -> None:
        self._asked = asked
        self._guard = Guard(clock)
        self._answers: list[ModelAnswer] = []
        self._selected: set[int] = set()
        self._words = ""
        self._at = 0

    @property
    def _question(self) -> ModelQuestion:
        return self._asked.questions[len(self._answers)]

    def lines(self, width: int, rows: int) -> list[Fragments]:
        self._guard.drawn()
        question = self._question
        count, place = len(self._asked.questions), len(self._answers) + 1
        many = f"  ({place} of {count})" if count > 1 else ""
        drawn: list[Fragments] = [[("bold ansimagenta", self._asked.heading), ("dim", many)]]
        text = [("bold", one_line(question.title, _LONGEST))] if question.title.strip() else []
        text += [("", line) for line in visible_prose(question.question).splitlines()]
        asked = [[_BAR, *row] for style, line in text for row in wrapped(style, line, max(width - 2, 1))]
        foot = self._foot()
        choices, here = self._choices(width)
        room = max(rows - len(drawn) - len(foot), 1)
        shown = max(room - max(min(len(choices), _LEAST), room - len(asked)), 0)
        if len(asked) > shown:
            asked = [*asked[: max(shown - 1, 0)], [_BAR, ("dim", "…")]][:shown]
        left = max(room - len(asked), 1)
        first = max(min(here - left // 2, len(choices) - left), 0)
        drawn += [*asked, *choices[first : first + left], *foot]
        return [fit(row, width) for row in drawn[:rows]]

    def _choices(self, width: int) -> tuple[list[Fragments], int]:
        """Return the rows of the choices and of the own words, and the place of the current one."""
        found: list[Fragments] = []
        here = 0
        for place, choice in enumerate(self._question.choices):
            here = len(found) if place == self._at else here
            mark = f"[{'x' if place in self._selected else ' '}] " if self._question.several else ""
            words = f"{place + 1}  {mark}{one_line(choice.label, _LONGEST)}"
            found.append(self._row(place, words))
            if choice.description.strip():
                rows = wrapped("dim", one_line(choice.description, _LONGEST), max(width - 7, 1))
                found += [[("ansimagenta", "|      "), *row] for row in rows]
        here = len(found) if self._at == self._own else here
        own = f"w  in your own words: {one_line(self._words, 60)}" if self._words else "w  in your own words …"
        found.append(self._row(self._own, own, bar=False))
        return found, here

    def _row(self, place: int, words: str, *, bar: bool = True) -> Fragments:
        style = "bold ansicyan" if place == self._at else ""
        return [_BAR if bar else ("", "  "), (style, f"{'>' if place == self._at else ' '} {words}")]

    def _foot(self) -> list[Fragments]:
        several = "Space or a digit selects, Enter answers" if self._question.several else "Enter or a digit answers"
        return [[("dim", f"{several}, w: own words, Escape: no answer")]]

    @property
    def _own(self) -> int:
        """Return the place of the row for the user's own words."""
        return len(self._question.choices)

    def key(self, key: str) -> PanelStep[tuple[ModelAnswer, ...] | None]:
        if key not in ("up", "down", "c-p", "c-n") and self._guard.early():
            return Unanswered()
        rows, several = self._own + 1, self._question.several
        match key:
            case "up" | "c-p" | "s-tab":
                self._at = (self._at - 1) % rows
            case "down" | "c-n" | "tab":
                self._at = (self._at + 1) % rows
            case "escape" | "c-d":
                return Done(None)
            case "w":
                return self._write()
            case " " if several and self._at < self._own:
                self._selected ^= {self._at}
            case "enter" if self._at == self._own and not self._words:
                return self._write()
            case "enter" if several:
                return self._answer(tuple(sorted(self._selected)))
            case "enter":
                return self._answer((self._at,))
            case _ if key.isdecimal() and len(key) == 1 and 0 < int(key) <= self._own:
                self._at = int(key) - 1
                if not several:
                    return self._answer((self._at,))
                self._selected ^= {self._at}
        return Unanswered()

    def _write(self) -> Edit:
        return Edit(self._words, "your answer to the model")

    def _answer(self, places: tuple[int, ...]) -> PanelStep[tuple[ModelAnswer, ...] | None]:
        labels = [choice.label for choice in self._question.choices]
        self._answers.append(ModelAnswer(tuple(labels[place] for place in places if place < self._own), self._words))
        if len(self._answers) == len(self._asked.questions):
            return Done(tuple(self._answers))
        self._selected, self._words, self._at = set(), "", 0
        self._guard.hidden()
        return Unanswered()

    def edited(self, text: str | None) -> PanelStep[tuple[ModelAnswer, ...] | None]:
        """Take the user's own words. Where one choice is selected, they are the whole answer."""
        self._guard.hidden()
        if text is None or not text.strip():
            return Unanswered()
        self._words, self._at = text.strip()[:LONGEST_ANSWER], self._own
        return Unanswered() if self._question.several else self._answer(())
