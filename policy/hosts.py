"""Hosts and files inside the words of network programs."""

import re

ADDRESS = re.compile(r"[A-Za-z0-9+.-]+://|([A-Za-z0-9_.-]+@)?[A-Za-z0-9_-][A-Za-z0-9_.-]+:(?!\\)")
LOGIN = re.compile(r"[A-Za-z0-9_.-]+@[A-Za-z0-9_.-]+:")
WHOLE_HOST = re.compile(r"[A-Za-z0-9+.-]+://[^/?#]+[/?#]")
SENT_FILE = re.compile(r"[^@<]*[@<]([^;]+)", re.DOTALL)  # `@path`, `name=@path;type=..`, `name@path`


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
