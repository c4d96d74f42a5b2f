"""Whose Git settings govern a folder."""

from policy.facts import Facts, Kind
from policy.secrecy import inside


class Repositories:
    """Looks for Git repositories between a folder and the workspace; remembers what it found."""

    __slots__ = ("_facts", "_known")

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._known: dict[str, str | None] = {}

    def foreign(self, cwd: str) -> str | None:
        """The folder of another Git repository that governs `cwd` (its settings may name programs), or None."""
        if cwd in self._known:
            return self._known[cwd]
        found: str | None = None
        workspace, current = self._facts.workspace, self._facts.look(cwd).real
        if not inside(current, workspace):
            # A folder that is not there is not there in the sandbox either, so nothing can run in it.
            found = current if self._facts.look(current).kind is not Kind.MISSING else None
            self._known[cwd] = found
            return found
        while found is None and current != workspace:
            git = self._facts.look(f"{current}/.git").kind is not Kind.MISSING
            bare = self._facts.look(f"{current}/HEAD").kind is Kind.FILE
            if git or (bare and self._facts.look(f"{current}/objects").kind is Kind.FOLDER):
                found = current
            current = current.rpartition("/")[0] or "/"
        self._known[cwd] = found
        return found
