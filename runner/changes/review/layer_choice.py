"""The choice of a user among the changes in the layer of a command: what is shown, and what an answer keeps."""

from collections import Counter
from collections.abc import Sequence

from policy.model.frozen import dataclass
from runner.changes.transaction.judge import HeldEntry, Judged
from runner.text.phrases import many
from runner.text.sanitize import visible
from sandbox.workspace.layer import LayerChange, LayerKind


@dataclass(frozen=True, slots=True)
class ChoiceItem:
    """One change that the user can keep: a file, a link, a deletion, or a new folder with everything in it.

    Attributes:
        change: The change.
        inside: The number of entries in a new folder.
    """

    change: LayerChange
    inside: int = 0

    @property
    def words(self) -> str:
        """Return the item for a list, safe to print on a terminal."""
        name = visible(self.change.path, lines=False)
        match self.change.kind:
            case None:
                return f"delete   {name}"
            case LayerKind.FOLDER if self.change.whole:
                return f"create   {name}/ ({many(self.inside, 'entry')})"
            case LayerKind.FOLDER:
                return f"mode     {name}/"
            case LayerKind.LINK:
                return f"link     {name} -> {visible(self.change.target, lines=False)}"
            case _:
                return f"write    {name}"


def choice_items(applied: Sequence[LayerChange]) -> tuple[ChoiceItem, ...]:
    """Return what the user can choose."""
    inside = Counter[str]()
    for change in applied:
        if change.within:
            inside.update(change.path[:at] for at, sign in enumerate(change.path) if sign == "/")
    return tuple(ChoiceItem(each, inside[each.path]) for each in applied if not each.within)


def kept(items: Sequence[ChoiceItem], judged: Judged, numbers: frozenset[int]) -> Judged:
    """Return the chosen changes. A held entry in a chosen new folder stays held; the others are removed."""
    paths = {items[number - 1].change.path for number in numbers}

    def below(path: str) -> bool:
        return any(path[:at] in paths for at, sign in enumerate(path) if sign == "/")

    applied = tuple(each for each in judged.applied if each.path in paths or (each.within and below(each.path)))
    every = len(numbers) == len(items)
    held = tuple(each for each in judged.held if every or below(each.change.path))
    return Judged(applied, held, judged.deleted if every else 0)


def held_line(held: HeldEntry) -> str:
    """Return a line about a change that is held back, safe to print on a terminal."""
    return f"held back: {visible(held.change.path, lines=False)}: {visible(held.why, lines=False)}"
