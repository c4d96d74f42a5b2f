"""The runs that a session continues. Their actions belong to the session for /undo and /diff."""

from policy.model.frozen import dataclass


@dataclass(frozen=True, slots=True)
class SessionLineage:
    """The runs of a session, by their names in the audit log.

    Attributes:
        runs: The session's own runs.
        last: The newest step of all runs.
        copied: Runs of the session that this one was copied from, which may continue on its own.
        until: The last step of /undo that counts for the copied runs.
    """

    runs: frozenset[str] = frozenset()
    last: int = 0
    copied: frozenset[str] = frozenset()
    until: int = 0

    def forked(self) -> "SessionLineage":
        """Return the lineage of a copy of the session."""
        return SessionLineage(last=self.last, copied=self.runs | self.copied, until=self.last)

    def holds(self, run: str, step: int) -> bool:
        """Return True if the step of `run` belongs to the session."""
        return run in self.runs or (run in self.copied and step <= self.until)
