"""Request to judge one action: the arguments of `agent exec`, `agent why` or `agent sandbox show`."""

from policy.model.frozen import dataclass
from policy.model.tier import Mode


@dataclass(frozen=True, slots=True)
class GateArgs:
    """Arguments of a request. Exactly one of `script` and `argv` is given, unless `tool` is not `bash`, or for `sandbox
    show`.

    `read`, `write`, `hosts` and `env` are the values as typed.
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
