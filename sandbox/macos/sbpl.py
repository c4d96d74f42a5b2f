"""The compilation of Terms to a seatbelt profile: SBPL text and its parameters. It reads only files of this program.

SBPL is the input of sandbox-exec(1). Apple documents little of it, so facts come from the profiles of macOS itself.
Three facts matter in this module: access that no rule allows is denied; the *last* matching rule wins, so restrictions
come after permissions; and paths are compared as the kernel resolved them: `/tmp` is `/private/tmp`.
"""

import tomllib
from functools import lru_cache
from pathlib import Path
from posixpath import dirname

import profiles
from policy.model.frozen import dataclass
from policy.model.verdict import Rights, Terms
from sandbox.workspace.protected_paths import Scan

_ALIASES = ("/tmp", "/var", "/etc")  # links into /private on every Mac
_TERMINAL = '(require-all (regex #"^/dev/ttys[0-9]+$") (extension "com.apple.sandbox.pty"))'


@dataclass(frozen=True, slots=True)
class Sbpl:
    """A profile as `text`, with its `-D NAME=VALUE` `parameters` in order. The text itself contains no path."""

    text: str
    parameters: tuple[tuple[str, str], ...]


class _Paper:
    """The builder of a profile: its rules in order, and a parameter name for every path."""

    def __init__(self) -> None:
        self.lines: list[str] = ["(version 1)", "(deny default)"]
        self.named: dict[str, dict[str, str]] = {}  # kind -> path -> name

    def path(self, kind: str, path: str) -> str:
        known = self.named.setdefault(kind, {})
        return f'(param "{known.setdefault(actual(path), f"{kind}_{len(known)}")}")'

    def rule(self, head: str, *filters: str) -> None:
        """Add a rule with its filters. Without filters, add none, because `(allow file-read*)` means all files."""
        if filters:
            self.lines.append(f"({head}\n  " + "\n  ".join(filters) + ")")

    def sbpl(self) -> Sbpl:
        pairs = ((name, path) for known in self.named.values() for path, name in known.items())
        return Sbpl("\n".join(self.lines) + "\n", tuple(pairs))


def actual(path: str) -> str:
    """Return the kernel's own name of a path that starts with one of the links into /private."""
    first = "/" + path[1:].partition("/")[0]
    return f"/private{path}" if first in _ALIASES else path


def profile_for(
    terms: Terms, protected: Scan, *, scratch: str, code: tuple[str, ...] = (), proxy: int | None = None
) -> Sbpl:
    """Return the profile for `terms`.

    Args:
        scratch: The session's own folder for HOME and TMPDIR.
        code: Paths that our own process needs to perform a file action, read-only.
        proxy: The one port of this machine that may be connected to, for Terms with hosts.
    """
    facts, paper, work = _facts(), _Paper(), terms.rights is Rights.WORKSPACE_WRITE
    granted = [*terms.writable, *((terms.workspace, scratch, *filter(None, (terms.cache,))) if work else ())]
    session = () if terms.rights is Rights.ISOLATED else (terms.workspace, scratch)
    seen = [*terms.system, *terms.read, *code, *session, *granted]
    readable = [f'(subpath "{path}")' for path in facts["read"]]
    readable += [f"(subpath {paper.path('READ', path)})" for path in dict.fromkeys(seen)]
    paper.lines += ["(allow process-fork)", "(allow process-info* (target same-sandbox))"]
    paper.lines.append("(allow signal (target same-sandbox))")
    paper.rule("allow process-exec*", *readable)
    paper.rule("allow mach-lookup", *(f'(global-name "{name}")' for name in facts["mach"]))
    names = [f'(sysctl-name "{name}")' for name in facts["sysctl"]]
    paper.rule("allow sysctl-read", *names, *(f'(sysctl-name-prefix "{name}")' for name in facts["sysctl_prefixes"]))
    parents = [f"(literal {paper.path('PARENT', path)})" for path in _parents(seen)]
    paper.rule("allow file-read-metadata", *parents)
    entries = [f'(literal "{path}")' for path in facts["entries"]]
    paper.rule("allow file-read* file-map-executable", *entries, *readable, '(subpath "/dev/fd")')
    # A separate operation of newer systems. Older systems refuse a profile that contains its name.
    paper.lines.append("(when (defined? 'file-test-existence)")
    paper.rule("allow file-test-existence", *entries, *readable, *parents)
    paper.lines[-1] += ")"
    devices = [f'(literal "{path}")' for path in facts["devices"]]
    paper.rule("allow file-read* file-write-data file-ioctl", *devices, _TERMINAL)
    paper.rule("allow file-write-data", '(subpath "/dev/fd")')
    paper.lines.append("(allow pseudo-tty)")
    paper.rule("allow file-write*", *(f"(subpath {paper.path('WRITE', path)})" for path in granted))
    if work:
        paper.lines.append("(allow ipc-posix-sem)")  # for multiprocessing in Python; shared memory is not allowed
    _network(paper, terms, scratch, proxy, work=work)
    _withdraw(paper, terms, protected)
    return paper.sbpl()


def _network(paper: _Paper, terms: Terms, scratch: str, proxy: int | None, *, work: bool) -> None:
    """Write the rules for the network. There is no separate loopback: `localhost` has every service of this machine
    (T07).

    `remote` and `local` are the two ends of a connection: an outbound rule with the local end would open everything.
    """
    if work:
        paper.rule("allow network-bind", '(local ip "localhost:*")')
        paper.rule("allow network-inbound", '(local ip "localhost:*")')
    if terms.hosts and proxy is not None:
        paper.rule("allow network-outbound", f'(remote ip "localhost:{int(proxy)}")')
    if terms.unix:
        place = f"(subpath {paper.path('SOCKETS', scratch)})"
        paper.lines.append("(allow system-socket (socket-domain AF_UNIX))")
        paper.rule("allow network-bind network-inbound", f"(local unix-socket {place})")
        paper.rule("allow network-outbound", f"(remote unix-socket {place})")


def _withdraw(paper: _Paper, terms: Terms, protected: Scan) -> None:
    """Write the restrictions that hold regardless of earlier rules, and therefore come last."""
    paper.rule("deny file-write-setugid", '(subpath "/")')
    masked = [path for path in protected.masked if path not in terms.read]
    # Rules need no existing file, so that absent auto-run files cannot be created either.
    plain = [pattern for pattern in terms.locked if not any(c in pattern for c in "*?[")]
    absent = {f"{root}/{pattern}" for root in (protected.roots or (terms.workspace,)) for pattern in plain}
    locked = sorted({*protected.locked, *protected.shared, *absent} - set(terms.write))
    paper.rule("deny file-write*", *(f"(subpath {paper.path('LOCKED', path)})" for path in locked))
    # A rule names a path: renaming a parent folder would move the file out of the rule. A rename counts as an unlink.
    kept = [*masked, *locked]
    top = actual(terms.workspace)
    above = {path for path in _parents(kept) if path == top or path.startswith(top + "/")}
    pinned = sorted({*above, *protected.pinned})
    paper.rule("deny file-write-unlink", *(f"(literal {paper.path('PINNED', path)})" for path in pinned))
    paper.rule("deny file* process-exec*", *(f"(subpath {paper.path('MASKED', path)})" for path in masked))


def _parents(paths: list[str]) -> list[str]:
    """Return every parent folder: without its metadata a path cannot be walked, resolved, or returned by getcwd(3)."""
    above: set[str] = set()
    for path in map(actual, paths):
        while (path := dirname(path)) not in above:
            above.add(path)
    return sorted(above)


@lru_cache(maxsize=1)
def _facts() -> dict[str, list[str]]:
    text = (Path(str(profiles.__file__)).parent / "seatbelt" / "macos.toml").read_text("utf-8")
    facts: dict[str, list[str]] = tomllib.loads(text)
    return facts
