"""The card of a question: the effect of an approval, the reason for the question, and the possible answers.

Every front end renders the same value: the screen, plain lines, and JSON. All text in a card is safe to print.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby
from operator import itemgetter

from policy.describe.phrases import Around, near
from policy.describe.summary import caveats, summarize
from policy.evaluation import EvaluationContext
from policy.model.action import Action, EditFile, EditNotebook, ProposeNote, RunScript, WriteFile
from policy.model.assessment import Assessment, Check, EffectKind, Reason, RuleKind
from policy.model.facts import Kind
from policy.model.profile import MAIN
from policy.model.tier import MATRIX, Mode, Ruling, Tier
from policy.model.verdict import Allow, Ask
from runner.approval.remembered import NOTHING, Offer, where_words
from runner.event_values import Card, FileChange, Mark, Pick
from runner.gate.wording import action_words, asks_before, card_rights, cell_words, rule_words, terms_words
from runner.text.sanitize import look_alikes, spelled, visible
from sandbox.inside.files.diff import unified_rows

_MOST_PATHS = 50  # paths of one command that are listed; the summary line and the terms cover all of them
_MOST_REASONS = 40  # further reasons that are listed


def card(ask: Ask, offer: Offer = NOTHING, *, around: Around | None = None, before: str | None = None) -> Card:
    """Return the card of a question.

    `around` is the state of the machine at the evaluation, with the existing files; by default the terms of `ask`.
    `before` is the text of the file that would be written, or None if it does not exist or cannot be read.
    """
    assessment, action = ask.assessment, ask.assessment.action
    around = around or ask.terms
    worst = max(assessment.tiers[0], ask.cell.tier)
    command, marks, letters = _command(ask)
    line = safe_line(summarize(assessment, around))
    return Card(
        question=safe_line(ask.question),
        line=line[:1].upper() + line[1:],
        tier=ask.cell.tier,
        tiers=assessment.tiers,
        command=command,
        marks=marks,
        letters=tuple(safe_line(line) for line in letters),
        why=safe_line(ask.reason.text),
        rule=safe_line(str(ask.reason.rule)),
        place=safe_line(rule_words(ask.reason.rule)),
        special=_special(ask, worst),
        cell=cell_words(ask.cell),
        asks=asks_before(ask.cell),
        more=tuple(
            safe_line(f"{each.tier.label}: {each.text} ({rule_words(each.rule)})")
            for each in (*assessment.asked, *assessment.reasons)
            if each is not ask.reason and each.tier is not Tier.READ
        )[:_MOST_REASONS],
        rights=tuple((label, safe_line(words)) for label, words in card_rights(ask.terms, action)),
        terms=tuple((label, safe_line(words)) for label, words in terms_words(ask.terms, action)),
        caveats=tuple(safe_line(each) for each in caveats(assessment, ask.terms)),
        paths=_paths(assessment, around),
        change=_change(action, before, around),
        choices=_picks(offer),
        careful=worst >= Tier.DANGEROUS,
        editable=isinstance(action, RunScript),
    )


def of_agent(shown: Card, agent: str, parent: str | None) -> Card:
    """Return the card with the acting agent. A card for a sub-agent says so among the caveats."""
    if agent == MAIN:
        return shown
    said = safe_line(f"asked by the agent `{agent}`, which `{parent}` started")
    return replace(shown, agent=agent, parent=parent, caveats=(said, *shown.caveats))


def accept_edits_allows(context: EvaluationContext, action: Action) -> bool:
    """Return True if `action` is an edit of a file tool that is a question in mode default and not in accept-edits."""
    if context.mode is not Mode.DEFAULT or not isinstance(action, WriteFile | EditFile):
        return False
    return isinstance(replace(context, mode=Mode.ACCEPT_EDITS).evaluate(action)[1], Allow)


def _special(ask: Ask, worst: Tier) -> bool:
    """Return True if the reason of the question says more than that the mode asks before actions of this tier."""
    rule = ask.reason.rule
    return (
        worst >= Tier.DANGEROUS
        or rule == Check.ADDITIONAL_RIGHT
        or rule.kind not in (RuleKind.BUILTIN, RuleKind.COMMAND)
        or ask.cell.ruling is not Ruling.ASK
    )


def _command(ask: Ask) -> tuple[str, tuple[Mark, ...], tuple[str, ...]]:
    """Return the action as text, the marks of the words that require the question, and its look-alike letters."""
    action: Action = ask.assessment.action
    if not isinstance(action, RunScript):
        said = action_words(action, ask.terms.workspace)
        return safe(said), (), look_alikes(said)
    asked = ask.assessment.asked
    open_ = (each for each in ask.assessment.reasons if MATRIX[each.tier][ask.cell.mode] is not Ruling.ALLOW)
    command, marks = marked(action.script, (*open_, *asked))
    return command, marks, look_alikes(action.script)


def _change(action: Action, before: str | None, around: Around) -> FileChange | None:
    if isinstance(action, ProposeNote):
        return _note_change(action)
    if not isinstance(action, WriteFile | EditFile):
        return None
    look = getattr(around, "look", None)
    new = look is not None and look(action.path).kind is Kind.MISSING
    return change(action, before, near(action.path, around), new=new)


def _paths(assessment: Assessment, around: Around) -> tuple[str, ...]:
    """Return one line for each path that a command changes. Return nothing for a file tool, because the diff shows the
    path.
    """
    if isinstance(assessment.action, WriteFile | EditFile):
        return ()
    found = [
        f"{'changes' if effect.kind is EffectKind.WRITES else 'deletes'} {near(effect.target, around)}"
        + ("" if effect.exact else " and everything below")
        for effect in assessment.effects
        if effect.kind in (EffectKind.WRITES, EffectKind.DELETES) and effect.target.startswith("/")
    ]
    found = list(dict.fromkeys(map(safe_line, found)))
    return (*found[:_MOST_PATHS], f"and {len(found) - _MOST_PATHS} more") if len(found) > _MOST_PATHS else tuple(found)


def _no_separator(text: str) -> str:
    """Return a text that cannot look like two answers: a row of answers separates them by a middle dot.

    THREAT T38: a path such as `x · a  no` would put a false answer beside the true ones.
    """
    return text.replace("·", "<U+00B7>")


def _picks(offer: Offer) -> tuple[Pick, ...]:
    """Return the choices that can be remembered, each with its letter."""
    picks = []
    for letter, choice, span in offer.lettered:
        missed = tuple(map(safe_line, choice.not_covered))
        words, label = safe_line(choice.words), _no_separator(safe_line(choice.label))
        picks.append(Pick((letter,), words, label, span, where_words(span, yes=True), missed, True))
    if offer.never is not None:
        span, words = offer.spans[0], safe_line(offer.never.words)
        picks.append(Pick(("d",), words, _no_separator(words), span, where_words(span, yes=False), (), False))
    return tuple(picks)


_MOST_COMPARED = 4000  # lines of both sides; of longer texts only the new one is shown
_MOST_LINES = 4000  # lines of a diff; of a longer diff the beginning and the end are shown
_END = 200  # lines at the end of a shortened diff
_LONGEST = 2000  # characters of one line


def change(action: WriteFile | EditFile, before: str | None, path: str, *, new: bool) -> FileChange:
    """Return the change that `action` makes to a file.

    `path` is the path as shown. `before` is the text of the file, or None if the file could not be read or is `new`.
    """
    note = "" if new or before is not None else "the present content could not be read"
    if isinstance(action, WriteFile):
        first, second = before or "", action.content
    elif isinstance(action, EditNotebook):
        first, second, note = _notebook_change(action, before, note)
    elif before is not None and action.old and action.old in before:
        first, second = before, before.replace(action.old, action.new, -1 if action.replace_all else 1)
    else:
        first, second = action.old, action.new
        several = ", and there may be several" if action.replace_all else ""
        note = f"the position of the change in the file is not known{several}"
    if before is not None and first == second:
        note = "writes the same content"
    rows, cut = _rows(first, second)
    added = sum(row.startswith("+") for row in rows)
    removed = len(_lines(first)) if cut else sum(row.startswith("-") for row in rows)
    return FileChange(path, new, added, removed, tuple(map(_row, _cut(rows))), "; ".join(filter(None, (note, cut))))


def _notebook_change(action: EditNotebook, before: str | None, note: str) -> tuple[str, str, str]:
    """Return the text of a notebook before and after a change of one cell, and a note if that is not known."""
    if before is None:
        return "", action.new, note
    from sandbox.inside.files.access import Refused
    from sandbox.inside.files.notebook import changed_notebook  # few sessions change notebooks

    try:
        cell = (action.operation, action.cell, action.new, action.cell_type)
        return before, changed_notebook(before, *cell, action.path)[0], note
    except Refused as refused:
        return "", action.new, f"the change cannot be made: {refused.problem['why']}"


def _note_change(action: ProposeNote) -> FileChange:
    """Return the change of a note with every line of both texts, so that the whole new text can be read."""
    first, second = action.before.split("\n"), action.text.split("\n")
    if not action.name:
        rows = [f"+{line}" for line in second]
    else:
        from difflib import SequenceMatcher  # few sessions change notes

        rows = []
        for name, start, end, begin, stop in SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
            if name == "equal":
                rows += [f" {line}" for line in first[start:end]]
            else:
                rows += [f"-{line}" for line in first[start:end]] + [f"+{line}" for line in second[begin:stop]]
    added, removed = (sum(row.startswith(sign) for row in rows) for sign in "+-")
    where = "all projects" if action.everywhere else "this project"
    title = f"note {action.name or '(new)'}, {action.about}, {where}"
    return FileChange(safe_line(title), not action.name, added, removed, tuple(map(_row, rows)), "")


def _rows(old: str, new: str) -> tuple[list[str], str]:
    """Return the rows of the diff, and a note if the texts are too long to compare."""
    first, second = _lines(old), _lines(new)
    if first and len(first) + len(second) > _MOST_COMPARED:
        return [f"+{line}" for line in second], f"too long to compare: all of {len(first)} lines are replaced"
    if not first:
        return [f"+{line}" for line in second], ""
    return unified_rows(first, second), ""


def _lines(text: str) -> list[str]:
    """Split `text` at newlines only. `str.splitlines` also splits at other characters, which would hide the real end of
    a line.
    """
    if not text:
        return []
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else [*lines[:-1], lines[-1] + "⟨no newline at the end⟩"]


def _cut(rows: list[str]) -> list[str]:
    if len(rows) <= _MOST_LINES:
        return rows
    left = len(rows) - _MOST_LINES
    return [*rows[: _MOST_LINES - _END], f"@@ {left} lines are not shown @@", *rows[-_END:]]


def _row(row: str) -> str:
    shown = safe_line(row[:_LONGEST])
    return shown if len(row) <= _LONGEST else f"{shown}⟨{len(row) - _LONGEST} characters more⟩"


_TAB = "    "
_MOST_SPANS = 400  # marked spans of one command; of more, those with the highest tiers are marked
_BLANKS = re.compile(r" {24,}")


def safe(text: str) -> str:
    """Return `text` in a form that is safe to print in a card. Newlines stay."""
    return text if text.isascii() and text.isprintable() else "".join(_display_characters(text))


def safe_line(text: str) -> str:
    """Return `text` in a form that is safe to print, on one line."""
    return "".join(visible(char, lines=False) if char == "\n" else char for char in safe(text))


def marked(script: str, reasons: Iterable[Reason]) -> tuple[str, tuple[Mark, ...]]:
    """Return the script in a safe form, with marks on the words that `reasons` point at. If two marks overlap, the
    higher tier counts.
    """
    spans = sorted((each for each in reasons if each.span is not None), key=lambda each: -each.tier)[:_MOST_SPANS]
    level: list[Tier | None] = [None] * len(script)
    for reason in reversed(spans):
        if reason.span is not None:
            start, end = max(reason.span.start, 0), min(reason.span.end, len(script))
            level[start:end] = [reason.tier] * max(end - start, 0)
    shown = _display_characters(script)
    marks: list[Mark] = []
    place = 0
    for tier, pairs in groupby(zip(shown, level, strict=True), key=itemgetter(1)):
        piece = "".join(char for char, _ in pairs)
        if tier is not None and piece.strip():
            marks.append(Mark(place, place + len(piece), tier, piece))
        place += len(piece)
    return "".join(shown), tuple(marks)


def _display_characters(text: str) -> list[str]:
    """Return the display form of each character, with tabs as blanks."""
    return [_TAB if char == "\t" else shown for char, shown in zip(text, spelled(text), strict=True)]


def squeeze_blanks(text: str) -> str:
    """Replace each run of 24 or more blanks by its length, so that no text is hidden behind the blanks."""
    return _BLANKS.sub(lambda run: f"⟨{len(run[0])} blanks⟩", text)
