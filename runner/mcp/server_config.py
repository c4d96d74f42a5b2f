"""The settings of one tool server: the table `[mcp.NAME]`, or an entry of another client's file."""

from dataclasses import field

from policy.model.frozen import dataclass
from policy.model.profile import Layer


@dataclass(frozen=True, slots=True)
class WorkspaceCopy:
    """A copy of the workspace, in which a server works in place of the workspace itself.

    Attributes:
        original: The absolute path of the workspace.
        path: The absolute path of the copy.
        config: The settings of the server for the workspace, about which the user was asked.
    """

    original: str
    path: str
    config: "ServerConfig"

    def named(self, path: str) -> str:
        """Return `path`, with the workspace in place of the copy if it lies there."""
        inside = path == self.path or path.startswith(f"{self.path}/")
        return f"{self.original}{path[len(self.path) :]}" if inside else path


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The settings of one tool server.

    Attributes:
        name: The name that the user chose; `certain_server(name)` holds. The model calls `mcp__NAME__TOOL`.
        layer: The layer of the configuration that contains the table.
        place: The file and the line of the table for messages, such as `~/.config/ringfence/config.toml:12`.
        command: The program of a server on this machine; empty for a remote server.
        args: The words after `command`.
        env: Pairs of the name and the value of a variable of the server. Variables of the user are inserted already.
        cwd: The absolute folder in which the server starts; empty for its own folder.
        url: The address of a remote server; empty for a server on this machine.
        transport: `stdio`, `http` (streamable HTTP) or `sse` (HTTP+SSE, for servers of before 2025-03).
        headers: Pairs of the name and the value of a header of each request to a remote server.
        tools: Patterns of the tools that the model may call; empty for all tools.
        exclude_tools: Patterns of tools that the model may not call.
        tiers: Pairs of a pattern of names of tools and the label of a tier (`read`, `write`, `network`, `dangerous`).
        results: Pairs of a pattern of names of tools and the label of their results (`untrusted`, `workspace`,
            `trusted`).
        private: True if results of the server are private data.
        timeout: The longest time of one call in seconds.
        callback_port: The port of 127.0.0.1 to which the browser returns from a sign-in; 0 for a free one.
        start_timeout: The longest time from the start of the server to its first answer in seconds.
        enabled: False if no session starts the server.
        hosts: Host rules that the sandbox of the server opens.
        read: Absolute paths that the server may read.
        write: Absolute paths that the server may change.
        copied: The copy of the workspace in which the server works, or None.
    """

    name: str
    layer: Layer
    place: str = ""
    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    cwd: str = ""
    url: str = ""
    transport: str = "stdio"
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    tools: tuple[str, ...] = ()
    exclude_tools: tuple[str, ...] = ()
    tiers: tuple[tuple[str, str], ...] = field(default=())
    results: tuple[tuple[str, str], ...] = field(default=())
    private: bool = False
    timeout: float = 60.0
    enabled: bool = True
    hosts: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    start_timeout: float = 30.0
    callback_port: int = 0
    copied: "WorkspaceCopy | None" = None

    @property
    def argv(self) -> tuple[str, ...]:
        """Return the words of the command; empty for a remote server."""
        return (self.command, *self.args) if self.command else ()
