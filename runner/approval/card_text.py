"""The card of a question as lines on a plain terminal, with the keys that answer it."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from runner.approval.approver import ALL_EDITS, TRY
from runner.event_values import Card, TriedCommand
from runner.text.sanitize import one_line, visible

if TYPE_CHECKING:
    from rich.console import Console

SHOWN_LINES = 40  # lines of a diff shown before the question; the answer `x` shows the whole diff
_SHORT = 12  # screen rows; after a longer command the question is printed again, because it may have scrolled away
EDIT_PROMPT = "new command (empty: unchanged): "
REASON_PROMPT = "what to do instead, or why not: "


class AnswerKeys:
    """The keys that answer one question.

    Attributes:
        words: The line that explains the keys.
        prompt: The prompt with the letters.
    """

    def __init__(self, card: Card, remembering: Sequence[str], *, reasons: bool, like: int = 0, rest: int = 0) -> None:
        """`remembering` are the letters of answers that can be remembered. `reasons` is True if other text is a refusal
        with a reason. `like` and `rest` are the numbers of later questions that are alike, and of all later questions.
        """
        tried = card.tried
        self.tried = tried is not None
        if tried is not None:
            keys = [("y", "keep everything" if tried.items else "use its output")]
            keys += [("1,3-5", "keep these")] if len(tried.items) > 1 else []
            keys += [("n/Enter", "discard")]
            keys += [("f", "discard, and say why")] if reasons else []
            keys += [("r", "run it as usual, with the rights below")] if tried.runs else []
        else:
            keys = [("y", "yes, once"), ("n/Enter", "no")]
            keys += [("f", "no, and say why")] if reasons else []
            keys += [("t", "try it")] if card.tries else []
        keys += [("e", "edit")] if card.editable else []
        keys += [("x", "explain")]
        keys += [("A", f"approve all {like + 1} alike")] if like else []
        keys += [("N", "no to the rest")] if rest else []
        self.words = " · ".join(" ".join(each) for each in keys)
        letters = ["y", "N", *(["a"] if card.edits else []), *remembering]
        letters += [key for key, _ in keys if key in ("f", "t", "r", "e", "x", "A")]
        question = "keep these changes?" if tried is not None else "allow once?"
        self.prompt = f"{question} [{'/'.join(letters)}]{' or say what to do instead' if reasons else ''}: "
        self._listed = ", ".join(["y", "n", *letters[2:], *(["N"] if rest else [])])

    def mistake(self, text: str) -> str:
        """Return the sentence about a typed text that is not an answer."""
        return f"`{one_line(text, 20)}` is not an answer here; answer {self._listed}"


def tried_lines(tried: TriedCommand) -> list[str]:
    """Return what a tried command did: its output, the difference, and the list of what can be kept."""
    several = tried.commands if len(tried.commands) > 1 else ()
    return [
        *(f"command {number}: {words}" for number, words in enumerate(several, 1)),
        *(f"| {line}" for line in tried.output),
        *tried.diff,
        *tried.notes,
        *(f"{number:>4}  {words}" for number, words in enumerate(tried.items, 1)),
    ]


class CardPrinter:
    """The printer of cards on one console."""

    def __init__(self, console: "Console") -> None:
        self._console = console

    def show(
        self,
        card: Card,
        answers: Sequence[str],
        *,
        script: bool,
        name: Callable[[], str],
        again: str = "",
        number: str = "",
        whole: bool = False,
    ) -> None:
        """Print the question with its rights and answers. The whole command is shown, because a hidden end must not be
        approved.

        `answers` are the lines about answers that can be remembered. `script` is True for a script, and `name` returns
        the action in a few words. `again` is the reason why the question is asked once more. With `whole`, a long
        change is shown as the answer `x` shows it.
        """
        if again:
            self.print(again, style="italic")
        self.print(f"{number}{card.line}", style="bold", badge=card.tier.label)
        self.print(
            card.command,
            indent=2,
            marks=tuple((mark.start, mark.end) for mark in card.marks),
            lead="$ " if script else "",
        )
        for line in tried_lines(card.tried) if card.tried is not None else ():
            self.print(line, indent=2)
        for line in self._changes(card, len(card.change.diff) if whole and card.change is not None else SHOWN_LINES):
            self.print(line, indent=2)
        self.print(f"why      {card.why if card.special else card.asks}", indent=2)
        for label, words in (*card.rights, *(("but", caveat) for caveat in card.caveats)):
            self.print(f"{label:<8} {words}", indent=2)
        for line in card.letters:
            self.print(f"letters  {line}", indent=2)
        more = [*([f"a  {ALL_EDITS}"] if card.edits else []), *([f"t  {TRY}"] if card.tries else [])]
        for line in (*more, *answers):
            self.print(line, indent=2)
        rows = sum(1 + len(line) // self._console.width for line in card.command.split("\n"))
        if rows > _SHORT:  # the question may have scrolled off the screen
            # THREAT T38: empty lines or comments may have pushed the beginning of the command off the screen as well.
            self.print(f"again    {name()}: {card.line}", indent=2)

    def _changes(self, card: Card, most: int) -> list[str]:
        found = list(card.paths) if len(card.paths) > 1 else []
        if card.change is not None:
            lines, note = card.change.diff, card.change.note
            found += [note] if note else []
            found += lines if len(lines) <= most else [*lines[: most - 5], f"… {len(lines) - most} lines", *lines[-5:]]
        return found

    def print(
        self,
        text: str,
        *,
        indent: int = 0,
        style: str = "",
        badge: str = "",
        marks: tuple[tuple[int, int], ...] = (),
        lead: str = "",
    ) -> None:
        from rich.padding import Padding
        from rich.text import Text

        line = Text(overflow="fold")
        if badge:
            line.append(f" {badge} ", style="black on yellow").append("  ")
        body = Text(visible(text), style=style)
        for start, end in marks:
            body.stylize("bold red", start, end)
        line.append(lead).append_text(body)
        self._console.print(Padding(line, (0, 0, 0, indent), expand=False), markup=False, highlight=False)
