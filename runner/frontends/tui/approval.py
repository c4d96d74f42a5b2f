"""The questions of a turn on the screen, in place of the input: one card at a time, and the keys that answer it.

THREAT: a key that was meant for another input must not approve. Answers are ignored until the card has been on the
screen for a moment without a key press, and approvals until the end of each part of the card was on the screen. Enter
never approves, and a key that is held down answers at most one card. Ctrl+C, which approves nothing, is never ignored.
"""

import time
from collections.abc import Callable, Sequence

from policy.model.action import RunScript
from policy.model.tier import Mode
from runner.approval.approver import (
    ALL_EDITS,
    KEEP_HELP,
    Answer,
    Edited,
    Halt,
    Kept,
    Later,
    No,
    Question,
    Reanswered,
    Try,
    Yes,
    alike,
    kept_items,
)
from runner.event_values import Pick
from runner.frontends.tui.approval_answers import choice_rows, key_rows
from runner.frontends.tui.approval_rows import Content, content, counts, detail_rows, pick_words
from runner.frontends.tui.panel import CAREFUL, GUARD, Done, Edit, Guard, Panel, PanelStep, Unanswered
from runner.frontends.tui.rows import Fragments, fit, wrapped
from runner.frontends.tui.theme import DARK, Theme
from runner.gate.explain import caret_lines, effect_words
from runner.text.sanitize import one_line, visible

_LISTED = 4  # other questions named below a card
_ENDS = {"line": "the summary", "command": "the command", "change": "the change", "tried": "the changes",
         "paths": "the list of paths", "rights": "the rights"}  # fmt: skip
_READ_FIRST = "not approved yet: read"
_LEAST = 3  # minimum number of scrolling rows of the card
_LEAST_SUMMARY = 8  # minimum number of cells beside the badge


class ApprovalPanel(Panel[tuple[Answer, ...]]):
    """A Panel whose value is the answer to each of `questions`, in their order. `clock` returns monotonic seconds."""

    alone = True

    def __init__(
        self, questions: Sequence[Question], *, theme: Theme = DARK, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._questions = tuple(questions)
        self._theme = theme
        self._guard = Guard(clock)
        self._answers: dict[int, Answer] = {}
        self._at = 0
        self._top = 0
        self._page = _LEAST
        self._seen: dict[int, set[str]] = {}  # for each question, the ends that were on the screen
        self._drawn: dict[tuple[int, int], Content] = {}
        self._width = 0
        self._view = ""  # "" (the card), "x" (its explanation), or the key of a choice that is shown in full
        self._editing = ""
        self._hint = ""
        self._edits: dict[int, str] = {}  # commands of the user in place of the proposed ones
        self._cut: set[str] = set()  # keys of choices whose words did not fit on their row

    # ---- drawing

    def lines(self, width: int, rows: int) -> list[Fragments]:
        """Return the card, in at most `rows` rows. Drawn rows count as seen."""
        width = max(width - 1, 4)  # a row that reaches the edge is wrapped when the window gets narrower
        self._width = width
        self._guard.drawn()
        top = self._head(width)
        foot = self._foot(width)
        if len(top) + len(foot) + _LEAST > rows:
            foot = self._foot(width, low=True)
        room = max(rows - len(top) - len(foot), _LEAST)
        while foot and len(top) + len(foot) + room > rows:
            foot = foot[1:]  # the keys are in the last rows
            self._cut_all()
        room = max(min(room, rows - len(top) - len(foot)), 1)
        body = self._body(width)
        self._page = room
        self._top = max(min(self._top, len(body.rows) - room), 0)
        visible_rows = list(body.rows[self._top : self._top + room])
        below = len(body.rows) - self._top - room
        counted = below > 0 and room > 2  # the count replaces the last row
        if not self._view:
            seen = self._seen.setdefault(self._at, set())
            seen.update(name for name, end in body.ends if self._top <= end < self._top + room - counted)
        if counted:
            visible_rows[-1] = [(self._theme.warn, f"  ⋮ {below + 1} more rows: space, arrows or end")]
        return [fit(row, width) for row in (*top, *visible_rows, *foot)][:rows]

    def _head(self, width: int) -> list[Fragments]:
        return self._summary(width)[0]

    def _summary(self, width: int) -> tuple[list[Fragments], tuple[Fragments, ...]]:
        """Return the rows above the scrolling rows, with the badge and the summary line, and the rest of a long summary
        line, which belongs below the command.
        """
        card = self._question.card
        badge = f" {card.tier.label} "
        count = f" {self._at + 1} of {len(self._questions)} " if len(self._questions) > 1 else ""
        lines = counts(card.change) if card.change is not None else ""
        room = width - len(badge) - len(count) - len(lines) - 1
        rows = wrapped(self._theme.strong, card.line, max(room, _LEAST_SUMMARY))
        rest = rows[2:]
        if room < _LEAST_SUMMARY:  # the rows may be cut at the edge
            rest = wrapped(self._theme.strong, card.line, width - 4)
        first = [(self._theme.badge(card.tier), badge), (self._theme.dim, count), ("", " "), *rows[0]]
        first += [(self._theme.dim, lines)] if lines else []
        if self._view == "x" and len(rows) > 1:
            return [fit([*first, ("", " …")], width)], ()
        if rest:
            rows = [rows[0], fit([*(rows[1] if len(rows) > 1 else []), ("", " …")], width - 2)]
        return [first, *([("", "  "), *row] for row in rows[1:])], tuple(rest)

    def _body(self, width: int) -> Content:
        if self._view == "x":
            return Content(detail_rows(self._question.card, self._reasons(), width, self._theme))
        if self._view:
            pick = self._pick(self._view)
            text = pick_words(pick) if pick is not None else ALL_EDITS
            return Content(tuple([("", "  "), *row] for row in wrapped(self._theme.strong, text, width - 2)))
        if (self._at, width) not in self._drawn:
            if any(drawn != width for _, drawn in self._drawn):
                self._drawn.clear()
            question = self._question
            self._drawn[self._at, width] = content(
                question.card,
                question.again,
                width,
                self._theme,
                rest=self._summary(width)[1],
                script=isinstance(question.ask.assessment.action, RunScript),
            )
        return self._drawn[self._at, width]

    def _reasons(self) -> tuple[str, ...]:
        assessment = self._question.ask.assessment
        lines = [line for reason in assessment.reasons for line in caret_lines(assessment.action, reason, brief=True)]
        lines += [effect_words(each) for each in assessment.effects]
        return tuple(visible(line) for line in (*lines, *assessment.tree.split("\n")))

    def _foot(self, width: int, *, low: bool = False) -> list[Fragments]:
        """Return the rows of the possible answers. With `low`, a small screen, the remembered answers share one row."""
        if self._view == "x":
            hint: list[Fragments] = [[(self._theme.warn, f"  {self._hint}")]] if self._hint else []
            return [[(self._theme.dim, "  x or escape: back to the question, where the answers count")], *hint]
        if self._view:
            return [[(self._theme.warn, f"  {self._view} again: yes, exactly that · escape: back")]]
        card = self._question.card
        rows = [fit(self._row(place), width) for place in self._open_others[:_LISTED]]
        if (more := len(self._open_others) - _LISTED) > 0:
            rows.append([(self._theme.dim, f"  and {more} more questions")])
        self._cut = set()
        picks = [pick for pick in card.choices if pick.yes]
        if low and (picks or card.edits):
            self._cut_all()
            named = " ".join([*(["a"] if card.edits else []), *("/".join(pick.keys) for pick in picks)])
            words = "yes, and remember it: each is shown first"
            rows.append(fit([("", "  "), (self._theme.strong, named), ("", f" {words}")], width))
        else:
            choices, self._cut = choice_rows(card, width, self._theme)
            rows += choices
        rows += key_rows(card, bool(self._open_others), len(self._like), width, self._theme)
        if self._hint:
            rows.append([(self._theme.warn, f"  {self._hint}")])
        return rows

    def _cut_all(self) -> None:
        """Mark every answer that can be remembered as cut. A cut answer is shown in full before it counts."""
        self._cut.update(key for pick in self._question.card.choices if pick.yes for key in pick.keys)
        self._cut.update("a" if self._question.card.edits else "")

    def _row(self, place: int) -> Fragments:
        card = self._questions[place].card
        return [
            (self._theme.dim, "  then "),
            (self._theme.badge(card.tier), f" {card.tier.label} "),
            ("", f" {one_line(card.command, 500)}"),
        ]

    # ---- keys

    def key(self, key: str) -> PanelStep[tuple[Answer, ...]]:
        """Handle a key. Ctrl+C stops the turn at once.

        Any other answer counts only if the card was visible for a moment in which no key was pressed.
        """
        if key == "c-c":
            return Done(tuple(Halt() for _ in self._questions))
        if self._scrolled(key):
            return Unanswered()
        if self._guard.early(CAREFUL if self._question.card.careful else GUARD):
            self._hint = "this key was ignored: it was pressed while the question appeared"
            return Unanswered()
        self._hint = ""
        if not self._view:
            return self._answered(key)
        pick = self._pick(self._view)
        if pick is not None and key in pick.keys:
            return self._take(pick)
        if self._view == "a" and key in ("a", "s-tab"):
            return self._accept_edits()
        if key in ("escape", "x", "n", "enter", "q"):
            self._look("")
        elif self._view == "x":
            self._hint = "nothing is answered here: go back to the question first, with x or escape"
        return Unanswered()

    def _scrolled(self, key: str) -> bool:
        far = 1 << 30
        steps = {"up": -1, "down": 1, "pageup": -self._page, "pagedown": self._page, "home": -far, "end": far}
        if key not in steps and key != " ":
            return False
        if key == " ":  # may also be part of a sentence that is being typed
            self._guard.pressed()
        self._top = max(self._top + steps.get(key, self._page), 0)
        if self._hint.startswith(_READ_FIRST):  # the next approval looks for an unseen end again
            self._hint = ""
        return True

    def _answered(self, key: str) -> PanelStep[tuple[Answer, ...]]:
        question = self._question
        tried = question.card.tried
        match key:
            case "y" if tried is not None:
                return self._agreed(Kept(frozenset(range(1, len(tried.items) + 1))))
            case "r" if tried is not None and tried.runs:
                return self._agreed(Yes())
            case "c" if tried is not None and len(tried.items) > 1:
                self._editing = "c"
                return Edit("", f"the changes to keep: {KEEP_HELP}")
            case "t" if question.card.tries:
                return self._agreed(Try())
            case "y":
                return self._agreed(Yes())
            case "n" | "escape":
                return self._set(No())
            case "enter" if not question.card.careful:
                return self._set(No())
            case "enter":
                self._hint = "Enter is not an answer here: y approves, n refuses"
            case "f" if not question.card.own:
                self._editing = "f"
                return Edit("", "refuse, and tell the model why or what to do instead")
            case "e" if question.card.editable:
                self._editing = "e"
                return Edit(_editable_text(question), "edit the command; it is evaluated again")
            case "x":
                self._look("x")
            case "a" | "s-tab" if question.card.edits:
                if "a" in self._cut:
                    self._look("a")
                    return Unanswered()
                return self._accept_edits()
            case "s-tab":
                self._hint = "Shift+Tab is an answer only to a question about an edit in the workspace"
            case "tab" | "right" | "left":
                self._turn(-1 if key == "left" else 1)
            case "A" if self._like:
                if self._unseen(self._at):
                    return self._agreed(Yes())
                like = self._like
                if (unseen := next((place for place in like if not self._is_seen(place)), None)) is not None:
                    self._at = unseen
                    self._look("")
                    self._hint = "not approved yet: A also approves this one; read it, then press A again"
                    return Unanswered()
                for place in (self._at, *like):
                    self._answers[place] = self._final(place, Yes())
                return self._next()
            case "N" if self._open_others:
                for place in (self._at, *self._open_others):
                    self._answers[place] = self._final(place, No())
                return self._next()
            case _:
                if (pick := self._pick(key)) is not None:
                    if any(each in self._cut for each in pick.keys):
                        self._look(key)
                        return Unanswered()
                    return self._take(pick)
                if key in ("s", "p"):
                    self._hint = f"{key} is not possible: this answer cannot be remembered; y approves once"
                elif key == "a":
                    self._hint = "a is an answer only to a question about an edit in the workspace; y approves once"
                elif key.isnumeric():
                    self._hint = "a digit is not an answer; use the letters"
        return Unanswered()

    def _take(self, pick: Pick) -> PanelStep[tuple[Answer, ...]]:
        offered = self._question.offer.picked(pick.keys[0])
        if offered is None or isinstance(offered, str):
            return Unanswered()
        return self._agreed(Yes(offered)) if pick.yes else self._set(No(keep=offered))

    def _accept_edits(self) -> PanelStep[tuple[Answer, ...]]:
        """Approve the question with a change of the mode. Other edits of the list are evaluated in the new mode."""
        if not self._unseen(self._at):
            for place in self._open_others:
                if self._questions[place].card.edits:
                    self._answers[place] = Later()
        return self._agreed(Yes(mode=Mode.ACCEPT_EDITS))

    def _agreed(self, answer: Yes | Try | Kept) -> PanelStep[tuple[Answer, ...]]:
        """Accept an approval or a try if the ends of all parts of the card were on the screen; else scroll there."""
        if self._unseen(self._at):
            self._look("")
            body = self._drawn.get((self._at, self._width), Content(()))
            seen = self._seen.get(self._at, set())
            name, row = next(((name, row) for name, row in body.ends if name not in seen), ("it", 0))
            self._top = min(row, max(row - self._page + 3, 0))  # the hint takes a row, and so does the count
            self._hint = f"{_READ_FIRST} the end of {_ENDS.get(name, name)} first; it is shown now"
            return Unanswered()
        return self._set(answer)

    def _unseen(self, place: int) -> bool:
        """Return True if an end of the card, drawn at the current width, was not on the screen yet."""
        body = self._drawn.get((place, self._width))
        return body is None or any(name not in self._seen.get(place, set()) for name, _ in body.ends)

    @property
    def _like(self) -> list[int]:
        """Return the places of the other questions that the same approval may answer.

        Each of them has the same rights as the current card, and is shown completely by its row or is a change of a
        file, whose card must have been read before the approval counts.
        """
        own, terms = self._question.card, self._question.ask.terms
        return [
            place
            for at, place in enumerate(self._open_others)
            if alike(own, self._questions[place].card)
            and self._questions[place].ask.terms == terms
            and (self._questions[place].card.change is not None or (at < _LISTED and self._is_complete(place)))
        ]

    def _is_seen(self, place: int) -> bool:
        """Return True if a question was shown completely, by its row or by its card at the current width."""
        return self._questions[place].card.change is None or not self._unseen(place)

    def _is_complete(self, place: int) -> bool:
        """Return True if a row shows a question completely: the whole command, and the card has no further content."""
        other, row = self._questions[place], self._row(place)
        card = other.card
        plain = len(card.paths) < 2 and not card.letters and not other.again
        return plain and len(card.command) < 500 and fit(row, self._width) == row

    def _set(self, answer: Answer) -> PanelStep[tuple[Answer, ...]]:
        self._answers[self._at] = self._final(self._at, answer)
        return self._next()

    def _final(self, place: int, answer: Answer) -> Answer:
        """Return the answer to the question that was asked: with the edited command, if the user edited it."""
        script = self._edits.get(place)
        if script is None:
            return answer
        return Edited(script, Reanswered(self._questions[place], answer) if isinstance(answer, Yes | No) else None)

    def _next(self) -> PanelStep[tuple[Answer, ...]]:
        if len(self._answers) == len(self._questions):
            return Done(tuple(self._answers[place] for place in range(len(self._questions))))
        self._turn(1)
        return Unanswered()

    def _turn(self, step: int) -> None:
        """Show the next card without an answer, in the direction of `step`."""
        count = len(self._questions)
        order = ((self._at + step * away) % count for away in range(1, count + 1))
        self._at = next((place for place in order if place not in self._answers), self._at)
        self._look("")
        self._hint = ""

    def _look(self, view: str) -> None:
        self._view, self._top = view, 0
        self._guard.hidden()

    def edited(self, text: str | None) -> PanelStep[tuple[Answer, ...]]:
        """Use the text that the user wrote: the reason of a refusal, or another command; None if the user cancelled."""
        kind, self._editing = self._editing, ""
        self._guard.hidden()
        if text is None:
            return Unanswered()
        if kind == "f":
            return self._set(No(text.strip() or None))
        if kind == "c":
            return self._chose(text.strip())
        if kind != "e" or not text.strip() or text == _editable_text(self._question):
            self._hint = "the command is unchanged"
            return Unanswered()
        about = self._question.edited(text) if self._question.edited is not None else None
        if about is None:
            return self._set(Edited(text))
        self._edits[self._at] = text
        self._questions = (*self._questions[: self._at], about, *self._questions[self._at + 1 :])
        self._forget(self._at)
        return Unanswered()

    def _chose(self, text: str) -> PanelStep[tuple[Answer, ...]]:
        """Keep the changes that the user named after a try."""
        tried = self._question.card.tried
        answer = kept_items(text.lower(), tried) if tried is not None and text else None
        if isinstance(answer, Kept):
            return self._agreed(answer)
        if answer is not None:
            return self._set(answer)
        self._hint = f"`{one_line(text, 20)}` chooses nothing: {KEEP_HELP}" if text else "nothing was chosen"
        return Unanswered()

    def _forget(self, place: int) -> None:
        """Forget what was on the screen of a question, because another question took its place."""
        self._seen.pop(place, None)
        self._drawn.clear()
        self._look("")
        self._hint = ""

    @property
    def _question(self) -> Question:
        return self._questions[self._at]

    @property
    def _open_others(self) -> list[int]:
        return [place for place in range(len(self._questions)) if place != self._at and place not in self._answers]

    def _pick(self, key: str) -> Pick | None:
        return next((pick for pick in self._question.card.choices if key in pick.keys), None)


def _editable_text(question: Question) -> str:
    """Return the script with its tabs if the card shows all other characters unchanged, else the text of the card.

    THREAT: the editor does not spell out bidirectional and invisible characters, so it does not get a script with them.
    """
    action, shown = question.ask.assessment.action, question.card.command
    if isinstance(action, RunScript) and action.script.replace("\t", "    ") == shown:
        return action.script
    return shown
