"""The start of the resident process: its folder and its settings. Without typer, whose memory it would keep."""

import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from policy.model.verdict import Problem
from runner.config.load import load
from runner.frontends.resident.loading import Main
from runner.frontends.resident.process import ResidentOptions, run_resident
from runner.jobs.due import due_jobs, jobs_wait
from runner.problems import Exit, Stopped
from runner.resident import resident_folder
from runner.state.paths import state_dir
from runner.stderr import say_notice
from runner.text.phrases import os_reason

Companion = tuple[str, tuple[str, ...]]  # the kind and the command line of a process


def run(main: Main, companions: tuple[Companion, ...] = (), *, stay: bool = False) -> int:
    """Run the resident process in this process and return its exit code. `main` is the entry point of the command
    line. With `stay` it does not end without work. Raise Stopped if it cannot run.

    `companions` are processes that run as long as this one. Without any, `serve.listen` starts remote access.
    """
    return run_resident(ready_folder(os.environ), _options(companions, stay=stay), main, _announce)


def _announce() -> None:
    say_notice("the resident process is ready; Ctrl-C ends it")
    tell_service_manager(os.environ)


def tell_service_manager(environ: MutableMapping[str, str]) -> None:
    """Tell systemd that clients can connect, if it waits for that. SOURCE: sd_notify(3).

    The variable is removed, so that no other process of the unit speaks for this one. A manager that has gone away is
    no reason to end.
    """
    address = environ.pop("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as speaker:
        try:
            speaker.sendto(b"READY=1", address.replace("@", "\0", 1) if address.startswith("@") else address)
        except OSError as error:
            say_notice(f"systemd was not told that the resident process is ready: {os_reason(error)}")


def _options(companions: tuple[Companion, ...], *, stay: bool) -> ResidentOptions:
    settings = load(Path("/"), os.environ, unattended=True)  # no repository has a say about it
    idle, sessions = settings.value("serve", "idle"), settings.value("serve", "sessions")
    assert isinstance(idle, int | float)
    assert isinstance(sessions, int)
    listen = settings.value("serve", "listen")
    if listen and not companions:
        companions = (("web", ("serve", "web", f"--listen={listen}")),)
    state = str(state_dir(os.environ))

    def due(now: float) -> list[list[str]]:
        return [["jobs", "run", id, "--scheduled"] for id in due_jobs(state, now)]

    idle = 0.0 if stay else float(idle)
    changed = Exit.FAILED if stay else Exit.DONE  # the unit of systemd starts the new program then
    return ResidentOptions(
        idle=idle, sessions=sessions, due=due, keeps=jobs_wait, companions=companions, changed=changed
    )


def ready_folder(environ: Mapping[str, str]) -> str:
    """Return the folder of the sockets, created with mode 0700. Raise Stopped if there can be no socket in it."""
    state_dir(environ)
    try:
        path = resident_folder(environ)
    except OSError:
        why, fix = "the path of the state folder is too long for a socket", "set RINGFENCE_STATE_DIR to a shorter path"
        raise Stopped(Problem("the resident process cannot run", why, fix), Exit.USAGE) from None
    os.makedirs(path, mode=0o700, exist_ok=True)
    found = os.lstat(path)
    if found.st_uid != os.geteuid() or found.st_mode & 0o077 or os.path.islink(path):
        why, fix = f"`{path}` is not a private folder of yours", f"remove it, or `chmod 700 {path}`"
        raise Stopped(Problem("the resident process cannot run", why, fix), Exit.DENIED)
    return path
