"""The upstream HTTP proxy of the user's configuration: the tunnels through which hosts are reached."""

import asyncio
import socket
from urllib.parse import urlsplit

from sandbox.egress.ledger import Failed

_LONGEST = 8 << 10  # bytes of the head of an answer
_ANSWER = 30.0  # seconds for the answer to a request for a tunnel
_PASSWORD = 407


def proxy_address(text: str) -> tuple[str, int]:
    """Return host and port of `http://host:port`. Raises ValueError with the reason in words."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError("it is not a valid address") from None
    if parts.username is not None or parts.password is not None:
        raise ValueError("it contains a user name or a password, which this file must not contain")
    if parts.scheme != "http":
        raise ValueError("only `http://` is supported: the tunnels in it are encrypted by their own TLS")
    if not parts.hostname or not port or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError("it is not a host and a port")
    return parts.hostname, port


async def open_tunnel(sock: socket.socket, host: str, port: int) -> None:
    """Request a tunnel to `host` and `port` from the proxy to which `sock` is connected. Raises Failed if the proxy
    refuses, and OSError.

    Exactly the head of the answer is read, because the host may send data first.
    """
    loop = asyncio.get_running_loop()
    name = f"{host}:{port}"
    await loop.sock_sendall(sock, f"CONNECT {name} HTTP/1.1\r\nHost: {name}\r\n\r\n".encode("ascii"))
    head = b""
    try:
        async with asyncio.timeout(_ANSWER):
            while not head.endswith(b"\r\n\r\n"):
                piece = await loop.sock_recv(sock, 1)
                if not piece or len(head) > _LONGEST:
                    raise Failed(f"the upstream proxy sent no valid answer for host {host}", host=host)
                head += piece
    except TimeoutError:
        raise Failed(f"the upstream proxy did not answer in time for host {host}", host=host, status=504) from None
    words = head.partition(b"\r\n")[0].decode("latin-1").split(None, 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or len(words[1]) != 3 or not words[1].isdecimal():
        raise Failed(f"the upstream proxy sent no valid answer for host {host}", host=host)
    status = int(words[1])
    if 200 <= status < 300:
        return
    reason = "".join(char if " " <= char <= "~" else "?" for char in " ".join(words[1:]))[:80]
    fix = "ask who runs the proxy to allow this host"
    if status == _PASSWORD:
        fix = "use a proxy that asks for no password, such as one on this machine that adds the password"
    raise Failed(f"the upstream proxy refused host {host} ({reason})", host=host, fix=fix)
