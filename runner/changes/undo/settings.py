"""Construction of the snapshot recorder from settings and the folders of this machine."""

from collections.abc import Mapping
from pathlib import Path

from policy.model.facts import Facts
from policy.model.profile import Profile
from runner.changes.undo.recorder import SnapshotRecorder
from runner.changes.undo.scope import Choice, SnapshotScope
from runner.changes.undo.snapshot import Bounds
from runner.config import Settings
from runner.events import Emit, Notice
from runner.state.lineage import SessionLineage
from runner.state.paths import cache_dir, state_dir
from runner.state.workspace import workspace_key


def place(state: Path, workspace: str) -> Path:
    """Return the folder for the snapshots of a workspace."""
    return state / "snapshots" / workspace_key(workspace)


def choice_of(settings: Settings) -> Choice:
    """Return the `[undo]` settings of all layers."""

    def number(name: str, usual: int) -> int:
        found = settings.value("undo", name)
        return found if isinstance(found, int) else usual

    usual = Bounds()
    more = settings.value("undo", "leave_out")
    return Choice(
        enabled=settings.value("undo", "enabled") is not False,
        required=settings.value("undo", "required") is True,
        bounds=Bounds(number("steps", usual.steps), number("size", usual.bytes), number("file", usual.file)),
        most=number("files", Choice().most),
        more=frozenset(str(name) for name in more) if isinstance(more, tuple) else frozenset(),
    )


def snapshot_recorder(
    facts: Facts,
    settings: Settings,
    environ: Mapping[str, str],
    session: str,
    emit: Emit,
    earlier: SessionLineage | None = None,
) -> SnapshotRecorder:
    """Return the recorder for one session in the workspace of `facts`. No folder is created before the first action
    that may write.
    """
    folder = place(state_dir(environ), facts.workspace)
    cache = cache_dir(environ)
    scope = scope_of(facts, settings.profile, choice_of(settings), cache, state_dir(environ))
    return SnapshotRecorder(folder, session, scope, lambda text: emit(Notice(text)), earlier)


def scope_of(facts: Facts, profile: Profile, choice: Choice, cache: Path, state: Path) -> SnapshotScope:
    return SnapshotScope(facts, profile, choice, cache, state / "aside")
