"""The container daemon: its socket, its images, calls in threads, and the removal of killed sessions' containers."""

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import stat
import threading
from collections.abc import Callable, Mapping
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from policy.model.frozen import dataclass
from sandbox.backend import SandboxUnavailable
from sandbox.inside.safe_rmtree import closing
from sandbox.linux.session_tmp import FOLDER

if TYPE_CHECKING:
    import docker

# Labels of a container, by which the next start finds the containers of killed sessions.
LABEL = "io.ringfence.session"
_PLACE, _LOCK = "io.ringfence.place", "io.ringfence.lock"
SECONDS = 60  # time limit of one call
_FIX = "install one (`sudo apt-get install docker.io`) and start it (`sudo systemctl start docker`)"


@dataclass(frozen=True, slots=True)
class Image:
    """An image. `id` is the digest of its configuration, and never names another image."""

    id: str
    variables: tuple[str, ...]
    volumes: tuple[str, ...]


class Daemon:
    """A container daemon. Calls use the `docker` package, in threads with one client each."""

    def __init__(self, socket: str) -> None:
        self.socket = socket
        self.version = ""
        self.podman = False  # True if the daemon is Podman, which differs in a few options
        self._local = threading.local()
        self._clients: list[docker.APIClient] = []

    async def call(self, what: Callable[["docker.APIClient"], Any]) -> Any:
        """Call `what` in a thread, and return its result. Raises DaemonRefused, or SandboxUnavailable if the daemon
        cannot be reached."""
        return await asyncio.to_thread(self.ask, what)

    def ask(self, what: Callable[["docker.APIClient"], Any]) -> Any:
        """Return the result as `call` does, in the current thread."""
        import docker
        import requests

        try:
            client = getattr(self._local, "client", None)
            if client is None:
                client = docker.APIClient(
                    f"unix://{self.socket}", version=self.version or "auto", timeout=SECONDS, num_pools=2
                )
                self._local.client, self.version = client, str(client.api_version)
                self._clients.append(client)
                parts = client.version().get("Components") or ()
                self.podman = any("podman" in str(part.get("Name", "")).lower() for part in parts)
            return what(client)
        except docker.errors.APIError as error:
            raise DaemonRefused(int(error.status_code or 0), str(error.explanation or error)) from None
        except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
            raise unreachable(self.socket, error) from None

    def close(self) -> None:
        """Close every connection. No request may follow."""
        for client in self._clients:
            client.close()
        self._clients.clear()


class DaemonRefused(Exception):
    """The error for a request that the daemon refused. `status` is the HTTP status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class NoDaemon(SandboxUnavailable):
    """The error for a missing container daemon."""


def find_socket(chosen: str, environ: Mapping[str, str]) -> str:
    """Return the path of the daemon's socket: the configured one, DOCKER_HOST, the context in use, or a usual path.

    Raises NoDaemon if there is none, SandboxUnavailable if it is on another machine.
    """
    named = chosen or environ.get("DOCKER_HOST", "") or _context(environ)
    if named:
        path = named.removeprefix("unix://")
        if not path.startswith("/"):
            raise SandboxUnavailable.of(
                f"the container daemon at `{named}` cannot be used",
                "that daemon may be on another machine, whose containers do not see your workspace",
                'name a socket of this machine: `socket = "/run/docker.sock"` under [sandbox.container]',
            )
        if not is_socket(path):
            raise NoDaemon.of(f"there is no container daemon at `{path}`", "no socket has that path", _FIX)
        return path
    places = usual(environ)
    if path := next(filter(is_socket, places), ""):
        return path
    raise NoDaemon.of("there is no container daemon", f"none of {', '.join(places)} is a socket", f"{_FIX}, or use T1")


def usual(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the usual paths of the sockets of Docker and Podman, of the system and of the user."""
    own = environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    return "/var/run/docker.sock", f"{own}/docker.sock", "/run/podman/podman.sock", f"{own}/podman/podman.sock"


def is_socket(path: str) -> bool:
    with contextlib.suppress(OSError):
        return stat.S_ISSOCK(os.stat(path).st_mode)
    return False


def _context(environ: Mapping[str, str]) -> str:
    """Return the endpoint of the Docker context in use; empty for the default one.

    The `docker` command keeps the name in `config.json`, and the rest in a folder named by the SHA-256 of that name.
    """
    folder = environ.get("DOCKER_CONFIG") or os.path.join(environ.get("HOME", "/nonexistent"), ".docker")
    try:
        name = environ.get("DOCKER_CONTEXT") or _json(os.path.join(folder, "config.json")).get("currentContext") or ""
        if name in ("", "default"):
            return ""
        key = hashlib.sha256(str(name).encode()).hexdigest()
        meta = _json(os.path.join(folder, "contexts", "meta", key, "meta.json"))
        return str(meta["Endpoints"]["docker"]["Host"])
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SandboxUnavailable.of(
            "the Docker context in use cannot be read",
            f"a file below `{folder}` is missing or invalid ({error})",
            "run `docker context use default`, or name the socket under [sandbox.container]",
        ) from None


def _json(path: str) -> Any:
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def unreachable(socket: str, error: BaseException) -> SandboxUnavailable:
    """Return the error for a daemon that does not answer, with the reason and a fix."""
    if "Permission denied" in str(error):
        what, why = f"you may not use the container daemon at `{socket}`", "the socket belongs to another user or group"
        group = "join its group (`sudo usermod -aG docker $USER`, which gives you the rights of root)"
        return SandboxUnavailable.of(what, why, f"{group}, or run a rootless daemon")
    return SandboxUnavailable.of(f"the container daemon at `{socket}` does not answer", str(error).lower()[:300], _FIX)


async def find_image(daemon: Daemon, name: str) -> Image:
    """Return the image that `name` pins. Raises SandboxUnavailable if it is not configured, not pinned, missing, or
    not for this machine.
    """
    if not name:
        raise SandboxUnavailable.of(
            "no image is configured for the container sandbox",
            "commands run with the programs of an image, which you choose",
            'write `image = "NAME@sha256:..."` under [sandbox.container] in your configuration',
        )
    try:
        details = await daemon.call(lambda client: client.inspect_image(name))
    except DaemonRefused as error:
        what, why, fix = f"the image `{name}` cannot be used", str(error), "check the name of the image"
        if error.status == 404:
            what, why = f"the image `{name}` is not on this machine", "this program never fetches images"
            fix = f"fetch it yourself: `docker pull {name}`"
            if name.startswith("sha256:"):
                fix = "run `docker images --no-trunc` to list the images of this machine"
        raise SandboxUnavailable.of(what, why, fix) from None
    if not is_pinned(name):
        what, why = f"the image `{name}` is not pinned", "a tag can name a different image later"
        exact = (details.get("RepoDigests") or [details["Id"]])[0]
        raise SandboxUnavailable.of(what, why, f'write `image = "{exact}"`')
    made_for, ours = str(details.get("Architecture", "")), _ARCHITECTURES.get(os.uname().machine, os.uname().machine)
    if made_for != ours:
        why = f"the image is made for {made_for or 'an unknown machine'}, and this machine is {ours}"
        raise SandboxUnavailable.of(f"the image `{name}` is for another machine", why, f"use an image for {ours}")
    config = details.get("Config") or {}
    variables = tuple(str(item).partition("=")[0] for item in config.get("Env") or ())
    # Normalized as by the daemon and the kernel: `/data/` and `//data` are `/data`.
    volumes = tuple(sorted({os.path.normpath(f"/{path.lstrip('/')}") for path in config.get("Volumes") or ()}))
    return Image(str(details["Id"]), variables, volumes)


def is_pinned(name: str) -> bool:
    """Return True if the reference names one image for ever: NAME@sha256:DIGEST, or sha256:ID."""
    kind, _, number = name.rpartition("@")[2].partition(":")
    return kind == "sha256" and len(number) == 64 and set(number) <= set("0123456789abcdef")


_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def labels(session: str, lock: str) -> tuple[tuple[str, str], ...]:
    """Return the labels of a container. `lock` is a folder on which the session holds a flock(2) while it lives."""
    return ((LABEL, session), (_PLACE, machine_place()), (_LOCK, lock))


def machine_place() -> str:
    """Return an identifier of the boot, the mount namespace and the user, in which the paths of labels are valid.

    A daemon may be shared with other machines, containers and users, whose sessions are not visible here.
    """
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    return f"{boot} {os.readlink('/proc/self/ns/mnt')} {os.geteuid()}"


async def sweep(daemon: Daemon) -> tuple[str, ...]:
    """Remove containers of sessions that were killed, and return their ids. A container that cannot be removed stays.

    Most containers end without this removal: the first process waits for the end of its input, which comes when the
    runner has ended.
    """
    ours = {"label": [f"{_PLACE}={machine_place()}"]}
    removed = []
    for container in await daemon.call(lambda client: client.containers(all=True, filters=ours)):
        if _is_held(str(container["Labels"].get(_LOCK, ""))):
            continue
        number = str(container["Id"])
        with contextlib.suppress(DaemonRefused, SandboxUnavailable):
            await daemon.call(methodcaller("remove_container", number, force=True, v=True))
            removed.append(number)
    return tuple(removed)


def _is_held(lock: str) -> bool:
    """Return True if the session of that folder lives or may live. A session removes its folder at its end."""
    try:
        with closing(os.open(lock, FOLDER)) as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return not isinstance(error, FileNotFoundError)
    return False
