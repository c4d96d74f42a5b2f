"""The runs that a session goes on from: whose actions are its own when files go back, or a diff is shown."""

from policy.model.frozen import dataclass


@dataclass(frozen=True, slots=True)
class SessionLineage:
    """By their names in the audit log. Those that are `copied` were of another session, which may go on by itself: they
    count up to the step `until` of /undo. `last`: the newest step of all."""

    runs: frozenset[str] = frozenset()
    last: int = 0
    copied: frozenset[str] = frozenset()
    until: int = 0

    def forked(self) -> "SessionLineage":
        """The same for a copy of that session."""
        return SessionLineage(last=self.last, copied=self.runs | self.copied, until=self.last)

    def holds(self, run: str, step: int) -> bool:
        """Whether that step of `run` is one of the session's."""
        return run in self.runs or (run in self.copied and step <= self.until)
