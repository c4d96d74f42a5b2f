"""The attempts that the boundary stopped, inferred from the output of a command and marked as inferred.

A program's own message counts only if it fits the Terms: a path that was not granted, is masked or is read-only, or a
network that was not opened. A plain application error (a file that is missing everywhere) is not a violation.
"""

import os
import re
import stat

from policy.model.secret_paths import inside
from policy.model.verdict import Permit, Rights, Terms
from sandbox.backend import Outcome, Violation
from sandbox.inside.regular_file import real_path
from sandbox.workspace.protected_paths import Scan
from sandbox.workspace.secret_files import plain_names, secret_names

_ERROR = re.compile(
    r"permission denied|read-only file system|no such file or directory|operation not permitted|resource busy",
    re.IGNORECASE,
)
_NETWORK = re.compile(
    r"network is unreachable|could not resolve host|temporary failure in name resolution|name or service not known|"
    r"address family not supported|cannot assign requested address|failed to connect to|EAI_AGAIN|ENETUNREACH",
    re.IGNORECASE,
)
# SOURCE: messages of curl, git, wget, Node.js and urllib3 about a name that cannot be resolved.
_HOST = re.compile(
    r"""(?:resolve(?: host)?(?: address)?:? ['"‘“]?|getaddrinfo [A-Z_]+ )(?P<host>[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)"""
)
_FAMILY = re.compile(r"address family not supported|EAFNOSUPPORT", re.IGNORECASE)
_PATH = re.compile(r"""(?P<quote>['"`‘])(?P<quoted>/[^'"`’\n]+)['"`’]|(?<![\w.*?\]])(?P<bare>/[^\s:'"`,;()]+)""")
_PREFIX = re.compile(r"^\S+: line \d+: ")  # the prefix of error messages of bash
_READ_ONLY = re.compile(
    r"(?P<path>[^\s:'\"]+)['\"]?: Read-only file system$|Read-only file system: ['\"](?P<quoted>[^'\"]+)['\"]"
)
# A relative name counts only if the Terms hide it: a program without the right to run gives the same message.
_REFUSED = re.compile(
    r"(?P<path>[^\s:'\"]+)['\"]?: Permission denied$|permission denied[:,][^'\"]*['\"](?P<quoted>[^'\"]+)['\"]",
    re.IGNORECASE,
)
_BUSY = re.compile(r"['\"‘](?P<quoted>[^'\"’]+)['\"’][^'\"]*resource busy", re.IGNORECASE)
# The command's own loopback.
_NEAR = re.compile(r"localhost|\b127\.\d+\.\d+\.\d+|\[?::1\b|0\.0\.0\.0|connection refused", re.IGNORECASE)
_MISSING = "no such file or directory"
# A missing database is reported with its name between the words.
_WAL = re.compile(r"^(?:\w+ )?error: (?:in prepare, |stepping, )?unable to open database file\b", re.IGNORECASE)
_READ_ONLY_SAID = "read-only file system"
_PLAIN = ("permission denied", "operation not permitted")
_TAIL = 64 << 10  # bytes at the end of each stream that are examined
_MOST = 5


def explain(
    permit: Permit, outcome: Outcome, protected: Scan | None = None, *, private: bool = True
) -> tuple[Violation, ...]:
    """Return at most five violations in the order of their first mention; none if the command succeeded.

    Args:
        protected: The files that the mounts of the helper kept read-only.
        private: True for a private root, in which paths that are not granted do not exist. Otherwise they are refused.
    """
    if outcome.status == 0 or outcome.ended_by is not None:
        return ()
    terms = permit.terms
    violations: dict[str, Violation] = {}
    text = (outcome.stderr[-_TAIL:] + b"\n" + outcome.stdout[-_TAIL:]).decode("utf-8", "replace")
    for line in text.splitlines():
        if _FAMILY.search(line) and terms.rights is Rights.WORKSPACE_WRITE:
            violations.setdefault("family", _family(terms, private))
        elif _NETWORK.search(line) and not _NEAR.search(line) and not outcome.violations:  # the proxy knows exactly
            violations.setdefault("network", _network(terms, private, line))
        elif terms.rights is Rights.READ_ONLY and _WAL.search(line):
            violations.setdefault("wal", _write_ahead_log())
        error = _ERROR.search(line)
        if not error:
            continue
        error_text = error[0].lower()
        line = _PREFIX.sub("", line)
        names = [match["quoted"] or match["bare"] for match in _PATH.finditer(line)]
        names += [match["path"] or match["quoted"] for match in _READ_ONLY.finditer(line)]
        if "busy" in error_text:
            names += [match["quoted"] for match in _BUSY.finditer(line)]
        refused = [match["path"] or match["quoted"] for match in _REFUSED.finditer(line)]
        for name in dict.fromkeys((*names, *refused)):
            path = os.path.normpath(os.path.join(str(getattr(permit.action, "cwd", terms.workspace)), name))
            if _masked(path, terms) and error_text != _MISSING:
                what = f"`{path}` is masked: its name is that of a secret, or a rule denies reading it"
                fix = "continue without this file, or read it yourself, outside the agent"
                violations.setdefault(path, Violation(what, path, fix, inferred=True))
                continue
            closed = protected.closed if protected is not None and private else ()  # T3 masks nothing
            unreadable = next((each for each in closed if inside(path, each)), None)
            if unreadable is not None:
                what = f"`{unreadable}` is masked: its modes let nobody read it, so it cannot be checked for secrets"
                fix = "make it readable yourself, outside the agent (`chmod u+rwx`), or remove it there"
                violations.setdefault(unreadable, Violation(what, unreadable, fix, inferred=True))
                continue
            violation = _about(path, error_text, terms, protected, private)
            # A relative name that is not reached through a link is an error of the program itself.
            if violation is not None and (name in names or violation.path != path):
                violations.setdefault(path, violation)
    return tuple(violations.values())[:_MOST]


def _about(path: str, error_text: str, terms: Terms, protected: Scan | None, private: bool) -> Violation | None:
    """Return the violation that may have caused `error_text` about `path`; None if the sandbox did not cause it."""
    granted = (terms.workspace, *terms.read, *terms.writable)
    real = real_path(path) if any(inside(path, root) for root in granted) else path
    leads = "" if real == path else f"`{path}` leads to "
    # HOME is a separate folder of the sandbox in each tier. The user's home is outside, so a denial there does not show
    # whether a program wanted to read or to write.
    visible = (*terms.system, *granted)
    own = ("/tmp", "/dev", "/proc", "/run", terms.home) if private else ("/dev", "/proc")
    if any(inside(real, root) for root in visible):
        if error_text == _MISSING:
            return None  # granted for reading, so the file is really missing
        if private and error_text in _PLAIN:
            return None  # caused by the file's modes and owner: the boundary's errors are "read-only" and "busy"
        writable = (*terms.writable, *((terms.workspace,) if terms.rights is Rights.WORKSPACE_WRITE else ()))
        if any(inside(real, root) for root in writable):
            if not _kept(real, terms, protected):
                return None  # caused by a read-only mount of the host, or a folder in use
            what = f"{leads}`{real}` is kept read-only: it is an auto-run file, which other programs run or"
            what += " read automatically, or it has hard links elsewhere, or a rule denies changing it"
            return Violation(what, path, "change the file yourself, outside the agent", inferred=True)
        right = "write"
        if terms.rights is Rights.READ_ONLY and inside(real, terms.workspace):
            right = "change"
        if not private and not (_may(real, os.W_OK) and _readable(real)):
            return None  # caused by the file's modes, which also hold without a sandbox
        what = f"{leads}`{real}`, which is read-only here" if leads else f"the command may not {right} `{path}`"
        return Violation(what, path, _fix(real, terms), inferred=True, right=f"--write {real}")
    if private and error_text == _READ_ONLY_SAID and inside(real, "/proc"):
        what = f"`{path}` belongs to the kernel, and is read-only to every command"
        return Violation(what, path, "change the file yourself, outside the agent", inferred=True)
    if any(inside(real, place) for place in own) and not (
        private and inside(real, terms.home) and os.path.lexists(real)
    ):
        return None  # the sandbox's own: what is missing there, nobody took away
    # The folder of a granted path exists inside, too.
    folder = os.path.dirname(real)
    there = os.path.lexists(real) or (os.path.isdir(folder) and not any(inside(root, folder) for root in visible))
    if error_text == _MISSING and not (there and private):
        return None  # the path does not exist outside either, or nothing is hidden
    if not private and not _may(real, os.R_OK):
        return None
    whole = real_path(path)
    if private and not leads and any(inside(whole, root) for root in visible):
        what = f"`{path}` leads through a link that is not visible in the sandbox, but its target `{whole}` is"
        return Violation(what, path, f"use `{whole}` instead", inferred=True)
    what = f"{leads}`{real}`, which is not" if leads else f"`{path}` is not"
    # The program tried to create a path that does not exist.
    right = f"--read {real}" if os.path.lexists(real) and error_text != _READ_ONLY_SAID else f"--write {real}"
    return Violation(f"{what} among the paths of this command", path, _fix(real, terms), inferred=True, right=right)


def _kept(path: str, terms: Terms, protected: Scan | None) -> bool:
    """Return True if `path` is read-only or pinned in a writable folder."""
    if protected is not None:
        return any(inside(path, kept) for kept in (*protected.locked, *protected.shared)) or path in protected.pinned
    from fnmatch import fnmatchcase

    tail = path.removeprefix(terms.workspace).strip("/").split("/")
    ends = ["/".join(tail[start:stop]) for start in range(len(tail)) for stop in range(start + 1, len(tail) + 1)]
    return any(fnmatchcase(end, pattern) for pattern in terms.locked for end in ends)


def _may(path: str, how: int) -> bool:
    """Return True if the user has the access `how` (access(2)) to `path`, or to the folder of a missing path."""
    return os.access(path if os.path.lexists(path) else os.path.dirname(path), how)


def _readable(path: str) -> bool:
    """Return True if the modes let a command's user read `path`: root has no capability inside (path_resolution(7)).

    For a missing file its parent folders decide. The result is False if that is uncertain.
    """
    wanted = stat.S_IROTH
    if not os.path.lexists(path):
        path, wanted = os.path.dirname(path), stat.S_IXOTH
    while True:
        try:
            status = os.stat(path)
        except OSError:
            return False
        if status.st_uid == os.geteuid():
            granted = status.st_mode >> 6
        else:
            ours = status.st_gid in (os.getegid(), *os.getgroups())
            granted = status.st_mode >> 3 if ours else status.st_mode
        if granted & wanted != wanted:
            return False
        if path == "/":
            return True
        path, wanted = os.path.dirname(path), stat.S_IXOTH


def _masked(path: str, terms: Terms) -> bool:
    """Return True if the sandbox hides the path: by its name (`.env`), or as a place of the workspace (`/private`)."""
    inner = path.removeprefix(terms.workspace) if inside(path, terms.workspace) else ""
    names = inner.strip("/").split("/") if inner else []
    secret = secret_names(plain_names(terms.hidden), terms.shown)
    return any(secret("/".join(names[:count])) for count in range(1, len(names) + 1)) or any(
        inside(inner, entry) for entry in terms.hidden if inner and entry[:1] == "/"
    )


def _fix(path: str, terms: Terms) -> str:
    if terms.rights is Rights.READ_ONLY and inside(path, terms.workspace):
        return "the command was classified as reading only; name the file that it writes, so that the user can be asked"
    return f"name `{path}` in the command, so that the user can be asked; or use a path in the workspace"


def _family(terms: Terms, private: bool) -> Violation:
    what = "this command may not use AF_UNIX sockets"
    flags = "`agent exec --unix`, or `sandbox.unix_sockets = true`"
    fix = f"use a TCP port on 127.0.0.1; the user can allow such sockets: {flags}"
    if not private:  # without a separate network
        what = "no command may use sockets in this sandbox"
        fix = "the user can run it under T1 or T2: `agent doctor` shows what they need"
    elif terms.unix:
        what = "no command may use sockets of other families than IPv4, IPv6 and AF_UNIX"
        fix = "change the command so that it does not need that socket"
    return Violation(what, "", fix, inferred=True)


def _write_ahead_log() -> Violation:
    what = "the workspace is read-only to this command, and SQLite cannot create the `-wal` and `-shm` files there that"
    what += " a database in WAL mode needs"
    fix = 'if no other program changes the database, name it as `"file:NAME?immutable=1"`; or open it elsewhere first'
    return Violation(what, "", fix, inferred=True)


def _network(terms: Terms, private: bool, line: str) -> Violation:
    if terms.open_hosts:
        what = f"the command tried to connect without the proxy, its only way out ({', '.join(terms.open_hosts)})"
        fix = "make the program use `HTTP_PROXY`, or SOCKS5 at the same address (`socks5h://127.0.0.1:3128`)"
        return Violation(what, "", fix, inferred=True)
    match = _HOST.search(line)
    host = match["host"] if match else ""
    what = "the network is closed to this command (its terms name no host)"
    fix = "name the host in the command, so that the user can be asked; the user can allow it: `agent exec --host HOST`"
    fix += "" if private else ", under T1 or T2"
    return Violation(what, host, fix, inferred=True, right=f"--host {host}" if host else "")
