"""The forecast of the next command: the helper that the last one needed, and the state of its caller.

A worker that has run a command sends its forecast to the resident process, which gives it to the workers that it starts
then. They prepare such a helper beside the usual one (T312). The resident process keeps one forecast, as bytes that it
does not read, and drops it after a minute: it contains the variables of a command.
"""

import contextlib
import os
import pickle
import signal
import tempfile
import time

from policy.model.frozen import dataclass
from runner.audit.log import FILE
from runner.audit.stores.sqlite import close_ahead, open_ahead
from runner.resident.peer import PeerState, give_state
from runner.state.paths import PlaceError, state_dir
from sandbox.backend import SandboxUnavailable
from sandbox.linux.helper_process import SpareHelper
from sandbox.linux.launch import LaunchRequest
from sandbox.linux.prepared_helper import PreparedHelper, WorkerSpare, foreseeable

KEPT = 60.0  # seconds for which a prepared helper waits, after the command that it was foreseen from
MOST = 1 << 17  # bytes of a forecast; a longer one is not sent
_PASSED = (1 << signal.SIGPIPE - 1) | (1 << signal.SIGXFSZ - 1)  # ignored by every Python, and not by commands
# The signals of the C library itself (nptl(7)): only these stay ignored in a command. make(1) ignores them.
_LIBRARY = sum(1 << number - 1 for number in range(1, 65) if number not in signal.valid_signals())


@dataclass(frozen=True, slots=True)
class Forecast:
    """A helper that the next command may need, the state of the process that it has to inherit, and the folder for the
    temporary files of its caller.
    """

    request: LaunchRequest
    state: PeerState
    temporary: str


@dataclass(frozen=True, slots=True)
class ReceivedForecast:
    """A forecast as bytes, and the time at which a helper that was prepared from it has to end (time.monotonic)."""

    data: bytes
    until: float

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.until


def encoded(spare: WorkerSpare, state: PeerState) -> bytes | None:
    """Return the forecast after a command that was run with `spare`; None if no helper may be prepared like its own."""
    request = spare.wanted
    if request is None or not foreseeable(request) or state.blocked or state.ignored & ~(_PASSED | _LIBRARY):
        return None
    data = pickle.dumps(Forecast(request, state, tempfile.gettempdir()))
    return data if len(data) <= MOST else None


def prepare(spare: WorkerSpare, data: bytes) -> Forecast | None:
    """Prepare a helper beside `spare`, and return the forecast. Return None if it cannot be prepared.

    The log of this user is opened as well: every process that finds this socket has the same state folder.
    """
    forecast: Forecast = pickle.loads(data)  # noqa: S301  # from a worker of this process
    tempfile.tempdir = forecast.temporary
    try:
        ignored = [number for number in range(1, 65) if forecast.state.ignored & _LIBRARY & 1 << number - 1]
        with SpareHelper(ignored=ignored) as own:
            pids, _ = own.processes()
            for pid in pids:
                give_state(pid, forecast.state)
            spare.beside = PreparedHelper(forecast.request, own)
    except (OSError, SandboxUnavailable):
        return None  # the next command says what is wrong, if it is still so
    with contextlib.suppress(PlaceError):
        open_ahead(state_dir(os.environ) / FILE)
    return forecast


def forget(spare: WorkerSpare) -> None:
    """End what `prepare` has prepared and nobody needed."""
    spare.drop_prepared()
    close_ahead()
