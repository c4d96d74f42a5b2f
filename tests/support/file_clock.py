"""The clock of a file system, which ticks some hundred times a second."""

import tempfile
from pathlib import Path

from tests.support.waiting import until


def next_tick(folder: Path) -> None:
    """Wait until a change of a file has a later time than every change before this call. `folder` is of that file system."""
    with tempfile.NamedTemporaryFile(dir=folder) as probe:
        path = Path(probe.name)
        before = path.stat().st_ctime_ns

        def ticked() -> bool:
            path.chmod(0o600)
            return path.stat().st_ctime_ns > before

        until(ticked)
