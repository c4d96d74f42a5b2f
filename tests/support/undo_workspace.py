"""A workspace with undo: each action is judged like one of a model and then done by a real bash without a sandbox.

So actions can be tried that no backend would let through.
"""

import asyncio
import os
import stat
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from policy.classify import classify
from policy.decide import decide
from policy.model.action import Action, RunScript, WriteFile
from policy.model.tier import Mode
from policy.model.verdict import Allow, Permit
from runner.changes.undo.plan import Allowed
from runner.changes.undo.recorder import SnapshotRecorder
from runner.changes.undo.revert import RevertRequest, RevertResult, revert
from runner.changes.undo.scope import choice_of, place, scope_of
from runner.changes.undo.store import Store
from runner.config import Settings, load
from runner.facts.gather import gather
from runner.state.paths import cache_dir, state_dir

Picture = dict[bytes, tuple[object, ...]]
WORK = "python3 -c pass"  # opaque code, so all of the workspace may be written


class UndoWorkspace:
    """A workspace `w`, a home and our folders below `base`. `said`: what the user was told."""

    def __init__(self, base: Path, config: str = "") -> None:
        self.base, self.w = base, base / "w"
        for name in ("w", "home", "config"):
            (base / name).mkdir(exist_ok=True)
        (base / "config" / "config.toml").write_text(config)
        self.environ = {
            "HOME": str(base / "home"),
            "PATH": os.environ["PATH"],
            "RINGFENCE_STATE_DIR": str(base / "state"),
            "RINGFENCE_CACHE_DIR": str(base / "cache"),
            "RINGFENCE_CONFIG_DIR": str(base / "config"),
        }
        self.said: list[str] = []
        self.keeper = self.another()

    @property
    def settings(self) -> Settings:
        return load(self.w, self.environ)

    def another(self) -> SnapshotRecorder:
        """One more session in the same workspace."""
        settings = self.settings
        facts = gather(str(self.w), self.environ, settings.profile)
        self.ground = scope_of(
            facts, settings.profile, choice_of(settings), cache_dir(self.environ), state_dir(self.environ)
        )
        return SnapshotRecorder(place(state_dir(self.environ), facts.workspace), "s", self.ground, self._hear)

    def _hear(self, line: str) -> None:
        if (
            "storing the files here for `agent undo` took " not in line
        ):  # said of a look that took long: the machine's doing
            self.said.append(line)

    def permit(self, action: Action) -> Permit:
        settings = self.settings
        facts = gather(str(self.w), self.environ, settings.profile)
        verdict = decide(
            classify(action, facts, settings.rules, settings.profile),
            *(facts, settings.profile, Mode.TRUST_PROJECT),
            unattended=True,
            environment=(),
        )
        assert isinstance(verdict, Allow), verdict
        return verdict.permit

    def act(self, script: str, keeper: SnapshotRecorder | None = None) -> int | None:
        """A command of a model; answers the step."""
        keeper = keeper or self.keeper
        running = asyncio.run(keeper.before(self.permit(RunScript(WORK, str(self.w))), script, "1.1"))
        self.sh(script)
        return keeper.after(running)

    def write(self, path: str, content: str) -> int | None:
        """Write a file between a `before` and an `after`, as a file tool does, and return the number of the step."""
        running = asyncio.run(self.keeper.before(self.permit(WriteFile(str(self.w / path), content)), path, "1.1"))
        (self.w / path).parent.mkdir(parents=True, exist_ok=True)
        (self.w / path).write_text(content)
        return self.keeper.after(running)

    def sh(self, script: str) -> None:
        environ = {**self.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "LC_ALL": "C.UTF-8"}
        done = subprocess.run(["bash", "-ec", script], cwd=self.w, env=environ, capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr.decode("utf-8", "replace")

    def undo(self, count: int = 1, **wish: object) -> RevertResult:
        allowed = Allowed(bool(wish.pop("force", False)), bool(wish.pop("auto_run", False)))
        store = self.store()
        try:
            return revert(store, self.ground, RevertRequest(count, allowed=allowed, **wish))  # type: ignore[arg-type]  # its fields
        finally:
            store.close()

    def store(self) -> Store:
        return Store(place(state_dir(self.environ), str(self.w)))

    def picture(self) -> "Picture":
        """Everything there: kind, mode, content, and of files the time."""
        return picture(os.fsencode(self.w))


def picture(top: bytes) -> Picture:
    found: Picture = {}

    def look(handle: int, above: bytes) -> None:
        for name in os.listdir(handle):
            raw = os.fsencode(name)
            status = os.stat(raw, dir_fd=handle, follow_symlinks=False)
            path, mode = above + b"/" + raw, stat.S_IMODE(status.st_mode)
            if stat.S_ISDIR(status.st_mode):
                found[path] = ("folder", mode)
                with suppress(PermissionError):
                    inner = os.open(raw, os.O_RDONLY | os.O_DIRECTORY, dir_fd=handle)
                    look(inner, path)
                    os.close(inner)
            elif stat.S_ISLNK(status.st_mode):
                found[path] = ("link", os.readlink(raw, dir_fd=handle))
            elif stat.S_ISREG(status.st_mode):
                inner = os.open(raw, os.O_RDONLY, dir_fd=handle)
                with open(inner, "rb") as file:
                    found[path] = ("file", mode, file.read(), status.st_mtime_ns)
            else:
                found[path] = ("other",)

    handle = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    look(handle, b"")
    os.close(handle)
    return found


def as_nobody(work: Callable[[], None]) -> None:
    """Do `work` as another user, in a process of its own; what fails there fails here."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = b""
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            work()
        except BaseException as error:  # a test's own process: whatever it is, the parent says it
            import traceback

            said = "".join(traceback.format_exception(error)).encode("utf-8", "backslashreplace")
        os.write(writing, said[-60000:])
        os._exit(1 if said else 0)
    os.close(writing)
    with open(reading, "rb") as file:
        said = file.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, said.decode("utf-8", "replace")
