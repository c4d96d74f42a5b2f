"""The pattern of the one command that a grant is about, or of an effect that belongs to no command."""

import re

from policy.model.assessment import Step
from policy.model.facts import Facts
from policy.model.frozen import dataclass

HOLE = "*"  # as a word: any one word that is no flag
# THREAT T76: what hangs on a flag may be code (`--eval=..`, `-e..`), another program or another place (`-C/`).
_SWITCH = re.compile(r"[-+]{1,2}[A-Za-z0-9][A-Za-z0-9_-]*(?:=[0-9]+)?|--", re.ASCII)


@dataclass(frozen=True, slots=True)
class CommandPattern:
    """A pattern that matches one command.

    Attributes:
        words: the program and its arguments, each a literal text or a HOLE; empty for effects of the shell itself
            between the commands.
        flags: True if further flags may follow. A further flag may have a number as its value, and no other value.
        folder: the current folder, relative to the workspace.
        program: the real path of the program that the first word starts; empty if there was none.
    """

    words: tuple[str, ...] = ()
    flags: bool = False
    folder: str = ""
    program: str = ""

    def fits(self, step: Step, facts: Facts) -> bool:
        """Return True if `step` is that command: every word certain, started as directly, and from the same folder."""
        if step.text or step.set_up:
            return False
        if not self.words:
            return not step.words
        words = step.literal
        here = f"{facts.workspace.rstrip('/')}/{self.folder}" if self.folder else facts.workspace
        if words is None or step.cwds != (here,) or not self._meets(words):
            return False
        return program_of(words[0], here, facts) == self.program

    def _meets(self, words: tuple[str, ...]) -> bool:
        count = len(self.words)
        if len(words) < count or (len(words) > count and not self.flags):
            return False
        for word, wanted in zip(words, self.words, strict=False):
            if word != wanted and (wanted != HOLE or not word or word[0] in "-+"):
                return False
        return all(_SWITCH.fullmatch(word) for word in words[count:])


def program_of(name: str, folder: str, facts: Facts) -> str:
    """Return the real path of the program that `name` starts in `folder`, or an empty text if there is none."""
    if "/" in name:
        return facts.look(name if name.startswith("/") else f"{folder.rstrip('/')}/{name}").real
    found = facts.which(name) if name else None
    return facts.look(found).real if found else ""
