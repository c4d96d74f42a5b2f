"""The output files of a run, written when the run is over."""

import contextlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from runner.audit.chain import AuditError
from runner.audit.log import AuditLog, Place, own_log_place
from runner.engine.run_limits import RunLimits
from runner.events import SessionStarted
from runner.frontends.ci.output_files import Outlets
from runner.frontends.ci.result import Result
from runner.frontends.ci.session_record import SessionRecord
from runner.frontends.ci.summary import Page
from runner.problems import Exit, Stopped


@dataclass(frozen=True, slots=True)
class OutputContent:
    """The content of the output files besides the result.

    Attributes:
        story: The record of the session.
        place: The place of the log, or None if nothing was opened.
        started: The start of the session, or None if there was none.
        workspace: The path of the workspace.
        bounds: The limits of the run.
        mode: The mode.
        model: The model, as `provider:model`.
        notes: Remarks about the patch or the files.
        why: The reason of a run that could not begin.
        patch: The patch, or None if there is none.
    """

    story: SessionRecord
    place: Place | None
    started: SessionStarted | None
    workspace: str
    bounds: RunLimits
    mode: str
    model: str
    notes: tuple[str, ...]
    why: str
    patch: bytes | None

    def seal(self) -> dict[str, object]:
        """Return the seal of the log as it is now. Raise AuditError."""
        from runner.audit.seal import sealed
        from runner.audit.signing import stored_signer

        with AuditLog.open_to_read(self.place or own_log_place(os.environ)) as log:
            return sealed(log.store, stored_signer)

    def sarif(self, result: Result) -> dict[str, object]:
        """Return the denials as SARIF."""
        from runner.audit.export.sarif import document

        exits = {result.session: result.exit} if result.session else {}
        workspace = self.started.workspace if self.started else self.workspace
        return document(self.story.deeds, workspace, exits=exits, fallback=_workflow(os.environ))

    def page(self, result: Result) -> str:
        """Return the summary."""
        sandbox = f"{self.started.enforcement.backend} {self.started.enforcement.level.value}" if self.started else ""
        page = Page(result, self.story, self.bounds, self.mode, self.model, sandbox, self.notes, self.why)
        return page.text()


def write_outputs(result: Result, remains: OutputContent, outlets: Outlets, shown: Callable[[Problem], None]) -> Result:
    """Write every file that was asked for; the result says, and `shown` is told, what could not be written."""

    failed: list[Problem] = []

    def write(option: str, data: Callable[[], bytes]) -> bool:
        outlet = outlets.get(option)
        if outlet is None:
            return False
        try:
            outlet.write(data())
        except (Stopped, AuditError) as error:
            failed.append(error.problem)
            return False
        return True

    patch = outlets.get("--patch")
    done = remains.patch
    if done is not None and patch is not None and write("--patch", lambda: done):
        result = replace(result, patch=patch.path)
    write("--sarif", lambda: f"{json.dumps(remains.sarif(result), indent=1)}\n".encode())
    if result.head is not None:
        write("--seal", lambda: f"{json.dumps(remains.seal(), indent=1)}\n".encode())
    write("--summary", lambda: remains.page(result).encode("utf-8", "backslashreplace"))
    result = _failed(result, failed, shown)
    events = outlets.get("--events")
    if events is not None:
        with contextlib.suppress(OSError):  # its own last line; what it had is there
            events.add(f"{result.line()}\n".encode())
    failed.clear()
    write("--result", lambda: f"{result.line()}\n".encode())
    return _failed(result, failed, shown)


def _failed(result: Result, failed: list[Problem], shown: Callable[[Problem], None]) -> Result:
    """Return the result with the files that could not be written, which are shown: a successful run fails by that."""
    for each in failed:
        shown(each)
    if failed and result.exit in (Exit.DONE, Exit.DENIED):
        return replace(result, exit=int(Exit.FAILED), reason=failed[0].what)
    return result


def _workflow(environ: Mapping[str, str]) -> str | None:
    """Return the file of the job, for a denial that names no file of the workspace; None if it is unknown.

    SOURCE: docs.github.com, "Variables": GITHUB_WORKFLOW_REF is `owner/repository/PATH@REF`.
    """
    path = environ.get("GITHUB_WORKFLOW_REF", "").rpartition("@")[0].split("/", 2)[2:]
    return path[0] if path and path[0].startswith(".github/workflows/") and ".." not in path[0] else None
