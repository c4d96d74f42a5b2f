"""Files that other programs run by themselves and that a command made: reported, and moved where nothing runs them.

Those that exist are read-only inside. Those that do not exist yet cannot be masked without leaving artefacts on the
host, so the workspace is looked at before and after (a fixed list of names: a fraction of a millisecond).
"""

import os
import shutil
import tempfile
import time
from pathlib import Path

from policy.verdict import Rights, Terms
from sandbox.backend import Violation
from sandbox.scan import Scan, appearing


class Watch:
    """What there is before a command; `settle` afterwards deals with what has appeared."""

    def __init__(self, terms: Terms, found: Scan, aside: Path | None) -> None:
        self.aside = aside
        self.terms = terms
        self.roots = found.roots if terms.rights is Rights.WORK else ()
        self.before = self._present()

    def settle(self) -> tuple[Violation, ...]:
        """Move every new auto-run file away. One that cannot be moved is reported as still there."""
        return tuple(self._set_aside(path) for path, _ in sorted(self._present() - self.before))

    def _present(self) -> set[tuple[str, str]]:
        """Paths, and where those that are links lead: a link that was turned elsewhere is new."""
        found = {path for root in self.roots for path in appearing(root, self.terms.locked)}
        return {(path, _target(path)) for path in found - set(self.terms.write)}

    def _set_aside(self, path: str) -> Violation:
        what = f"`{path}` appeared: other programs run files of this name by themselves"
        try:
            folder = self.aside or Path(tempfile.mkdtemp(prefix="ringfence-aside-"))
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            place = folder / f"{time.time_ns()}-{os.path.basename(path)}"
            shutil.move(path, place)
        except OSError as error:
            return Violation(f"{what}; it could not be set aside ({error.strerror})", path, "remove it", inferred=False)
        return Violation(
            f"{what}; it was set aside", path, f"look at it in {place}, and copy it back if you want it", False
        )


def _target(path: str) -> str:
    """Where a link leads; empty for what is none. One call: another command may be changing it meanwhile."""
    try:
        return os.readlink(path)
    except OSError:
        return ""
