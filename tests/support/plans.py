"""Plans of the Linux sandbox for given terms."""

from policy.model.verdict import Rights, Terms
from sandbox.inside.plan import Plan
from sandbox.linux.plan_builder import compile_plan
from sandbox.workspace.protected_paths import Scan

DISK = {
    "/usr": "dir",
    "/bin": "-> usr/bin",
    "/etc/passwd": "file",
    "/home/u": "dir",
    "/home/u/p": "dir",
    "/home/u/p/.env": "file",
    "/home/u/p/.git": "dir",
    "/home/u/p/.git/config": "file",
    "/home/u/.tool": "dir",
    "/home/u/.cache/shown": "dir",
    "/srv/data": "dir",
    "/srv/out.txt": "file",
    "/dev/null": "file",
    "/dev/urandom": "file",
}


FOUND = Scan(masked=("/home/u/p/.env",), locked=("/home/u/p/.git/config",), pinned=("/home/u/p/.git",))


def terms(rights: Rights = Rights.WORKSPACE_WRITE, **told: object) -> Terms:
    base: dict[str, object] = {
        "workspace": "/home/u/p",
        "home": "/home/u",
        "system": ("/usr", "/bin", "/etc/passwd", "/home/u/.tool", "/nowhere"),
        "env": (("HOME", "/home/u"),),
    }
    return Terms(rights=rights, **{**base, **told})  # type: ignore[arg-type]  # a table of keyword arguments


def plan(of: Terms, *, tier: str = "T1", abi: int = 7, found: Scan = FOUND) -> Plan:
    return compile_plan(of, found, (b"", b""), tier=tier, abi=abi, look=DISK.get, scratch="/var/scratch")
