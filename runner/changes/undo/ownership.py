"""Which of the steps of a workspace belong to one session: those of the process at work, and of the runs before it."""

from policy.model.frozen import dataclass
from runner.changes.undo.store import Step, Store
from runner.state.lineage import SessionLineage


@dataclass(frozen=True, slots=True)
class StepOwnership:
    """Of the process `run`, and what was before."""

    run: str
    earlier: SessionLineage = SessionLineage()

    def holds(self, step: Step) -> bool:
        return step.session == self.run or self.earlier.holds(step.session, step.id)


def undoable(store: Store, whose: StepOwnership | None = None) -> tuple[Step, ...]:
    """The actions that changed files and were not taken back, newest first; of everybody, or of `whose` alone."""
    found = (step for step in store.steps() if step.kind == "action" and step.undone is None)
    return tuple(step for step in found if (whose is None or whose.holds(step)) and store.changed(step.id))
