"""The folder of remote access, and the file in which a running server says where it is."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from policy.model.frozen import dataclass
from runner.state.paths import state_dir

STATUS_FILE = "remote-status.json"


def remote_folder(environ: Mapping[str, str]) -> Path:
    """Return the private folder of the resident process, in which remote access has its files. Raise PlaceError."""
    folder = state_dir(environ) / "resident"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


@dataclass(frozen=True, slots=True)
class RemoteStatus:
    """The state of a running server, for `agent serve --status` and for links.

    Attributes:
        pid: Its process.
        url: The address of the page.
        fingerprint: The SHA-256 fingerprint of its certificate; empty without TLS.
    """

    pid: int
    url: str
    fingerprint: str

    def write(self, folder: Path) -> None:
        """Store the status in `folder`."""
        fresh = folder / f".{STATUS_FILE}.{self.pid}.new"
        fresh.unlink(missing_ok=True)
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(handle, "w", encoding="ascii") as file:
            json.dump({"pid": self.pid, "url": self.url, "fingerprint": self.fingerprint}, file)
        os.rename(fresh, folder / STATUS_FILE)

    @classmethod
    def of(cls, folder: Path) -> "RemoteStatus | None":
        """Return the status of the server that runs, or None if none runs."""
        try:
            found = json.loads((folder / STATUS_FILE).read_text("ascii"))
            pid, url, fingerprint = found["pid"], found["url"], found["fingerprint"]
            # A server that was killed leaves the file behind, and another process may have its number by now.
            words = Path(f"/proc/{int(pid)}/cmdline").read_bytes()
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return cls(pid, str(url), str(fingerprint)) if b"\0serve\0web\0" in words else None
