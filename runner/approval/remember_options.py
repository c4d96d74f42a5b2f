"""The answers to a question that can be remembered: their letters, their lines, and the options typed after a
letter.
"""

import re

from policy.grants.grant import GrantScope
from policy.grants.offers import Choice
from policy.model.frozen import dataclass
from policy.model.tier import Ruling
from runner.gate.grants.store import USUAL_LIFE, RememberedAnswer
from runner.text.sanitize import one_line

HELP = (
    "the letter of a line remembers the yes. After it you may say for how long (`7d`, `12h`, `30m`), how often (`3x`), "
    "`user` for all your projects, and `because ...`: `p 7d because of the release`"
)
# The letters of the first, second and third choice in each reach; a capital covers more. Digits are never answers:
# questions are counted with them, so a digit meant for another question could grant something.
_LETTERS = {GrantScope.SESSION: "sSt", GrantScope.PROJECT: "pPT", GrantScope.USER: "uUv"}
_SECONDS = {"m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_LIFE = re.compile(r"([1-9][0-9]{0,3})([mhdw])")
_USES = re.compile(r"([1-9][0-9]{0,5})x")
_MOST_LIFE = 3650 * 86_400.0
_WHERE = {
    GrantScope.SESSION: "in this session",
    GrantScope.PROJECT: f"in this project for {USUAL_LIFE / 86_400:g} days",
    GrantScope.USER: f"in all your projects for {USUAL_LIFE / 86_400:g} days",
}
_FOREVER = {
    GrantScope.SESSION: "in this session",
    GrantScope.PROJECT: "in this project",
    GrantScope.USER: "in any of your projects",
}


def where_words(span: GrantScope, *, yes: bool) -> str:
    """Return the scope of a remembered answer in words, for a yes with its lifetime."""
    return (_WHERE if yes else _FOREVER)[span]


@dataclass(frozen=True, slots=True)
class Offer:
    """The answers to one question that may be remembered.

    Attributes:
        choices: The sets of actions that a yes may cover.
        never: The set of actions that a remembered no covers, or None.
        spans: The scopes of an answer. The letter `d` uses the first of them.
    """

    choices: tuple[Choice, ...]
    never: Choice | None
    spans: tuple[GrantScope, ...]

    @property
    def lettered(self) -> tuple[tuple[str, Choice, GrantScope], ...]:
        """Return each choice in each scope, with its letter."""
        return tuple(
            (_LETTERS[span][place], choice, span)
            for place, choice in enumerate(self.choices[: len(_LETTERS[GrantScope.SESSION])])
            for span in self.spans
        )

    @property
    def keys(self) -> str:
        """Return the keys that the prompt lists, such as `/s/p/S/P/d`."""
        letters = [letter for letter, _, _ in self.lettered] + (["d"] if self.never is not None else [])
        return "".join(f"/{letter}" for letter in letters)

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the choices as they are shown. Each line states what the choice does not cover."""
        found = []
        for letter, choice, span in self.lettered:
            said = choice.words if span is self.spans[0] else "the same"
            found.append(f"{letter}  yes, and later {said}, {_WHERE[span]}")
            if span is self.spans[-1] and choice.not_covered:
                found.append(f"   but not {' or '.join(choice.not_covered)}")
        if self.never is not None:
            found.append(f"d  no, and never {self.never.words}, {_FOREVER[self.spans[0]]}")
        return tuple(found)

    def picked(self, text: str) -> RememberedAnswer | str | None:
        """Return the answer to remember that a line names.

        Return a text if the line is invalid: a number, alone or followed by options, is not an answer, and the question
        is put again. Return None for any other text.
        """
        first, *rest = text.split()
        if first == "d" and self.never is not None:
            return _with_options(RememberedAnswer(self.never.whats, Ruling.DENY, self.spans[0]), rest)
        for letter, choice, span in self.lettered:
            if first == letter:
                return _with_options(RememberedAnswer(choice.whats, Ruling.ALLOW, span), rest)
        if (
            first.isnumeric()
            and _with_options(RememberedAnswer((), Ruling.ALLOW, GrantScope.PROJECT), rest) is not None
        ):
            return (
                f"`{one_line(first, 20)}` is no answer here; answer {', '.join(['y', 'n', *self.keys.split('/')[1:]])}"
            )
        return None


NOTHING = Offer((), None, ())


def _with_options(keep: RememberedAnswer, words: list[str]) -> RememberedAnswer | None:
    """Return `keep` with the options typed after its letter, or None if the words are not options, such as a sentence
    that begins with one letter.
    """
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
            span = GrantScope(word)
        elif lasting and int(lasting[1]) * _SECONDS[lasting[2]] <= _MOST_LIFE:
            life = int(lasting[1]) * _SECONDS[lasting[2]]
        elif often and keep.ruling is Ruling.ALLOW:
            uses = int(often[1])
        else:
            return None
    return RememberedAnswer(keep.whats, keep.ruling, span, life, uses, reason)
