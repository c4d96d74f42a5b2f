"""The Git repository whose settings govern a folder. Source: `is_git_directory` in Git's setup.c."""

from policy.model.facts import Facts, Kind
from policy.model.secret_paths import inside


class Repositories:
    """The Git repositories between folders and the workspace, found once for each folder."""

    __slots__ = ("_facts", "_known")

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._known: dict[str, str | None] = {}

    def foreign(self, cwd: str) -> str | None:
        """Return the folder of another Git repository that governs `cwd` (its settings may name programs), or None."""
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
            # A `HEAD` that is a link to nothing is a branch without commits; `commondir` says where `objects` are.
            inside_of_one = self._there(f"{current}/objects") or self._there(f"{current}/commondir")
            if self._there(f"{current}/.git") or (inside_of_one and self._there(f"{current}/HEAD")):
                found = current
            current = current.rpartition("/")[0] or "/"
        self._known[cwd] = found
        return found

    def _there(self, path: str) -> bool:
        """Return True if `path` exists. A dangling link exists. The parent folder's path must hold no links."""
        fact = self._facts.look(path)
        return fact.kind is not Kind.MISSING or fact.real != path
