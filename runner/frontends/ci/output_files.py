"""The output files of a run in a pipeline, written after the run. Only `--events` is written during the run."""

import contextlib
import json
import os
from collections.abc import Callable
from dataclasses import replace

from policy.model.verdict import Problem
from runner.audit.chain import AuditError
from runner.audit.log import AuditLog, own_log_place
from runner.frontends.ci.result import CiResult, OutputContent
from runner.frontends.ci.summary import Page
from runner.frontends.output_file import Outlets
from runner.problems import Exit, Stopped
from runner.text.json_line import json_line


def write_outputs(
    result: CiResult, content: OutputContent, outlets: Outlets, shown: Callable[[Problem], None]
) -> CiResult:
    """Write every requested file. Call `shown` with the Problem of each failure, and return the updated result."""

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
    done = content.patch
    if done is not None and patch is not None and write("--patch", lambda: done):
        result = replace(result, patch=patch.path)
    write("--sarif", lambda: f"{json.dumps(_sarif(result, content), indent=1)}\n".encode())
    if result.head is not None:
        write("--seal", lambda: f"{json_line(_seal(content))}\n".encode())
    write("--summary", lambda: Page(result, content).text().encode("utf-8", "backslashreplace"))
    result = _failed(result, failed, shown)
    events = outlets.get("--events")
    if events is not None:
        with contextlib.suppress(OSError):  # earlier events are in the file already
            events.add(f"{result.line()}\n".encode())
    failed.clear()
    write("--result", lambda: f"{result.line()}\n".encode())
    return _failed(result, failed, shown)


def _failed(result: CiResult, failed: list[Problem], shown: Callable[[Problem], None]) -> CiResult:
    """Show the files that could not be written, and return the result, as failed if the run was successful so far."""
    for each in failed:
        shown(each)
    if failed and result.exit in (Exit.DONE, Exit.DENIED):
        return replace(result, exit=int(Exit.FAILED), reason=failed[0].what)
    return result


def _seal(content: OutputContent) -> dict[str, object]:
    """Return the seal of the log as it is now. Raise AuditError if the log cannot be read."""
    from runner.audit.seal import create_seal
    from runner.audit.signing import stored_signer

    with AuditLog.open_to_read(content.place or own_log_place(os.environ)) as log:
        return create_seal(log.store, stored_signer)


def _sarif(result: CiResult, content: OutputContent) -> dict[str, object]:
    """Return the denials as SARIF."""
    from runner.audit.export.sarif import document

    exits = {result.session: result.exit} if result.session else {}
    workspace = content.started.workspace if content.started else content.workspace
    # The file of the job, for a denial that names no file of the workspace; None if it is unknown.
    # SOURCE: docs.github.com, "Variables": GITHUB_WORKFLOW_REF is `owner/repository/PATH@REF`.
    path = "/".join(os.environ.get("GITHUB_WORKFLOW_REF", "").rpartition("@")[0].split("/")[2:])
    job = path if path.startswith(".github/workflows/") and ".." not in path else None
    return document(content.story.deeds, workspace, exits=exits, fallback=job)
