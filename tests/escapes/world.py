"""The surroundings of an escape attempt: decoys, services, another process, and the signs of an escape."""

import contextlib
import ctypes
import json
import os
import secrets
import selectors
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import tty
from pathlib import Path
from typing import Any

from tests.escapes.attempt import Attempt

NOBODY = 65534
ADDRESS = "10.77.0.1"  # on `lo` of the namespaces that run.py makes: an address of this machine that is not loopback
MARK = "PLAN" + "TED"
PLACES = ("/tmp", "/var/tmp", "/dev/shm", "/var/lock", "/run/lock", "/etc/cron.d", "/etc/profile.d", "/usr/local/games", "/var/spool/cron")  # fmt: skip
AUTO = {
    ".git", ".gitmodules", ".vscode", ".idea", ".zed", ".envrc", ".bashrc", ".profile", ".zshenv", ".bash_profile",
    ".gdbinit", ".lldbinit", ".exrc", ".nvim.lua", ".dir-locals.el", ".pdbrc", ".Rprofile", ".claude", ".codex", ".cursor", ".gemini",
    ".ringfence", ".mcp.json", ".husky", ".devcontainer", "later.txt", ".pre-commit-config.yaml", "lefthook.yml", ".overcommit.yml", "mise.toml", ".helix", ".run",
    "x.code-workspace", ".dir-locals-2.el", ".lazy.lua", ".lvimrc", ".perldb", ".RData", "startup.m", "mcp.json", "opencode.json",
    ".aider.conf.yml", ".github", ".clinerules",
}  # fmt: skip
# Another process of the same user: it has something open, something in memory, and keeps what the machine shares.
VICTIM = """
import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
token, plain, key, secret = sys.argv[1:5]
kept = bytearray(token.encode() * 4)
held = open(secret)
libc.syscall(ctypes.c_long(248), b"user", plain.encode(), token.encode(), ctypes.c_long(len(token)), ctypes.c_long(-4))
segment = libc.shmget(int(key), 4096, 0o1666)
libc.shmat.restype = ctypes.c_void_p
ctypes.memmove(libc.shmat(segment, None, 0), token.encode(), len(token))
queue = libc.msgget(int(key), 0o1666)
libc.msgsnd(queue, ctypes.create_string_buffer(b"\\1" + b"\\0" * 7 + token.encode()), len(token), 0)
libc.syscall(ctypes.c_long(240), f"decoy-{plain}".encode(), os.O_CREAT | os.O_RDWR, 0o666, None)
print("ready", flush=True)
time.sleep(3600)
"""


def unused_port() -> int:
    """Return a TCP port that nobody uses, and that the kernel gives to nobody who asks for any port (ip(7))."""
    first, _ = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    while True:
        port = secrets.choice(range(10_000, int(first)))
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(("", port))
            return port


class World:
    """Made once for a user; `lay` makes a fresh workspace and home for each attempt."""

    def __init__(self, user: str) -> None:
        self.user, self.uid = user, NOBODY if user == "nobody" else os.geteuid()
        self.base = Path(tempfile.mkdtemp(prefix="escapes-", dir="/var/tmp"))
        self.token, self.plain = "decoy-" + secrets.token_hex(8), secrets.token_hex(6)
        # The product knows what its own variables hold and masks it in every output, so that one is a decoy of its own.
        self.worded = "decoy-" + secrets.token_hex(8)
        self.key = int.from_bytes(secrets.token_bytes(3), "big") + 0x10000
        self.heard: list[str] = []
        self.state = self.base / "state"
        self.outside = self.base / "outside"
        for folder in (self.base, self.state, self.outside):
            folder.mkdir(exist_ok=True)
        self.base.chmod(0o755)
        self.selector = selectors.DefaultSelector()
        self.kept: list[socket.socket] = []
        self.told: dict[str, Any] = {"base": str(self.base), "plain": self.plain, "uid": self.uid, "shm": self.key}
        self.told |= {"outside": str(self.outside), "secret": str(self.outside / "secret.txt"), "address": ADDRESS}
        self.told |= {"target": str(self.outside / "target.txt"), "queue": f"decoy-{self.plain}", "multicast": 5353}
        (self.state / "ringfence").mkdir(mode=0o700)
        (self.state / "ringfence" / "config.toml").write_text(os.environ.get("ESCAPES_CONTAINER", ""))
        self._outside()
        self._services()
        self.victim = self._victim()
        self.master, self.slave = os.openpty()
        tty.setraw(self.slave, termios.TCSANOW)
        self.told["pty"] = os.ttyname(self.slave)
        if user == "nobody":
            os.chown(self.told["pty"], NOBODY, NOBODY)
        self._own(self.base)
        for place in ("/tmp", "/dev/shm"):
            Path(f"{place}/{self.plain}-host").write_text(self.token)
            self._own(Path(f"{place}/{self.plain}-host"))
        threading.Thread(target=self._listen, daemon=True).start()

    # ---- making

    def _outside(self) -> None:
        for name, text in (("secret.txt", self.token), ("target.txt", "original"), ("linked.txt", "original")):
            (self.outside / name).write_text(text)
        (self.outside / "link").symlink_to("/" + self.token)

    def _own(self, path: Path) -> None:
        if self.user == "nobody":
            for each in (path, *path.rglob("*")) if path.is_dir() else (path,):
                os.chown(each, NOBODY, NOBODY, follow_symlinks=False)

    def _services(self) -> None:
        """Anyone who connects gets the token, and is heard."""
        for name, family, host in (("tcp", socket.AF_INET, ""), ("tcp6", socket.AF_INET6, "::1")):
            listener = socket.socket(family)
            with contextlib.suppress(OSError):  # a machine without IPv6: then that attempt has no control
                listener.bind((host, 0))
                listener.setsockopt(socket.IPPROTO_TCP, 23, 16)  # TCP_FASTOPEN
                self._keep(listener, name)
            self.told[name] = listener.getsockname()[1] if listener in self.kept else 1
        for name, port in (("udp", 0), ("dns", 53), ("multicast", 5353)):
            heard = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            heard.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if name == "multicast":
                member = socket.inet_aton("224.0.0.251") + socket.inet_aton("127.0.0.1")
                with contextlib.suppress(OSError):
                    heard.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
            with contextlib.suppress(OSError):  # port 53 is root's
                heard.bind(("", port))
                self._keep(heard, name)
            self.told[name] = heard.getsockname()[1] or port
        self.told["inward"] = unused_port()
        paths = {"abstract": f"\0{self.plain}-service", "giver": f"\0{self.plain}-giver"}
        paths |= {"socket": str(self.outside / "socket"), "bus": str(self.outside / "bus")}
        for name, path in paths.items():
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(path)
            self._keep(listener, name)
            self.told[name] = path.lstrip("\0")
        heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.told["datagram"] = str(self.outside / "datagram")
        heard.bind(self.told["datagram"])
        self._keep(heard, "datagram")
        for name in ("socket", "bus", "datagram"):
            os.chmod(self.told[name], 0o777)

    def _keep(self, endpoint: socket.socket, name: str) -> None:
        if endpoint.type == socket.SOCK_STREAM:
            endpoint.listen(8)
        self.kept.append(endpoint)
        self.selector.register(endpoint, selectors.EVENT_READ, name)

    def _listen(self) -> None:
        while True:
            for key, _ in self.selector.select():
                endpoint = key.fileobj
                assert isinstance(endpoint, socket.socket)
                with contextlib.suppress(OSError):
                    if endpoint.type == socket.SOCK_STREAM:
                        peer, _ = endpoint.accept()
                        self.heard.append(str(key.data))
                        if key.data == "giver":
                            with open(self.told["secret"]) as file:
                                socket.send_fds(peer, [b"take"], [file.fileno()])
                        peer.sendall(self.token.encode())
                        peer.close()
                    else:
                        endpoint.recv(4096)
                        self.heard.append(str(key.data))

    def _victim(self) -> subprocess.Popen[str]:
        argv = [
            "/usr/bin/python3",
            "-I",
            "-S",
            "-c",
            VICTIM,
            self.token,
            self.plain,
            str(self.key),
            self.told["secret"],
        ]
        process = subprocess.Popen(
            [*argv, str(self.base)],
            stdout=subprocess.PIPE,
            text=True,
            env={"VICTIM": self.token},
            cwd=self.outside,
            **self.who(),
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", "the other process did not start"
        self.told["victim"] = process.pid
        return process

    def who(self) -> dict[str, Any]:
        return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if self.user == "nobody" else {}

    def lay(self, attempt: Attempt, binary: Path | None) -> "Stage":
        return Stage(self, attempt, binary)

    def close(self) -> None:
        self.victim.kill()
        self.victim.wait()
        libc = ctypes.CDLL(None)
        libc.shmctl(libc.shmget(self.key, 0, 0), 0, None)
        libc.msgctl(libc.msgget(self.key, 0), 0, None)
        libc.syscall(ctypes.c_long(241), f"decoy-{self.plain}".encode())
        for place in ("/tmp", "/dev/shm"):
            Path(f"{place}/{self.plain}-host").unlink(missing_ok=True)
        for endpoint in self.kept:
            self.selector.unregister(endpoint)
            endpoint.close()
        shutil.rmtree(self.base, ignore_errors=True)


class Stage:
    """A home with a workspace in it, as it is before an attempt; `fired` tells what is otherwise afterwards."""

    def __init__(self, world: World, attempt: Attempt, binary: Path | None) -> None:
        self.world, self.attempt = world, attempt
        self.top = Path(tempfile.mkdtemp(prefix="stage-", dir=world.base))
        self.home, self.ws = self.top / "home", self.top / "home" / "project"
        self.nap = f"86{secrets.randbelow(10**9):09}"
        self.told = {**world.told, "home": str(self.home), "key": str(self.home / ".ssh" / "id_rsa"), "nap": self.nap}
        self._fill()
        self.told["handles"] = [handle for path in ("secret", "key") if (handle := _handle(self.told[path]))]
        (self.ws / "world.json").write_text(json.dumps(self.told))
        if attempt.language == "c":
            assert binary is not None
            self.argv = [str(shutil.copy(binary, self.ws / "attempt"))]
        else:
            program = self.ws / f"attempt.{attempt.language}"
            program.write_text(attempt.source(self.told))
            self.argv = ["/usr/bin/python3" if attempt.language == "py" else "/bin/sh", str(program)]
        self.ours, theirs = socket.socketpair()
        world._own(self.top)
        self.top.chmod(0o755)
        self.descriptors = self._open(theirs)
        self.protected = {path: (path.read_text(), path.stat().st_ino) for path in self._protected()}
        self.before = self._look()

    def _fill(self) -> None:
        ws, token = self.ws, self.world.token
        for folder in (
            ".git/hooks",
            ".git/info",
            ".vscode",
            "deep/down",
            "vendor/inner/.git/hooks",
            "vendor/linked/.git",
            "linked-hooks",
        ):
            (ws / folder).mkdir(parents=True)
        for repository in (ws, ws / "vendor" / "inner", ws / "vendor" / "linked"):
            (repository / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
            for folder in ("objects", "refs"):
                (repository / ".git" / folder).mkdir()
            (repository / ".git" / "config").write_text("[core]\n\trepositoryformatversion = 0\n")
        for place in (ws, ws / "vendor" / "inner"):
            (place / ".git" / "hooks" / "pre-commit").write_text("original\n")
        (ws / "linked-hooks" / "pre-commit").write_text("original\n")
        (ws / "vendor" / "linked" / ".git" / "hooks").symlink_to("../../../linked-hooks")
        (ws / ".vscode" / "tasks.json").write_text("original\n")
        (ws / ".env").write_text(token)
        (ws / "deep" / "down" / "server.pem").write_text(token)
        (self.home / ".ssh").mkdir()
        (self.home / ".ssh" / "id_rsa").write_text(token)
        (self.home / ".bashrc").write_text("original\n")
        os.link(self.world.outside / "linked.txt", ws / "hard-link")
        for name, target in (("secret", "secret.txt"), ("target", "target.txt"), ("outside", "")):
            (ws / f"link-to-{name}").symlink_to(self.world.outside / target)
        self.host = []
        for name, kind in (("host.sock", socket.SOCK_STREAM), ("host.dgram", socket.SOCK_DGRAM)):
            endpoint = socket.socket(socket.AF_UNIX, kind)
            here = os.open(ws, os.O_PATH)
            endpoint.bind(f"/proc/self/fd/{here}/{name}")  # a path of a socket is short
            os.close(here)
            (ws / name).chmod(0o777)
            self.world._keep(endpoint, name)
            self.host.append(endpoint)

    def _protected(self) -> list[Path]:
        ws = self.ws
        return [
            *(place / ".git" / name for place in (ws, ws / "vendor" / "inner") for name in ("hooks/pre-commit", "config")),
            ws / "linked-hooks" / "pre-commit", ws / ".vscode" / "tasks.json",
        ]  # fmt: skip

    def _open(self, theirs: socket.socket) -> tuple[int, ...]:
        """Open the descriptors that a careless launcher leaks: two files, a folder, a connection, a listener."""
        made = [os.open(self.told[name], os.O_RDONLY) for name in ("secret", "outside", "target")]
        made += [theirs.detach(), os.dup(self.world.kept[0].fileno())]
        for number, handle in enumerate(made, 200):
            os.dup2(handle, number)
            os.close(handle)
        return tuple(range(200, 205))

    # ---- looking

    def environment(self) -> dict[str, str]:
        state = str(self.world.state)
        return {
            "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self.home), "LANG": "C.UTF-8", "XDG_STATE_HOME": state,
            "XDG_CONFIG_HOME": state, "XDG_CACHE_HOME": state, "DECOY_API_KEY": self.world.worded,
            "http_proxy": f"http://{self.world.plain}.invalid:1",
        }  # fmt: skip

    def _look(self) -> dict[str, object]:
        found: dict[str, object] = {}
        for top in (self.world.outside, self.home):
            for folder, folders, names in os.walk(top):
                if Path(folder) == self.home and "project" in folders:
                    folders.remove("project")
                for name in ("", *folders, *names):
                    path = os.path.join(folder, name)
                    status = os.lstat(path)
                    told = (status.st_mode, status.st_uid, status.st_gid, status.st_nlink, status.st_mtime_ns)
                    # The home changes when the workspace does nothing wrong: only what is in it counts.
                    found[path] = told[:3] if stat.S_ISDIR(status.st_mode) else (*told, status.st_size)
                    if stat.S_ISREG(status.st_mode):
                        found[path] = (found[path], Path(path).read_bytes(), tuple(os.listxattr(path)))
        for place in PLACES:
            with contextlib.suppress(OSError):
                found[place] = sorted(name for name in os.listdir(place) if self.world.plain in name)
        found["hostname"] = socket.gethostname()
        return found

    def fired(self, output: bytes) -> list[str]:
        """Everything that shows that it got out; and the stage is taken down."""
        time.sleep(self.attempt.wait)
        told = [line.decode("utf-8", "replace")[:60] for line in output.splitlines() if line.startswith(b"GOT ")]
        if any(each.encode() in output for each in (self.world.token, self.world.worded, self.world.worded[::-1])):
            told.append("printed the secret")
        after = self._look()
        told += [f"changed {os.path.basename(path)}" for path in self.before if self.before[path] != after.get(path)]
        told += [f"made {os.path.basename(path)}" for path in after if path not in self.before]
        told += [f"reached {name}" for name in dict.fromkeys(self.world.heard)]
        told += self._planted()
        told += self._victim()
        told += self._left()
        for read, name in ((self.ours.fileno(), "the launcher's connection"), (self.world.slave, "the terminal")):
            os.set_blocking(read, False)
            with contextlib.suppress(OSError):
                if os.read(read, 99):
                    told.append(f"wrote into {name}")
        self._clear(after)
        return told

    def _planted(self) -> list[str]:
        told = []
        for path, (text, number) in self.protected.items():
            # A folder above it may be moved: the file has moved with it then, and is what it was.
            there = [each for each in self.ws.rglob(path.name) if each.is_file() and each.lstat().st_ino == number]
            if not there or there[0].read_text() != text:
                told.append(f"changed {path.relative_to(self.ws)}")
        for folder, _, names in os.walk(self.ws, followlinks=True):
            inside = Path(folder).relative_to(self.ws)
            if len(inside.parts) > 6:
                continue
            bare = {"HEAD", "config"} <= set(names) and not any(part == ".git" for part in inside.parts)
            for name in names:
                path = Path(folder, name)
                with contextlib.suppress(OSError):
                    if not stat.S_ISREG(path.stat().st_mode) or MARK.encode() not in path.read_bytes():
                        continue
                    if {*inside.parts, name} & AUTO or (bare and name == "config"):
                        told.append(f"planted {inside / name}")
            if "commondir" in names and inside.name == ".git":
                told.append("planted .git/commondir")
            if ".git" in names:
                told.append(f"planted {inside}/.git")
        return told

    def _victim(self) -> list[str]:
        process, told = self.world.victim, []
        with contextlib.suppress(OSError, IndexError):
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            if (
                fields[0] in "TtZX"
                or fields[16] != str(os.nice(0))
                or len(os.sched_getaffinity(process.pid)) != os.cpu_count()
            ):
                told.append(f"touched the other process ({fields[0]}, nice {fields[16]})")
            import resource

            if resource.prlimit(process.pid, resource.RLIMIT_NOFILE)[0] <= 5:
                told.append("changed limits of the other process")
        if process.poll() is not None:
            told.append("ended the other process")
        if told:
            process.kill()
            process.wait()
            self.world.victim = self.world._victim()
        return told

    def _left(self) -> list[str]:
        """Processes that still run: by the time they were told to sleep, or the program they were started for."""
        end = time.monotonic() + 0.6
        while (left := self._running()) and time.monotonic() < end:
            time.sleep(0.05)
        for _ in range(3 if left else 0):  # one that forks while it is ended
            for pid in self._running():
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        return [f"left {len(left)} process(es)"] if left else []

    def _running(self) -> list[int]:
        found = []
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if name.isdigit() and int(name) != os.getpid():
                    line = Path(f"/proc/{name}/cmdline").read_bytes()
                    if (self.nap.encode() in line or str(self.top).encode() in line) and b"\0exec\0" not in line:
                        found.append(int(name))
        return found

    def _clear(self, after: dict[str, object]) -> None:
        for place in PLACES:
            names = after.get(place, [])
            assert isinstance(names, list)
            for name in names:
                if name.startswith("plant-") or name.startswith("big-"):
                    with contextlib.suppress(OSError):
                        os.unlink(os.path.join(place, name))
        socket_of_old = self.before["hostname"]
        if after["hostname"] != socket_of_old:
            socket.sethostname(str(socket_of_old))
        for number in self.descriptors:
            os.close(number)
        self.ours.close()
        for endpoint in self.host:
            self.world.selector.unregister(endpoint)
            self.world.kept.remove(endpoint)
            endpoint.close()
        shutil.rmtree(self.top, ignore_errors=True)
        shutil.rmtree(self.world.outside / "dir", ignore_errors=True)
        keep = {"secret.txt", "target.txt", "linked.txt", "link", "socket", "bus", "datagram"}
        for path in list(self.world.outside.iterdir()):
            if path.name not in keep and not path.is_dir():
                path.unlink()
        if any(
            path.startswith(str(self.world.outside)) and self.before[path] != after.get(path) for path in self.before
        ):
            for name in ("secret.txt", "target.txt", "linked.txt", "link"):
                (self.world.outside / name).unlink(missing_ok=True)
            self.world._outside()
            self.world._own(self.world.outside)
        # Effects of an earlier attempt may still arrive.
        time.sleep(0.01)
        self.world.heard.clear()


def _handle(path: str) -> dict[str, object] | None:
    """name_to_handle_at(2): what a file system calls its file."""
    buffer = ctypes.create_string_buffer(struct.pack("Ii", 128, 0), 136)
    mount = ctypes.c_int()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.name_to_handle_at(-100, path.encode(), buffer, ctypes.byref(mount), 0) != 0:
        return None
    size, kind = struct.unpack_from("Ii", buffer.raw)
    return {"kind": kind, "raw": buffer.raw[8 : 8 + size].hex()}


def compiled(attempt: Attempt, folder: Path) -> Path:
    source, program = folder / f"{attempt.name}.c", folder / attempt.name
    source.write_text(attempt.source({}))
    subprocess.run(["gcc", "-O1", "-static-pie", "-o", program, source], check=True, stderr=subprocess.DEVNULL)
    return program


if sys.platform != "linux":
    sys.exit("the attempts are about Linux")
