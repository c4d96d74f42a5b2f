"""Preferences: the limits and path lists that a session runs under. Facts about commands live elsewhere."""

from dataclasses import field
from typing import TYPE_CHECKING

from policy.model.frozen import dataclass
from policy.model.permission_rule import PermissionRule
from policy.model.verdict import Limits

if TYPE_CHECKING:
    from policy.model.credential import Credential


@dataclass(frozen=True, slots=True)
class Profile:
    """Parsed once, then trusted.

    `secret_home`: paths below the home that are secret (`.ssh`); `secret_paths`: absolute ones.
    `secret_names`: patterns of file names that are secret anywhere (`.env`, `*.pem`); `public_names`: exceptions.
    `locked`: what other programs run by themselves, relative to the workspace or any nested repository. `personal`: the
    same, where this user's own settings make those programs do so (`core.hooksPath` in `~/.gitconfig`).
    `system`: folders every permit may read; `etc`: the entries of /etc that are system files.
    `unix_sockets`: whether commands that change the workspace may make sockets of the family AF_UNIX.
    `credentials`: what the proxy adds to requests of commands that may talk to a host. `bundle`: the file of
    certificates by which commands believe the TLS that is opened for that; empty for none.
    `denied`: argv word patterns that are never run. `permissions`: the users' own rules, lowest layer first.
    """

    secret_home: tuple[str, ...]
    secret_paths: tuple[str, ...]
    secret_names: tuple[str, ...]
    public_names: tuple[str, ...]
    locked: tuple[str, ...]
    system: tuple[str, ...]
    etc: tuple[str, ...]
    environment: tuple[str, ...]  # names passed through from the caller's environment
    denied: tuple[tuple[str, ...], ...] = ()
    limits: Limits = field(default_factory=Limits)
    permissions: tuple[PermissionRule, ...] = ()
    unix_sockets: bool = False
    credentials: "tuple[Credential, ...]" = ()
    bundle: str = ""
    personal: tuple[str, ...] = ()
