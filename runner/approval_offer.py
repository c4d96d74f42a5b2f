"""How a person picks what is remembered: the numbered lines under a question, and what is typed in answer."""

import re

from policy.grant import Span
from policy.grant_choices import Choice
from policy.matrix import Ruling
from policy.record import dataclass
from runner.grant_store import USUAL_LIFE, Keep

HELP = (
    "a number remembers the yes. After it you may say for how long (`7d`, `12h`, `30m`), how often (`3x`), "
    "`user` for all your projects, and `because ...`: `2 7d because of the release`"
)
_SECONDS = {"m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_LIFE = re.compile(r"([1-9][0-9]{0,3})([mhdw])")
_USES = re.compile(r"([1-9][0-9]{0,5})x")
_MOST_LIFE = 3650 * 86_400.0
_WHERE = {
    Span.SESSION: "in this session",
    Span.PROJECT: f"in this project for {USUAL_LIFE / 86_400:g} days",
    Span.USER: f"in all your projects for {USUAL_LIFE / 86_400:g} days",
}
_FOREVER = {Span.SESSION: "in this session", Span.PROJECT: "in this project", Span.USER: "in any of your projects"}


def where_words(span: Span, *, yes: bool) -> str:
    """How far an answer reaches, and a yes for how long."""
    return (_WHERE if yes else _FOREVER)[span]


@dataclass(frozen=True, slots=True)
class Offer:
    """What may be remembered of one question, and how far: the first of `spans` is what `d` means."""

    choices: tuple[Choice, ...]
    never: Choice | None
    spans: tuple[Span, ...]

    @property
    def numbered(self) -> tuple[tuple[Choice, Span], ...]:
        """What `1`, `2` and so on mean."""
        return tuple((choice, span) for choice in self.choices for span in self.spans)

    @property
    def keys(self) -> str:
        """What may be typed, in the prompt: `/1-4/d`."""
        count = len(self.numbered)
        numbers = f"/1-{count}" if count > 1 else "/1" if count else ""
        return numbers + ("/d" if self.never is not None else "")

    @property
    def lines(self) -> tuple[str, ...]:
        """The choices as they are shown; each says what it does not cover before anybody takes it."""
        found = []
        number = 0
        for choice in self.choices:
            for place, span in enumerate(self.spans):
                number += 1
                said = choice.words if place == 0 else "the same"
                found.append(f"{number}  yes, and later {said}, {_WHERE[span]}")
            if choice.not_covered:
                found.append(f"   but not {' or '.join(choice.not_covered)}")
        if self.never is not None:
            found.append(f"d  no, and never {self.never.words}, {_FOREVER[self.spans[0]]}")
        return tuple(found)

    def picked(self, text: str) -> Keep | str | None:
        """What a line means: what to keep, why it cannot be, or None when it is neither a number nor `d`."""
        first, *rest = text.split()
        numbered = self.numbered
        if first == "d" and self.never is not None:
            return _said(Keep(self.never.whats, Ruling.DENY, self.spans[0]), rest)
        if not (first.isascii() and first.isdigit()) or not numbered:
            return None
        if len(first) > 9 or not 1 <= int(first) <= len(numbered):
            return None if rest else f"there is no {first[:20]}; the numbers are 1 to {len(numbered)}"
        choice, span = numbered[int(first) - 1]
        return _said(Keep(choice.whats, Ruling.ALLOW, span), rest)


NOTHING = Offer((), None, ())


def _said(keep: Keep, words: list[str]) -> Keep | None:
    """With what stands behind a number; None when that is something else, such as a sentence that begins with one."""
    span, life, uses, reason = keep.span, keep.life, keep.uses, ""
    told: set[str] = set()  # of two times, or two folders, nobody can say which was meant
    for place, word in enumerate(words):
        lasting, often = _LIFE.fullmatch(word), _USES.fullmatch(word)
        if word == "because" and words[place + 1 :]:
            reason = " ".join(words[place + 1 :])
            break
        kind = "life" if lasting else "uses" if often else "span"
        if kind in told:
            return None
        told.add(kind)
        if word in ("project", "user"):
            span = Span(word)
        elif lasting and int(lasting[1]) * _SECONDS[lasting[2]] <= _MOST_LIFE:
            life = int(lasting[1]) * _SECONDS[lasting[2]]
        elif often and keep.ruling is Ruling.ALLOW:
            uses = int(often[1])
        else:
            return None
    return Keep(keep.whats, keep.ruling, span, life, uses, reason)
