"""The launch of a helper from Terms: all steps that need no event loop and do not wait for the helper.

`agent exec` launches the helper before it loads the rest of the program, and passes the result to the backend.
"""

import contextlib
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from policy.describe.phrases import plain
from policy.model.frozen import dataclass, replace
from policy.model.secret_paths import inside
from policy.model.verdict import Rights, Terms
from sandbox.backend import ChangeLayer, SandboxUnavailable
from sandbox.inside import syscalls
from sandbox.inside.plan import Plan
from sandbox.inside.safe_rmtree import closing
from sandbox.linux import etc_files, plan_builder, seccomp
from sandbox.linux.canary_probe import Decoys, canary_request, make_decoys
from sandbox.linux.cgroup import ControlGroup
from sandbox.linux.helper_process import SpareHelper, code, end, send, spawn
from sandbox.linux.session_tmp import FOLDER, Scratch, make_point
from sandbox.workspace import tool_cache
from sandbox.workspace.folder_cache import FolderTrees
from sandbox.workspace.protected_paths import Scan, scan
from sandbox.workspace.secret_files import plain_names

if TYPE_CHECKING:
    from sandbox.linux.helper_layers import HelperLayers

TIERS = ("T1", "T2", "T3")  # the tiers that this module can launch, best first


@dataclass(frozen=True, slots=True)
class Launch:
    """A helper that has received its plan and its decoys, and has not answered yet. The caller ends the helper and
    removes the decoys.
    """

    process: subprocess.Popen[bytes]
    control: socket.socket
    group: ControlGroup
    scan: Scan
    decoys: Decoys
    layers: "HelperLayers | None" = None

    def drop(self) -> None:
        """End the helper and remove its decoys."""
        end(self.process, self.control, self.group)
        self.decoys.remove()
        if self.layers is not None:
            self.layers.close()


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """The helper that a command needs: its tier, Terms and cache folder, and the folders of its overlay or None."""

    tier: str
    terms: Terms
    cache: Path
    layer: ChangeLayer | None = None


def launch(
    tier: str,
    terms: Terms,
    scratch: Scratch,
    *,
    cache: Path | None,
    files: bool,
    spare: SpareHelper | None = None,
    network: tuple[int, ...] = (),
    port: int = 0,
    layers: "HelperLayers | None" = None,
) -> Launch:
    """Start a helper (or take `spare`), send it the plan for `terms` and the decoys of its canary, and return it.

    `scratch` is the session's own /tmp. `files`: True if file actions will be requested. `network`: the descriptors of
    the network namespace that the helper enters (`join_network.join`); empty for a new one. `port`: the port of the
    proxy's listener there; 0 for the usual one. `layers`: those of the helper, of T1 only; None for commands that
    change the workspace itself. Raises SandboxUnavailable if the boundary cannot be built exactly, and
    OSError as `spawn` does.
    """
    if tier == "T3":
        terms = in_scratch(terms, scratch.path)
    protected, compiled = planned(
        tier, terms, scratch, cache=cache, files=files, joined=bool(network), port=port, layers=layers
    )
    return replace(started(tier, terms, scratch, protected, compiled, spare=spare, network=network), layers=layers)


def planned(
    tier: str,
    terms: Terms,
    scratch: Scratch,
    *,
    cache: Path | None,
    files: bool,
    joined: bool = False,
    port: int = 0,
    layers: "HelperLayers | None" = None,
) -> tuple[Scan, Plan]:
    """Scan the workspace, and return the scan and the plan of a helper for `terms`. No process is started.

    The parameters and exceptions are those of `launch`. `joined`: True if the helper enters the network of another one.
    """
    plan_builder.refuse_impossible(terms, Scan(), plan_builder.kind)  # first, so that `/` is never scanned
    try:
        protected = survey(terms, scratch.path, cache, layered=layers is not None)
    except OSError as error:
        # Another process replaced files by links during the scan.
        raise SandboxUnavailable.of(
            "the workspace cannot be examined",
            f"`{plain(os.fsdecode(error.filename or '?'))}` changed during the scan ({(error.strerror or '').lower()})",
            "stop the program that changes it, and try again; nothing was run",
        ) from None
    rights = Rights.READ_ONLY if tier == "T3" else terms.rights  # without a network namespace: no sockets at all
    if terms.hosts and tier != "T3":
        rights = Rights.WORKSPACE_WRITE  # for the seccomp filter only: sockets on a separate loopback
    unix = terms.unix and terms.rights is Rights.WORKSPACE_WRITE and tier != "T3"
    trace = terms.rights is Rights.WORKSPACE_WRITE and tier != "T3"  # T3 has no PID namespace
    programs = seccomp.programs(rights, unix=unix, trace=trace, cache=cache, noexec=tier == "T1")
    if terms.cache and terms.rights is Rights.WORKSPACE_WRITE:
        tool_cache.ready(terms.cache, terms.workspace)
    if not (abi := syscalls.landlock_abi()):
        what = f"the {tier} sandbox cannot be built here"
        why = "the kernel has no Landlock, or Landlock was switched off at boot"
        fix = "run `agent doctor` for the cause and the fix; nothing was run"
        raise SandboxUnavailable.of(what, why, fix, check="landlock")
    own: tuple[plan_builder.MountStep, ...] = etc_files.added(cache, (*terms.system, *terms.read, *terms.writable))
    if tier == "T2":
        from sandbox.linux import interpreter_paths  # for T2 only, because `agent exec` must start fast

        # The helper starts inside, so it needs further paths there.
        own += interpreter_paths.steps((*terms.system, terms.workspace, *terms.read, *terms.writable))
    compiled = plan_builder.compile_plan(
        terms,
        _with_system_sockets(protected, terms) if unix else protected,
        programs,
        tier=tier,
        abi=abi,
        warm=files,
        scratch=scratch.path,
        instead=etc_files.files(cache, terms.home),
        own=own,
        joined=joined,
        port=port,
        layers=tuple(layers.layers) if layers is not None else (),
    )
    if layers is not None:
        layers.remember(target for _, _, target in compiled.mounts)
    make_points(scratch, terms, compiled.mounts)
    return protected, compiled


def started(
    tier: str,
    terms: Terms,
    scratch: Scratch,
    protected: Scan,
    compiled: Plan,
    *,
    spare: SpareHelper | None = None,
    network: tuple[int, ...] = (),
) -> Launch:
    """Start a helper (or take `spare`) for a plan of `planned`, and return it as `launch` does."""
    waiting = None
    if tier == "T2":
        from sandbox.linux import bwrap

        waiting = bwrap.Waiting(compiled, scratch, network)
    early = spare.root if spare is not None else None
    usable = early is None or (tier == "T1" and not network)  # else it has namespaces that this tier must not have
    taken = waiting.helper if waiting else spare.take() if spare is not None and usable else None
    process, control, group = taken or spawn()
    try:
        compiled.prepared = early is not None and taken is not None and early.fits(compiled)
        plan_builder.leave_to_group(compiled, group.limit(terms.limits.memory, terms.limits.pids, terms.limits.cpu))
        if waiting:
            waiting.go()  # after bubblewrap was moved into the group, so that its children are in the group too
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the helper ended: `ready` returns the reason
            send(control, compiled.dump(), list(network) if tier == "T1" else [])
        decoys = make_decoys(terms)  # while the helper confines itself
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            send(control, canary_request(terms, decoys), [])
    except BaseException:
        end(process, control, group)
        if waiting:
            waiting.drop()
        raise
    return Launch(process, control, group, protected, decoys)


def survey(terms: Terms, scratch: str, cache: Path | None = None, *, layered: bool = False) -> Scan:
    """Scan the workspace and the granted folders of `terms`, and return the files to mask, make read-only or pin.

    The content of the session's `scratch` folder belongs to commands and is not scanned. `layered`: True for a command
    on a layer, which changes no other name of a file (overlayfs copies the file first).
    """
    global _latest
    if terms.rights is Rights.ISOLATED:
        return Scan()  # only files of this program and of the system are visible
    began = time.monotonic()
    trees = known_trees(cache)
    work = terms.rights is Rights.WORKSPACE_WRITE
    # Hard links of a file to other places matter only if the file itself may be written.
    count = work and not layered
    protected = scan(terms.workspace, terms.hidden, terms.shown, terms.locked, trees, count=count)
    names = plain_names(terms.hidden)
    for path in (*terms.read, *terms.write) if terms.unix else ():
        if os.path.exists(path) and stat.S_ISSOCK(os.stat(path).st_mode):
            why = "it is a socket, and no command may reach the programs of the machine"
            raise SandboxUnavailable.of(f"`{path}` cannot be given to a sandbox", why, "name files and folders only")
    for folder in terms.read:
        if os.path.isdir(folder) and folder != scratch:
            protected = protected.with_masked(scan(folder, names, terms.shown, (), trees))
    for folder in terms.write:
        if os.path.isdir(folder) and folder != scratch:
            protected = protected.with_guarded(scan(folder, names, terms.shown, terms.locked, trees))
    if terms.repository:
        # Imported only for such a workspace, because `agent exec` must start fast.
        from sandbox.workspace.other_worktrees import folders_above, other_worktrees

        shared = scan(terms.repository[0], names, terms.shown, terms.locked, trees)
        foreign = other_worktrees(terms.repository, terms.workspace)
        protected = protected.with_repository(shared, foreign, folders_above(terms.repository))
    found = _own_code_kept(protected, (terms.workspace, *terms.writable)) if work else protected
    _latest = (terms, began, found)
    return found


_RECENT = 1.0  # seconds
_latest: tuple[Terms, float, Scan] | None = None  # the last survey of this process, with the time of its begin


def recent_survey(terms: Terms, cache: Path | None, since: float) -> Scan:
    """Return the survey for `terms` that the launch of a short command on a layer made, or a new one.

    SAFETY: a survey that began before `since` (time.monotonic) or more than `_RECENT` seconds ago is not used: earlier
    commands, and other programs meanwhile, can have made files that need protection.
    """
    known = _latest
    if known is not None and known[1] >= max(since, time.monotonic() - _RECENT) and known[0] == terms:
        return known[2]
    return survey(terms, "", cache, layered=True)


def _with_system_sockets(protected: Scan, terms: Terms) -> Scan:
    """Return `protected` with the sockets that programs of the machine have bound in the system folders."""
    with open("/proc/net/unix", "rb") as file:
        names = file.read()
    if not any(b" %b/" % os.fsencode(folder) in names for folder in terms.system):
        return protected  # as on nearly all machines
    from sandbox.workspace.host_sockets import in_folders

    found = in_folders(terms.system)
    return replace(protected, sockets=tuple(sorted({*protected.sockets, *found}))) if found else protected


def _own_code_kept(protected: Scan, folders: tuple[str, ...]) -> Scan:
    """Return `protected` with this program's own code read-only and the folders above it pinned.

    THREAT T70: the code may lie in a folder that a command may write.
    """
    kept = {(path, folder) for path, folder in _own_places(code(), folders) if os.path.lexists(path)}
    if not kept:
        return protected
    above = {str(each) for path, folder in kept for each in Path(path).parents if inside(str(each), folder)}
    locked = {*protected.locked, *(path for path, _ in kept)}
    pinned = {*protected.pinned, *above} - {folder for _, folder in kept}
    return replace(protected, locked=tuple(sorted(locked)), pinned=tuple(sorted(pinned)))


@lru_cache(maxsize=16)  # called for every command
def _own_places(code: tuple[str, ...], folders: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return tuple((path, folder) for path in code for folder in folders if path != folder and inside(path, folder))


@lru_cache(maxsize=4)
def known_trees(cache: Path | None) -> FolderTrees:
    """Return this process's cache of folders: facts about the disk, shared by all sessions."""
    return FolderTrees(cache)


def own_layer(layer: ChangeLayer) -> "HelperLayers":
    """Return the only layer of a helper for one command. Raises SandboxUnavailable if its folders cannot be used."""
    from sandbox.linux.helper_layers import HelperLayers

    try:
        return HelperLayers((layer,))
    except OSError as error:
        raise unusable(error) from None


def unusable(error: OSError) -> SandboxUnavailable:
    """Return the error for folders of a layer that cannot be used."""
    why = f"the folder of its changes cannot be used ({(error.strerror or '').lower()})"
    fix = "run `agent doctor`; nothing was run"
    return SandboxUnavailable.of("the command cannot run on a copy-on-write view", why, fix)


class PrelaunchedHelper:
    """A launch before its backend exists, for one tier and the Terms of the first command, with its scratch folder.

    `layer`: the folders of the overlay on which that command runs; None if it changes the workspace itself.
    `later` is that of `SpareHelper`.
    """

    def __init__(
        self,
        tier: str,
        terms: Terms,
        scratch: Scratch,
        launched: Launch,
        *,
        layer: ChangeLayer | None = None,
        later: contextlib.ExitStack | None = None,
    ) -> None:
        self.later, self.layer = later, layer
        self._fits, self._scratch = (tier, plan_builder.helper_key(terms), layer), scratch
        self._launch: Launch | None = launched
        self._taken: Launch | None = None

    def take(self, tier: str, terms: Terms, layer: ChangeLayer | None = None) -> tuple[Launch, Scratch] | None:
        """Return the launch and the scratch folder, which the caller then ends and removes; None if they do not fit."""
        launched = self._launch
        if launched is None or (tier, plan_builder.helper_key(terms), layer) != self._fits:
            return None
        self._launch, self._taken = None, launched
        return launched, self._scratch

    def dismiss(self) -> None:
        """Begin to end a helper that was taken and whose last command has ended. Its taker still has to end it.

        The kernel takes some milliseconds to end the namespaces. A worker, which ends its helper later, and T3, where
        the helper has to end processes itself, do nothing here.
        """
        if self._taken is not None and self.later is None and self._fits[0] != "T3":
            self._taken.process.kill()

    def drop(self) -> None:
        """End the helper and remove its scratch folder, unless the helper was taken."""
        if self._launch is not None:
            self._launch.drop()
            self._scratch.remove()
            self._launch = None


@contextlib.contextmanager
def launched_ahead(
    name: str | None, terms: Terms, *, cache: Path, spare: SpareHelper, layer: ChangeLayer | None = None
) -> Iterator[PrelaunchedHelper | None]:
    """Yield a helper without file actions that confines itself meanwhile, for the backend `name` (None: T1). End the
    helper at the end unless it was taken. Yield None for other backends and other platforms than Linux.

    `layer`: the folders of the overlay of the first command, for T1 only.
    """
    tier = TIERS[0] if name is None else name
    if tier not in TIERS or sys.platform != "linux":
        yield None  # `open_backend` opens the other backends, and refuses an invalid name
        return
    prepared: tuple[Launch, Scratch] | None = spare.prepared(LaunchRequest(tier, terms, cache, layer))
    if prepared is not None:
        launched, scratch = prepared
    else:
        scratch = Scratch()
        try:
            layers = own_layer(layer) if layer is not None else None
            launched = launch(tier, terms, scratch, cache=cache, files=False, spare=spare, layers=layers)
        except BaseException:
            scratch.remove()
            raise
    ahead = PrelaunchedHelper(tier, terms, scratch, launched, layer=layer, later=spare.later)
    try:
        yield ahead
    finally:
        ahead.drop()


def in_scratch(terms: Terms, scratch: str) -> Terms:
    """Return the terms for a tier without a private root: HOME and TMPDIR are the folder `scratch`, and variables for
    the cache name its path on the host.
    """
    environment, cache_inside = dict(terms.env), f"{terms.home}/.cache"
    for name, value in terms.env:
        if terms.cache and inside(value, cache_inside):
            environment[name] = value.replace(cache_inside, terms.cache, 1)
    environment |= {"HOME": scratch, "TMPDIR": scratch}
    # Without a private root, hooks and settings of the repository would not be read-only.
    return replace(terms, home=scratch, env=tuple(sorted(environment.items())), repository=())


def make_points(scratch: Scratch, terms: Terms, steps: Iterable[tuple[str, str, str]]) -> None:
    """Create the mount points in folders that commands write to: below /tmp (a workspace may be there), because the
    scratch folder may be read-only later, and below the sandbox's own cache. Raises SandboxUnavailable."""
    if terms.rights is Rights.ISOLATED:
        return  # its /tmp is a folder of its own
    root = plan_builder.cache_place(terms)
    for kind, source, target in steps:
        in_tmp, in_cache = target.startswith("/tmp/"), bool(root) and target.startswith(f"{root}/")
        if kind in ("link", "mask") or not (in_tmp or in_cache):
            continue
        folder = kind not in ("ro", "rw") or os.path.isdir(source)
        if in_tmp:
            scratch.make(target, folder=folder)
        if in_cache:
            with closing(os.open(terms.cache, FOLDER)) as top:
                make_point(top, root, target, folder=folder)
