"""Answers to the question that ends plan mode."""

from policy.model.frozen import dataclass
from policy.model.tier import Mode

# The modes that may follow plan mode. `dangerously` is not offered here: a user who wants it types /mode.
WAYS = (Mode.DEFAULT, Mode.ACCEPT_EDITS, Mode.TRUST_PROJECT)
# The key that takes each of them: ask, edits, trust. Digits take nothing, and `d` is a no at other questions.
LETTERS = dict(zip("aet", WAYS, strict=True))
QUESTION = "begin? " + ", ".join(f"{letter} {mode.value}" for letter, mode in LETTERS.items())


@dataclass(frozen=True, slots=True)
class Leave:
    """The answer yes: the model works on the plan in `mode`."""

    mode: Mode


@dataclass(frozen=True, slots=True)
class Stay:
    """The answer no. `feedback`, the user's own words, is sent to the model."""

    feedback: str | None = None


PlanAnswer = Leave | Stay


def answered(text: str) -> PlanAnswer | None:
    """Parse a typed answer to the question that ends plan mode.

    The letter or the name of one of WAYS is a yes. An empty line, `n` and `no` are a no without a reason. Other words
    are a no with these words as its reason. Return None for a number and for a yes that names no mode.
    """
    said = text.strip()
    names = [mode.value for mode in WAYS]
    if said in ("", "n", "no"):
        return Stay()
    if said.lower() in ("y", "yes"):
        return None
    if said in LETTERS:
        return Leave(LETTERS[said])
    if said.isnumeric():
        return None
    return Leave(Mode(said)) if said in names else Stay(said)
