"""Hosts and files inside the words of network programs."""

import re

from policy.pattern import pattern

ADDRESS = pattern(r"[A-Za-z0-9+.-]+://|([A-Za-z0-9_.-]+@)?[A-Za-z0-9_-][A-Za-z0-9_.-]+:(?!\\)")
LOGIN = pattern(r"[A-Za-z0-9_.-]+@[A-Za-z0-9_.-]+:")
WHOLE_HOST = pattern(r"[A-Za-z0-9+.-]+://[^/?#]+[/?#]")
SENT_FILE = pattern(r"[^@<]*[@<]([^;]+)", re.DOTALL)  # `@path`, `name=@path;type=..`, `name@path`


def host_of(text: str) -> str | None:
    """The host that `text` names, or None for a local path."""
    scheme, found, rest = text.partition("://")
    if found:
        if scheme.lower() == "file":
            return None
        authority = rest.split("/")[0].split("?")[0].rsplit("@")[-1]
        host = authority.split("]")[0][1:] if authority.startswith("[") else authority.split(":")[0]
        return host.lower() or ""
    if text.startswith((".", "/", "~")):
        return None
    first = text.split("/")[0].rsplit("@")[-1]
    return first.split(":")[0].lower() or ""


def elsewhere(text: str) -> bool:
    """Whether `text` is `NAME:PATH`, a path on another machine or in a container, rather than a local one."""
    before, found, _ = text.partition(":")
    return bool(found) and "/" not in before and bool(before)


_MOUNT = pattern(r"[a-z-]+(=|,|\Z)")


def mounted(text: str) -> tuple[str, bool]:
    """The local path that a mount option hands over (empty for a volume by its name), and whether for reading only."""
    if _MOUNT.match(text) and "=" in text:
        fields = {name: value for name, _, value in (part.partition("=") for part in text.split(","))}
        source = next((fields[name] for name in ("source", "src") if name in fields), "")
        kept = [fields[name] for name in ("readonly", "ro") if name in fields]
        fixed = bool(kept) and all(value in ("", "true", "1") for value in kept)
        return source if fields.get("type") != "volume" or "/" in source else "", fixed
    source, _, rest = text.partition(":")
    options = rest.partition(":")[2].split(",")
    return source if source.startswith(("/", ".", "~")) else "", "ro" in options and "rw" not in options
