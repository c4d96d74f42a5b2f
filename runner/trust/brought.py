"""What a repository brings, weighed: what of it would count, what was said to it before, and what is other since."""

from policy.record import dataclass
from runner.instructions import texts
from runner.trust.inventory import Inventory, differences
from runner.trust.store import Answer
from runner.trust.widening import Widening


@dataclass(frozen=True, slots=True)
class Brought:
    """`answers` are those for this workspace, the latest first. `reads` says whether texts for agents are wanted.

    `never` is what its configuration sets and no repository may; `faulty` the files of it that cannot be used.
    """

    inventory: Inventory
    widenings: tuple[Widening, ...] = ()
    answers: tuple[Answer, ...] = ()
    reads: bool = True
    never: tuple[Widening, ...] = ()
    faulty: tuple[str, ...] = ()

    @property
    def answer(self) -> Answer | None:
        """What was said to this very content."""
        return next((each for each in self.answers if each.sha256 == self.inventory.sha256), None)

    @property
    def counts(self) -> tuple[str, ...]:
        """The files of which something depends on the answer. None of them: there is nothing to ask."""
        widening = {each.path for each in self.widenings}
        told = {each.path for each in texts(self.inventory)} if self.reads else set()
        return tuple(each.path for each in self.inventory.entries if each.path in widening | told)

    @property
    def since(self) -> tuple[Answer, tuple[tuple[str, str], ...]] | None:
        """The latest yes to another content, and what is other now; None when there was none."""
        before = next((each for each in self.answers if each.yes), None)
        if before is None or before is self.answer:
            return None
        return before, differences(before.entries, self.inventory.entries)
