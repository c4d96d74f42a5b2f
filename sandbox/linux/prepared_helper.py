"""A whole helper that a worker of the resident process prepares for the Terms of the command that ran before.

Most commands are followed by one with the same Terms: the same workspace, rights, limits and environment. Their helper
can be built, confined and proven while nobody waits for it.

THREAT T312: a helper that was prepared before its command was known must show, grant and carry only what a helper that
is started now would. It is used only if the plan of a new helper would be equal in every value, the scan of the
workspace found the same files, each source of a mount is the same file, and the mount table is the same. Only commands
that change nothing get such a helper: it has no network, no layer and no writable folder of the machine.
"""

import contextlib
import os
import socket
from types import TracebackType

from policy.model.verdict import Rights
from sandbox.linux.helper_process import SpareHelper
from sandbox.linux.launch import TIERS, Launch, LaunchRequest, planned, started
from sandbox.linux.plan_builder import helper_key
from sandbox.linux.session_tmp import Scratch

_MOUNTS = "/proc/self/mountinfo"
_ANSWER = b"ready "  # the beginning of the answer of a helper that is confined and has run its canary


def foreseeable(request: LaunchRequest) -> bool:
    """Return True if a helper for the same Terms may be prepared for the next command."""
    terms = request.terms
    plain = not (terms.writable or terms.hosts or terms.credentials or terms.unix)
    return request.tier == TIERS[0] and request.layer is None and terms.rights is Rights.READ_ONLY and plain


class PreparedHelper:
    """A helper that has its plan and its decoys. It serves one command, and its user ends it."""

    def __init__(self, request: LaunchRequest, spare: SpareHelper) -> None:
        """Send the plan for `request` to the helper of `spare`, and take it. Raises what `launch` raises."""
        self._request, self._key = request, helper_key(request.terms)
        self._scratch = Scratch()
        try:
            found, plan = planned(TIERS[0], request.terms, self._scratch, cache=request.cache, files=False)
            self._plan, self._scan = plan.dump(), found
            # Read before the helper opens the sources: a change after this moment is noticed.
            self._sources, self._table = _identities(self._plan), _mount_table()
            launched = started(TIERS[0], request.terms, self._scratch, found, plan, spare=spare)
        except BaseException:
            self._scratch.remove()
            raise
        self._launch: Launch | None = launched

    def take(self, request: LaunchRequest) -> tuple[Launch, Scratch] | None:
        """Return the launch and the scratch folder, which the caller then ends and removes; None if a helper that is
        started now would differ. Raises SandboxUnavailable if no helper can be built.
        """
        launched = self._launch
        if launched is None or not foreseeable(request) or request.cache != self._request.cache:
            return None
        if helper_key(request.terms) != self._key or not self._scratch.usual:
            return None
        found, plan = planned(TIERS[0], request.terms, self._scratch, cache=request.cache, files=False)
        if found != self._scan or plan.dump() != self._plan or not _has_answered(launched):
            return None
        try:
            if _identities(self._plan) != self._sources or _mount_table() != self._table:
                return None
        except OSError:
            return None  # a source is gone
        self._launch = None
        return launched, self._scratch

    def drop(self) -> None:
        """End the helper and remove its folders, unless it was taken. Calling this again has no effect."""
        launched, self._launch = self._launch, None
        if launched is not None:
            launched.drop()
            self._scratch.remove()


class WorkerSpare(SpareHelper):
    """The helper of a worker, and beside it one that is prepared like that of an earlier command.

    Attributes:
        beside: The prepared helper; None if there is none.
        wanted: The helper that the command needed; None before it was launched.
    """

    def __init__(self, later: contextlib.ExitStack | None = None) -> None:
        super().__init__(later)
        self.beside: PreparedHelper | None = None
        self.wanted: LaunchRequest | None = None
        self._outdated = False

    def renew(self) -> None:
        """Do what SpareHelper does, but only when the prepared helper turns out not to fit."""
        self._outdated = True
        if self.beside is None:
            self._renew_now()

    def _renew_now(self) -> None:
        if self._outdated:
            self._outdated = False
            super().renew()

    def prepared(self, request: LaunchRequest) -> tuple[Launch, Scratch] | None:
        self.wanted = request
        found = self.beside.take(request) if self.beside is not None else None
        if found is None:
            self._renew_now()
        return found

    def drop_prepared(self) -> None:
        """End the helper that was prepared, unless it was taken."""
        if self.beside is not None:
            self.beside.drop()
            self.beside = None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.drop_prepared()
        super().__exit__(kind, error, at)


def _has_answered(launched: Launch) -> bool:
    """Return True if the helper waits for a command, and has said nothing but the results of its canary."""
    if launched.process.poll() is not None:
        return False
    try:
        return launched.control.recv(len(_ANSWER), socket.MSG_PEEK) == _ANSWER
    except OSError:  # BlockingIOError: it is not ready yet
        return False


def _identities(plan: dict[str, object]) -> tuple[tuple[int, int], ...]:
    """Return the device and the number of the source of each mount. The mount keeps the number in use."""
    steps: tuple[tuple[str, str, str], ...] = plan["mounts"]  # type: ignore[assignment]  # values of builtin types
    found = (os.stat(source) for kind, source, _ in steps if kind in ("ro", "rw"))
    return tuple((status.st_dev, status.st_ino) for status in found)


def _mount_table() -> bytes:
    with open(_MOUNTS, "rb", buffering=0) as file:
        return file.readall()
