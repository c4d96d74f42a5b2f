"""The address of a repository that the user names, checked before Git sees it.

THREAT T255: an address may be an option of Git (`--upload-pack=...`), name a program (`ext::sh -c ...`), or hide
another host or a password. Only https, http on this machine, file addresses and folders are taken, in plain characters.
"""

import os
import re
from urllib.parse import urlsplit

from policy.model.frozen import dataclass
from runner.problems import Stopped, usage
from runner.text.sanitize import one_line

_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?")
_PATH = re.compile(r"/[A-Za-z0-9._~/+@-]*")
_SHORT = re.compile(r"[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+/[A-Za-z0-9._~/+-]+")  # github.com/owner/name
_LOOPBACK = ("127.0.0.1", "localhost")


@dataclass(frozen=True, slots=True)
class RepositoryAddress:
    """The address of a repository.

    Attributes:
        url: the address for Git, with a scheme.
        host: the host and the port, as rules name them; empty for a repository on this machine.
        folder: the real path of a repository on this machine; empty for a remote one.
        local: True if the host is this machine.
    """

    url: str
    host: str = ""
    folder: str = ""
    local: bool = False

    @property
    def name(self) -> str:
        """Return a name for the folder of the clone."""
        last = urlsplit(self.url).path.rstrip("/").removesuffix(".git").rpartition("/")[2]
        return re.sub(r"[^A-Za-z0-9_-]", "-", last).strip("-")[:60] or "repository"


def repository_address(text: str, cwd: str) -> RepositoryAddress:
    """Return the address that `text` means. A relative folder begins at `cwd`. Raise a usage error."""
    if text.startswith("-") or "::" in text or not text.isprintable() or not text.strip():
        raise _unusable(text, "it is no address of a repository")
    scheme, marked, rest = text.partition("://")
    if not marked:
        folder = os.path.join(cwd, text)
        if os.path.isdir(folder):
            return _local(text, folder)
        if _SHORT.fullmatch(text) and ".." not in text.split("/"):
            return RepositoryAddress(f"https://{text}", text.partition("/")[0].lower())
        raise _unusable(text, "there is no such folder, and it has no scheme")
    if scheme == "file":
        return _local(text, rest)
    host, slash, path = rest.partition("/")
    if scheme not in ("https", "http"):
        raise _unusable(text, f"the scheme `{one_line(scheme, 20)}` is not one of https and file")
    if "@" in host:
        raise _unusable(text, "it contains a user name or a password")
    if not _HOST.fullmatch(host):
        raise _unusable(text, "its host is not plain")
    if not _PATH.fullmatch(slash + path) or ".." in path.split("/"):
        raise _unusable(text, "its path is not plain")
    local = re.sub(r":[0-9]{1,5}$", "", host).lower() in _LOOPBACK
    if scheme == "http" and not local:
        raise _unusable(text, "http without encryption is possible only on this machine")
    return RepositoryAddress(text, host.lower(), local=local)


def _local(text: str, folder: str) -> RepositoryAddress:
    path = os.path.realpath(folder)
    if not folder.startswith("/") or not any(os.path.isdir(f"{path}/{each}") for each in (".git", "objects")):
        raise _unusable(text, "it is no folder with a Git repository")
    if not _PATH.fullmatch(path):
        raise _unusable(text, "the path contains characters that an address cannot have")
    return RepositoryAddress(f"file://{path}", "", path)


def _unusable(text: str, why: str) -> Stopped:
    fix = "write https://HOST/OWNER/NAME, or name a folder"
    return usage(f"`{one_line(text, 200)}` cannot be cloned", why, fix)
