"""The rows of a card that name its answers: the choices that are remembered, and the keys."""

from runner.approval.approver import ALL_EDITS, TRY, TRY_SHORT
from runner.approval.remembered import where_words
from runner.event_values import Card, TriedCommand
from runner.frontends.tui.rows import Fragments, cells, cut, fit, wrapped
from runner.frontends.tui.theme import Theme

_LEAST_LABEL = 12  # cells of a description that is cut
_ALL_EDITS_SHORT = "yes, and all edits from now on (accept-edits)"


def key_rows(card: Card, others: bool, like: int, width: int, theme: Theme) -> list[Fragments]:
    """Return the keys with their answers, in shorter words if these save a row. A key stays beside its words.

    With `others`, further questions are open, and one approval may answer `like` of them as well.
    """
    refusal = next((pick for pick in card.choices if not pick.yes), None)
    tried = []
    for short in (False, True):
        if card.tried is not None:
            keys = _tried_keys(card, card.tried)
        else:
            keys = ["y yes, once", "n no (Enter answers nothing)" if card.careful else "n/Enter no"]
        keys += [f"d never {where_words(refusal.span, yes=False, short=short)}"] if refusal is not None else []
        keys += [] if card.own else ["f no, say why" if short else "f no, and say why"]
        keys += ["t try"] if card.tries else []
        keys += ["e edit"] if card.editable else []
        keys += ["x explain"]
        keys += ["tab next"] if others else []
        keys += [f"A approve all {like + 1} alike"] if like else []
        keys += ["N no to the rest"] if others else []
        rows: list[str] = []
        for each in keys:
            if rows and cells(rows[-1]) + cells(each) + 3 <= width - 2:
                rows[-1] += f" · {each}"
            else:
                rows.append(each)
        tried.append(rows)
    best = min(tried, key=len)
    return [[("", "  "), *row] for text in best for row in wrapped(theme.strong, text, width - 2)]


def _tried_keys(card: Card, tried: TriedCommand) -> list[str]:
    """Return the keys of the question after a try."""
    count = len(tried.items)
    keys = ["y keep everything" if count else "y use its output"]
    keys += ["c choose"] if count > 1 else []
    keys += ["n discard (Enter answers nothing)" if card.careful else "n/Enter discard"]
    return [*keys, "r run it as usual"] if tried.runs else keys


def choice_rows(card: Card, width: int, theme: Theme) -> tuple[list[Fragments], set[str]]:
    """Return a row for each set of actions that an approval may cover, with a key for each scope.

    Return also the keys whose description did not fit and was cut.
    """
    rows: list[Fragments] = []
    hidden: set[str] = set()
    if card.edits:
        row: Fragments = []
        for words in (ALL_EDITS, _ALL_EDITS_SHORT):
            row = [("", "  "), (theme.strong, "a"), ("", f"  {words}")]
            if fit(row, width) == row:
                break
        else:
            hidden.add("a")
        rows.append(fit(row, width))
    if card.tries:
        row = [("", "  "), (theme.strong, "t"), ("", f"  {TRY}")]
        rows.append(row if fit(row, width) == row else [("", "  "), (theme.strong, "t"), ("", f"  {TRY_SHORT}")])
    picks = [pick for pick in card.choices if pick.yes]
    for words in dict.fromkeys(pick.words for pick in picks):
        same = [(pick.keys[0], pick) for pick in picks if pick.words == words]
        label = same[0][1].label
        for short in (False, True):
            where = [where_words(pick.span, yes=True, short=short) for _, pick in same]
            others = "".join(f" · {key}  {place}" for (key, _), place in zip(same[1:], where[1:], strict=True))
            room = width - cells(f"  {same[0][0]}  , {where[0]}{others}")
            if cells(label) <= room:
                break
        apart: list[Fragments] = [
            [("", "  "), (theme.strong, key), ("", f"  {pick.where}: {label}")] for key, pick in same
        ]
        if cells(label) > room and all(fit(row, width) == row for row in apart):
            rows += apart  # the scope first, because the rows are equal behind it
            continue
        shown = cut(label, max(room, _LEAST_LABEL))
        row = [("", "  "), (theme.strong, same[0][0]), ("", f"  {shown}, {where[0]}")]
        for (key, _), place in zip(same[1:], where[1:], strict=True):
            row += [("", " · "), (theme.strong, key), ("", f"  {place}")]
        if shown != label or fit(row, width) != row:
            hidden.update(key for key, _ in same)
        rows.append(fit(row, width))
    return rows, hidden
