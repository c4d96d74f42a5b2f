"""The part of a conversation that its model is sent; one view for a session, in `RunContext.view`.

Compaction never changes the history itself. The part that is sent changes only when a level is reached or a server
refuses a request. Otherwise every request begins with the same messages, so that the provider's cache is used.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import is_
from typing import TYPE_CHECKING

from runner.config.compaction_levels import GAINS, KEEPS, CompactionLevel, Thresholds
from runner.engine.compaction.shorten_history import kept_from, shorten, start
from runner.engine.compaction.summarizer import Summarizer, digest
from runner.events import Compacted, Notice
from runner.messages import AssistantMessage, Message, ProviderError, TextBlock, images_in, thoughtless, with_blocks
from runner.providers.catalog import facts_of
from runner.sessions.entries import CompactionRecord

if TYPE_CHECKING:
    from runner.engine.budget import BudgetMeter
    from runner.engine.model_access import ModelAccess

_WHOLE = CompactionRecord()
_LEVELS = tuple(level for level in CompactionLevel if level is not CompactionLevel.ASKED)  # the least loss first
_RETRIED_LATER = (CompactionLevel.TRIM, CompactionLevel.ONE_LINE, CompactionLevel.SUMMARY)
REFUSED = TextBlock("[an image was here; the model's server refused the request with it, so it is left out]")
_ANSWER = 16_384  # tokens of the window that are left for one answer, or a fifth of the window
_LEAST = 1_024  # tokens requested for an answer even if the window seems full: the estimate may be too high
_UNKNOWN = 64_000  # tokens; the window that /compact assumes if the real one is unknown
_CAPS = (24_000, 8_000, 2_500, 800, 250)  # characters of one text, tried in turn
_SHRINKS = (0.6, 0.35, 0.15)  # the fraction of the refused size to shorten to, by attempt
_TOLD = 0.4  # largest number of characters of notes for each token of the window: a tenth of the window
_REST = 0.03  # fraction of the window that must be added before a level without effect is tried again


class ConversationView:
    """The view of one conversation. `fit` shortens the view if needed. Only the event loop's thread uses it."""

    def __init__(
        self,
        thresholds: Thresholds | None = None,
        summarizer: Summarizer | None = None,
        window: Callable[[str], int | None] = lambda spec: None,
    ) -> None:
        """`window` returns the context window that the user configured for a `provider:model`, or None."""
        self._thresholds = thresholds or Thresholds()
        self._summarizer = summarizer or Summarizer()
        self._said = window
        self._made: list[tuple[CompactionRecord, Message]] = []  # the folds, each with the last message before its end
        # The last fold, the messages that it shortened, and the result.
        self._cache: tuple[CompactionRecord, tuple[Message, ...], tuple[Message, ...]] = (_WHOLE, (), ())
        self._rests: dict[CompactionLevel, float] = {}
        self._proven: dict[str, int] = {}  # by model: a number of tokens that its server refused as too long
        self._stated: set[str] = set()  # the models whose server stated that number
        self._refused: dict[str, dict[int, object]] = {}  # by model, then id(): images that its server refused
        self._before: dict[str, dict[int, object]] = {}  # `_refused` at the start of the open request

    def window(self, spec: str) -> int | None:
        """Return the tokens that the model `spec` takes, request and answer together, or None if unknown."""
        known = self._said(spec) or facts_of(spec).window
        proven = self._proven.get(spec)
        return min(known, proven) if known and proven else known or proven

    @property
    def summarizer(self) -> Summarizer:
        """Return the small model for side questions."""
        return self._summarizer

    def raise_windows(self) -> None:
        """Raise context windows learned from refusals by a quarter. Called at the start of a run.

        A window inferred too small would never recover, and one too large costs one refusal. A window that the server
        stated is kept unless the window is known from elsewhere.
        """
        for spec, tokens in self._proven.items():
            if spec not in self._stated or self._said(spec) or facts_of(spec).window:
                self._proven[spec] = tokens + tokens // 4

    def left(self, messages: Sequence[Message], access: "ModelAccess") -> int | None:
        """Return the tokens of the window left for an answer, at least _LEAST, or None if the window is unknown."""
        window = self.window(access.named)
        if window is None:
            return None
        return max(window - self._size(messages, access) - window // 50, _LEAST)

    def _size(self, messages: Sequence[Message], access: "ModelAccess") -> int:
        """Return the number of tokens of the messages that `visible` returns."""
        return access.gauge.size(self.visible(messages)).tokens

    def visible(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Return the messages to send for the whole history `messages`."""
        while self._made and not _fits(*self._made[-1], messages):  # the user rewound to a point before the fold
            self._made.pop()
            self._rests.clear()
        fold = self._fold
        for_fold, source, made = self._cache
        if for_fold is not fold or len(source) > len(messages) or not all(map(is_, source, messages)):
            source = tuple(messages[: fold.end])
            made = shorten(source, fold)
            self._cache = (fold, source, made)
        return (*made, *messages[len(source) :])

    def sent(self, messages: Sequence[Message], spec: str) -> tuple[Message, ...]:
        """Return the messages of `visible` without the images that the server of the model `spec` refused."""
        visible_now, refused = self.visible(messages), self._refused.get(spec)
        if not refused:
            return visible_now

        return tuple(
            with_blocks(each, lambda block: REFUSED if id(block) in refused else block)
            if any(id(image) in refused for image in images_in((each,)))
            else each
            for each in visible_now
        )

    def refuse(self, messages: Sequence[Message], spec: str) -> int:
        """Leave out the images that are not answered yet, or all if there are none; return the number of images.

        Called when the server of the model `spec` refused a request with `sent`.
        """
        refused = self._refused.setdefault(spec, {})
        self._before.setdefault(spec, dict(refused))
        visible_now = self.visible(messages)
        spoke = max((at for at, message in enumerate(visible_now) if isinstance(message, AssistantMessage)), default=-1)
        for first in (spoke + 1, 0):
            images = {id(image): image for image in images_in(visible_now[first:]) if id(image) not in refused}
            if images:
                refused |= images
                return len(images)
        return 0

    def asked(self, *, answered: bool) -> None:
        """End a request. Without an answer the images were not the cause of the refusal, so they are sent again."""
        if not answered:
            self._refused |= self._before
        self._before = {}

    @property
    def _fold(self) -> CompactionRecord:
        return self._made[-1][0] if self._made else _WHOLE

    def restore(self, folds: Sequence[tuple[int, CompactionRecord]], messages: Sequence[Message]) -> None:
        """Restore the folds of an earlier run, each with the place in `messages` that its numbers count back from."""
        for at, fold in folds:
            self._set(messages, fold.turned(at))

    def rewound(self, messages: Sequence[Message], access: "ModelAccess") -> None:
        """Adapt to a conversation that the user rewound to the end of `messages`.

        The entries about notes made since then are on an abandoned branch of the session file. Notes about earlier
        messages still hold, so they are written again.
        """
        size = self._size(messages, access)  # forgets the folds beyond the end of `messages`
        if self._made:
            access.journal.compaction("rewound", size, size, self._fold.turned(len(messages)))

    async def fit(
        self, messages: Sequence[Message], access: "ModelAccess", spent: "BudgetMeter | None" = None
    ) -> tuple[Message, ...]:
        """Shorten the view if the context window requires it, and return it. `spent` counts the cost of notes."""
        room = self._room(access)
        if room is None:
            return self.visible(messages)
        used = self._size(messages, access)
        for level in _LEVELS:
            if not self._thresholds.reached(level, used / room) or used < self._rests.get(level, 0):
                continue
            if (done := await self._reach(level, messages, access, spent, room)) is not None:
                used = done.after
        return self.visible(messages)

    async def shrink(
        self,
        messages: Sequence[Message],
        access: "ModelAccess",
        spent: "BudgetMeter | None" = None,
        attempt: int = 1,
        said: int | None = None,
    ) -> tuple[Message, ...]:
        """Shorten the view after the server refused it as too long, further with each `attempt` (from 1).

        The context window of the model is known to be smaller from then on. `said` is the window stated by the server,
        or None. If the conversation fits into `said`, only the space for the answer was too large: the first attempt
        then shortens the view only as far as `fit` requires.
        """
        had = self._size(messages, access)
        spec = access.named
        if (
            said is not None
            and attempt == 1
            and had + _LEAST <= said - said // 50
            and said < (self.window(spec) or said + 1)
        ):
            self._proven[spec] = said
            self._stated.add(spec)
            return await self.fit(messages, access, spent)
        self._proven[spec] = min(self._proven.get(spec, had), had)
        self._stated.discard(spec)
        room = had * _SHRINKS[min(attempt, len(_SHRINKS)) - 1]
        if attempt == 1:
            await self._reach(CompactionLevel.SUMMARY, messages, access, spent, room)
        if self._size(messages, access) > room:
            await self._reach(CompactionLevel.TRUNCATE, messages, access, spent, room)
        return self.visible(messages)

    async def compact(
        self, messages: Sequence[Message], access: "ModelAccess", focus: str = "", spent: "BudgetMeter | None" = None
    ) -> Compacted | None:
        """Replace old messages by notes because the user wants that; `focus` names what the notes are to keep.

        Return None if no message can be shortened. Raise ProviderError. Must not be called while a run is in progress.
        """
        room = self._room(access) or _UNKNOWN
        return await self._reach(CompactionLevel.ASKED, messages, access, spent, room, access.redactor.text(focus))

    def _room(self, access: "ModelAccess") -> float | None:
        window = self.window(access.named)
        if not window:
            return None
        return min(window - min(_ANSWER, window / 5), facts_of(access.named).request or window)

    async def _reach(
        self,
        level: CompactionLevel,
        messages: Sequence[Message],
        access: "ModelAccess",
        spent: "BudgetMeter | None",
        room: float,
        focus: str = "",
    ) -> Compacted | None:
        """Apply `level` if that gains enough, and return its event, else None."""
        before, told = self._size(messages, access), False
        most = before - max(room * GAINS.get(level, 0), 1)
        fold = replace(self._fold, space=min(self._fold.space, max(int(room * _TOLD), 400)))
        kept = max(kept_from(messages, room * KEEPS[level] / access.gauge.rate), fold.cut)
        match level:
            case CompactionLevel.TRIM:
                fold = replace(fold, trimmed=max(kept, fold.trimmed))
            case CompactionLevel.ONE_LINE:
                fold = replace(fold, lined=max(kept, fold.lined), trimmed=max(kept, fold.trimmed))
            case CompactionLevel.TRUNCATE:
                fold = self._truncated(fold, messages, access, room, kept)
            case _:
                fold = replace(fold, cut=kept)
                notes = None
                if self._gains(fold, messages, access, most):
                    told = await _ask_hooks("PreCompact", level, focus, access)
                    notes = await self._notes(level, messages[self._fold.cut : kept], focus, access, spent)
                # Without notes the earlier fold stays, which gains nothing.
                fold = self._fold if notes is None else replace(fold, notes=notes)
        if not self._gains(fold, messages, access, most):
            if level in _RETRIED_LATER:  # but not with every request
                self._rests[level] = before + room * _REST
            return None
        if not told:
            await _ask_hooks("PreCompact", level, focus, access)
        self._set(messages, fold)
        if spent is not None:
            spent.shortened()
        self._rests.clear()
        after = self._size(messages, access)
        event = Compacted(level.value, before, after, fold.notes if fold.cut else None)
        access.journal.compaction(level.value, before, after, fold.turned(len(messages)))
        access.emit(event)
        cost = spent.money if spent is not None else None
        access.emit(access.gauge.used(self.visible(messages), self.window(access.named), cost))
        await _ask_hooks("PostCompact", level, focus, access)
        return event

    def _gains(self, fold: CompactionRecord, messages: Sequence[Message], access: "ModelAccess", most: float) -> bool:
        """Return True if `fold` leaves at most `most` tokens, which makes it worth sending the whole view anew."""
        if replace(fold, space=self._fold.space) == self._fold:
            return False
        return access.gauge.size(shorten(messages, fold)).tokens <= most

    async def _notes(
        self,
        level: CompactionLevel,
        old: Sequence[Message],
        focus: str,
        access: "ModelAccess",
        spent: "BudgetMeter | None",
    ) -> str | None:
        """Return notes about `old` and the notes before.

        If no model can write notes, return None for the level SUMMARY, and notes made without a model for other levels.
        Raise ProviderError for the level ASKED only.
        """
        why = "the budget is too small for a summary"
        try:
            notes = await self._summarizer.notes(old, self._fold.notes, focus, access, spent, self.window)
        except ProviderError as error:
            if level is CompactionLevel.ASKED:
                raise
            notes, why = None, str(error.problem)
        if notes is not None:
            return notes
        access.emit(Notice(f"the conversation cannot be summarized: {why}"))
        return None if level is CompactionLevel.SUMMARY else digest(old, self._fold.notes)

    def _truncated(
        self, fold: CompactionRecord, messages: Sequence[Message], access: "ModelAccess", room: float, kept: int
    ) -> CompactionRecord:
        """Return a fold that fits into three fifths of `room` if possible: first fewer old messages, then shorter text,
        then only the last group of messages.
        """
        target = room * 0.6
        end = len(messages)
        if kept > fold.cut:
            notes = digest(messages[fold.cut : kept], fold.notes)
            fold = replace(fold, cut=kept, notes=notes)
        for cap in _CAPS:
            if access.gauge.size(shorten(messages, fold)).tokens <= target:
                break
            fold = replace(fold, capped=end, cap=cap, space=min(fold.space, cap * 2))
        if access.gauge.size(shorten(messages, fold)).tokens > target and (last := start(messages, end - 1)) > fold.cut:
            notes = digest(messages[fold.cut : last], fold.notes)
            fold = replace(fold, cut=last, notes=notes)
        return fold

    def _set(self, messages: Sequence[Message], fold: CompactionRecord) -> None:
        if fold.end > len(messages) or not fold.end:
            return  # the session file was edited
        self._made.append((fold, messages[fold.end - 1]))


def _fits(fold: CompactionRecord, last: Message, messages: Sequence[Message]) -> bool:
    """Return True if `last`, the last message before the end of `fold`, is still there, apart from its thoughts."""
    return fold.end <= len(messages) and thoughtless(messages[fold.end - 1]) == thoughtless(last)


async def _ask_hooks(event: str, level: CompactionLevel, focus: str, access: "ModelAccess") -> bool:
    """Run the hooks of a compaction, and return True. Their answers have no effect: the window is full."""
    if access.hooks is not None and access.hooks.wants(event):
        trigger = "manual" if level is CompactionLevel.ASKED else "auto"
        await access.hooks.ask(event, trigger, {"trigger": trigger, "custom_instructions": focus})
    return True
