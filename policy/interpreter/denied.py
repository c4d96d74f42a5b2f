"""The denied list: argv patterns that never run, in any mode."""

from collections.abc import Sequence

from policy.model.abstract_word import AbstractWord, SourceSpan, literal
from policy.model.assessment import Reason, RuleKind, RuleRef
from policy.model.profile import Profile
from policy.model.tier import Tier

_UNTOLD = AbstractWord()  # one word, known only when it runs


def denied_reason(words: Sequence[str | None], profile: Profile, span: SourceSpan | None = None) -> Reason | None:
    """Return the reason if one simple command is on the denied list. Call it for every command of a script.

    `words` are decoded; None stands for a word that only the moment of running decides. The words meet as those of a
    `[[rule]]` that denies (`command_pattern.broad`); a last `*` is any rest. When in doubt it matches.
    """
    if not profile.denied or not words or words[0] is None:
        return None
    from policy.model.command_pattern import broad  # only if a pattern is denied

    senses = [literal(word) if word is not None else _UNTOLD for word in words]
    for pattern in profile.denied:
        wanted = pattern[:-1] if len(pattern) > 1 and pattern[-1] == "*" else pattern
        if broad(senses, tuple((word,) for word in wanted)):
            shown = " ".join(pattern)
            return Reason(
                Tier.DENIED, f"`{shown}` is on the denied list", RuleRef(RuleKind.USER, "[deny] commands"), span
            )
    return None
