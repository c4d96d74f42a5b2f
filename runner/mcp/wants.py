"""The rights that a tool server seems to need: those that would have allowed what its sandbox stopped."""

import os
from collections.abc import Callable, Iterable, Sequence

from policy.model.frozen import dataclass
from policy.model.secret_paths import inside
from policy.model.verdict import Terms
from runner.mcp.server_config import ServerConfig
from sandbox.backend import Violation

_MOST = 10
# Programs that download a package at each start, with the name of the package manager whose registries they use.
_DOWNLOADS = {
    **dict.fromkeys(("npx", "npm", "pnpm", "pnpx", "bunx", "yarn"), "npm"),
    **dict.fromkeys(("uvx", "uv"), "uv"),
    "pipx": "pip",
}


@dataclass(frozen=True, slots=True)
class WantedRight:
    """One right that a server seems to need.

    Attributes:
        flag: `--read PATH`, `--write PATH` or `--host HOST`, as options of `agent mcp add`.
        why: What the server tried, in words. A program may lie about it.
    """

    flag: str
    why: str

    @property
    def words(self) -> str:
        """Return the right in words: `read ~/notes`, `connect to api.example`."""
        name, _, value = self.flag.partition(" ")
        return f"{ {'--read': 'read', '--write': 'change', '--host': 'connect to'}.get(name, name) } {value}"


def wanted_rights(
    config: ServerConfig,
    terms: Terms | None,
    violations: Iterable[Violation],
    registries: Callable[[str], Sequence[str]] = lambda program: (),
) -> tuple[WantedRight, ...]:
    """Return the rights that a server seems to need, after it ran with `terms`: those of `violations`, and the paths
    among its words that exist and that it could not see.

    `registries` returns the hosts from which a program such as `npx` downloads packages. Such a program may wait for
    them without a word.
    """
    found = {each.right: WantedRight(each.right, each.what) for each in violations if each.right}
    program = os.path.basename(config.command)
    if kind := _DOWNLOADS.get(program) if not config.hosts else None:
        for host in registries(kind):
            found.setdefault(
                f"--host {host}", WantedRight(f"--host {host}", f"`{program}` downloads its package there")
            )
    if terms is not None:
        visible = (*terms.system, *terms.read, *terms.writable, terms.workspace)
        for path in _paths(config.args):
            if not any(inside(path, root) for root in visible):
                right = f"--read {path}"
                found.setdefault(right, WantedRight(right, "its command line names this path"))
    written = {flag.partition(" ")[2] for flag in found if flag.startswith("--write ")}
    kept = [right for flag, right in found.items() if not flag.startswith("--read ") or flag[7:] not in written]
    return tuple(kept[:_MOST])


def _paths(words: Sequence[str]) -> list[str]:
    """Return the existing absolute paths among the words of a command, also those behind `NAME=`."""
    found = []
    for word in words:
        text = word.partition("=")[2] if word.startswith("-") and "=" in word else word
        if text.startswith("/") and len(text) < 4096 and "\0" not in text and os.path.exists(text):
            found.append(os.path.realpath(text))
    return found
