"""The steps of a workspace that belong to one session: those of the current process and of the runs before it."""

from policy.model.frozen import dataclass
from runner.changes.undo.store import Step, Store
from runner.state.lineage import SessionLineage


@dataclass(frozen=True, slots=True)
class StepOwnership:
    """The steps of the process `run` and of the runs in `earlier`."""

    run: str
    earlier: SessionLineage = SessionLineage()

    def holds(self, step: Step) -> bool:
        return step.session == self.run or self.earlier.holds(step.session, step.id)


def undoable(store: Store, whose: StepOwnership | None = None) -> tuple[Step, ...]:
    """Return the actions that changed files and were not undone, newest first: all of them, or those of `whose`."""
    found = (step for step in store.steps() if step.kind == "action" and step.undone is None)
    return tuple(step for step in found if (whose is None or whose.holds(step)) and store.changed(step.id))
