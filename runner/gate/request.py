"""The request to judge one action: what was typed after `agent exec`, `agent why` or `agent sandbox show`."""

from policy.model.frozen import dataclass
from policy.model.tier import Mode


@dataclass(frozen=True, slots=True)
class GateArgs:
    """Exactly one of `script` and `argv` is given; with `tool` (not `bash`), and for `sandbox show`, neither has to be.

    `read`, `write`, `hosts`, `env`: as typed.
    """

    script: str | None
    argv: tuple[str, ...] | None
    mode: Mode | None = None
    unattended: bool = False
    cwd: str | None = None
    config: str | None = None
    json: bool = False
    limits: tuple[str, ...] = ()
    timeout: str | None = None
    backend: str | None = None
    least: str | None = None  # `full` or `partial`: what --require and --accept-partial say
    unix: bool = False
    tool: str | None = None
    path: str | None = None
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
