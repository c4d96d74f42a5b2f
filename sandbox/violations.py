"""What the boundary stopped, in words. Without the kernel's audit records this is an inference, and says so.

A program's own message is only believed when it fits the Terms: an absolute path that was not granted, or a network
that was not opened. A plain application error (a file that is missing everywhere) is no violation.
"""

import os
import re

from policy.secrecy import inside
from policy.verdict import Permit, Rights, Terms
from sandbox.backend import Outcome, Violation

_ERROR = re.compile(
    r"permission denied|read-only file system|no such file or directory|operation not permitted|resource busy",
    re.IGNORECASE,
)
_NETWORK = re.compile(
    r"network is unreachable|could not resolve host|temporary failure in name resolution|name or service not known|"
    r"address family not supported|cannot assign requested address|failed to connect to|EAI_AGAIN|ENETUNREACH",
    re.IGNORECASE,
)
_PATH = re.compile(r"""(?P<quote>['"`‘])(?P<quoted>/[^'"`’\n]+)['"`’]|(?<![\w.*?\]])(?P<bare>/[^\s:'"`,;()]+)""")
_PREFIX = re.compile(r"^\S+: line \d+: ")  # bash names itself and the line first
_READ_ONLY = re.compile(
    r"(?P<path>[^\s:'\"]+)['\"]?: Read-only file system$|Read-only file system: ['\"](?P<quoted>[^'\"]+)['\"]"
)
# A relative name is only believed where the Terms hide it: programs without the right to run say the same.
_REFUSED = re.compile(
    r"(?P<path>[^\s:'\"]+)['\"]?: Permission denied$|permission denied[:,][^'\"]*['\"](?P<quoted>[^'\"]+)['\"]",
    re.IGNORECASE,
)
_TAIL = 64 << 10  # bytes of each stream that are looked at
_MOST = 5


def explain(permit: Permit, outcome: Outcome) -> tuple[Violation, ...]:
    """At most five, in the order of their first mention. Empty when the command ended well or the text says nothing."""
    if outcome.status == 0 or outcome.ended_by is not None:
        return ()
    terms = permit.terms
    found: dict[str, Violation] = {}
    text = (outcome.stderr[-_TAIL:] + b"\n" + outcome.stdout[-_TAIL:]).decode("utf-8", "replace")
    for line in text.splitlines():
        if _NETWORK.search(line):
            found.setdefault("network", _network(terms))
        if not _ERROR.search(line):
            continue
        line = _PREFIX.sub("", line)
        names = [match["quoted"] or match["bare"] for match in _PATH.finditer(line)]
        names += [match["path"] or match["quoted"] for match in _READ_ONLY.finditer(line)]
        refused = [match["path"] or match["quoted"] for match in _REFUSED.finditer(line)]
        for name in dict.fromkeys((*names, *refused)):
            path = os.path.normpath(os.path.join(_folder(permit, terms), name))
            hidden = _masked(path, terms) and "no such file" not in line.lower()
            violation = _about(path, line, terms) if name in names and not hidden else None
            if hidden or violation is not None:
                found.setdefault(path, violation or _hidden(path))
    return tuple(found.values())[:_MOST]


def _about(path: str, line: str, terms: Terms) -> Violation | None:
    missing = "no such file" in line.lower()
    writable = terms.write + ((terms.workspace, "/tmp") if terms.rights is Rights.WORK else ())  # inside
    if any(inside(path, root) for root in writable):
        if missing or not inside(path, terms.workspace):
            return None
        return Violation(
            f"`{path}` is kept read-only: other programs run or read it by themselves, or a rule denies changing it",
            path,
            "change it yourself, outside the agent",
            inferred=True,
        )
    visible = (*terms.system, *terms.read, terms.workspace)
    if any(inside(path, root) for root in visible):
        if missing:
            return None  # granted for reading and really not there
        right = "writing" if terms.rights is Rights.WORK or not inside(path, terms.workspace) else "changing anything"
        return Violation(f"{right} `{path}` is not in its terms", path, _fix(path, terms), inferred=True)
    if not (os.path.lexists(path) or os.path.isdir(os.path.dirname(path))):
        return None  # it does not exist outside either
    return Violation(f"`{path}` is outside what this command was given", path, _fix(path, terms), inferred=True)


def _masked(path: str, terms: Terms) -> bool:
    """Whether the sandbox hides it: by its name (`.env`), or as a place of the workspace (`/private`)."""
    from fnmatch import fnmatchcase

    inner = path.removeprefix(terms.workspace) if inside(path, terms.workspace) else ""
    parts = inner.strip("/").split("/") if inner else []
    names = [part for part in parts if not any(fnmatchcase(part, shown) for shown in terms.shown)]
    return any(
        inside(inner, entry) if entry.startswith("/") else any(fnmatchcase(name, entry) for name in names)
        for entry in terms.hidden
        if inner
    )


def _hidden(path: str) -> Violation:
    what = f"`{path}` is masked: it is a secret by its name, or a rule denies reading it"
    return Violation(what, path, "do without it, or look at it yourself, outside the agent", inferred=True)


def _folder(permit: Permit, terms: Terms) -> str:
    return str(getattr(permit.action, "cwd", terms.workspace))


def _fix(path: str, terms: Terms) -> str:
    if terms.rights is Rights.LOOK and inside(path, terms.workspace):
        return "it was classified as reading only; say what it writes in the command itself, and the gate will ask"
    return f"name `{path}` in the command itself: the gate then asks, or says why not; or use a path in the workspace"


def _network(terms: Terms) -> Violation:
    hosts = ", ".join(terms.hosts) or "no host"
    return Violation(
        f"the network is closed to this command ({hosts} in its terms)",
        "",
        "let the command name its host so that the gate can ask, or do without the network",
        inferred=True,
    )
