"""Preferences: the limits and path lists of a session. Facts about commands are in `policy/commands`."""

from dataclasses import field
from typing import TYPE_CHECKING

from policy.model.frozen import dataclass
from policy.model.permission_rule import PermissionRule
from policy.model.verdict import Limits

if TYPE_CHECKING:
    from policy.model.credential import Credential


@dataclass(frozen=True, slots=True)
class Profile:
    """The settings of a session, validated when they are parsed.

    Attributes:
        secret_home: paths below the home folder that are secret (`.ssh`).
        secret_paths: absolute paths that are secret.
        secret_names: patterns of file names that are secret anywhere (`.env`, `*.pem`).
        public_names: exceptions from `secret_names`.
        locked: files that other programs run without being asked, relative to the workspace or to any nested
            repository.
        personal: the same kind of files, where this user's own settings make programs run them (`core.hooksPath` in
            `~/.gitconfig`).
        system: folders that every permit may read.
        etc: the entries of /etc that are system files.
        unix_sockets: True if commands that change the workspace may create sockets of the family AF_UNIX.
        credentials: the credentials that the proxy adds to requests of commands that may connect to a host.
        bundle: the file of certificates that makes commands accept TLS decrypted for that purpose; empty for none.
        denied: patterns of words that are never run.
        permissions: the users' own rules, lowest layer first.
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
