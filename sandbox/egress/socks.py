"""The SOCKS5 protocol of RFC 1928: no authentication, CONNECT only, and names are resolved by the proxy."""

import socket

from sandbox.egress.ledger import EgressRefused, Failed, Malformed

VERSION = 5
GREETED = b"\x05\x00"  # no authentication needed
_NO_METHOD = b"\x05\xff"
_DONE, _FAILED, _FORBIDDEN, _UNREACHABLE, _NO_COMMAND, _NO_ADDRESS = 0, 1, 2, 4, 7, 8


class Unanswerable(Malformed):
    """An error that SOCKS has a reply for: `answer` is sent before the connection ends."""

    def __init__(self, what: str, answer: bytes) -> None:
        super().__init__(what)
        self.answer = answer


def greeting(data: bytes) -> int:
    """Return the length of the greeting in bytes; 0 while it is incomplete. Raises Unanswerable."""
    if data[:1] == b"\x04":
        # SOCKS4: the answer of that version (VN 0, CD 91: rejected).
        raise Unanswerable("SOCKS4 cannot name a host; use SOCKS5 (`socks5h://`)", b"\x00\x5b" + bytes(6))
    if len(data) < 2 or len(data) < 2 + data[1]:
        return 0
    if 0 not in data[2 : 2 + data[1]]:
        raise Unanswerable("the proxy accepts SOCKS5 only without authentication", _NO_METHOD)
    return 2 + data[1]


def request(data: bytes) -> tuple[int, str, int]:
    """Return the size of the request in bytes, its host as written (an IPv6 address in brackets), and its port.

    The result is `(0, "", 0)` while the request is incomplete. Raises Unanswerable for all commands but CONNECT, and
    for an invalid request.
    """
    if len(data) < 5:
        return 0, "", 0
    if data[0] != VERSION or data[2] != 0:
        raise Unanswerable("the SOCKS request is invalid", _answer(_FAILED))
    if data[1] != 1:
        named = {2: "BIND", 3: "UDP ASSOCIATE"}.get(data[1], f"command {data[1]}")
        raise Unanswerable(f"SOCKS5 {named} is not supported, only CONNECT", _answer(_NO_COMMAND))
    sizes = {1: 4, 3: 1 + data[4], 4: 16}
    if data[3] not in sizes:
        raise Unanswerable("the SOCKS request has an unknown address type", _answer(_NO_ADDRESS))
    end = 4 + sizes[data[3]]
    if len(data) < end + 2:
        return 0, "", 0
    value = data[4:end]
    if data[3] == 1:
        host = socket.inet_ntop(socket.AF_INET, value)
    elif data[3] == 4:
        host = f"[{socket.inet_ntop(socket.AF_INET6, value)}]"
    else:
        host = value[1:].decode("latin-1")
    return end + 2, host, int.from_bytes(data[end : end + 2], "big")


def answer(error: EgressRefused | None) -> bytes:
    """Return the reply to a request: connected if `error` is None, else the kind of failure."""
    if isinstance(error, Unanswerable):
        return error.answer
    kinds = {type(None): _DONE, Failed: _UNREACHABLE, Malformed: _FAILED}
    return _answer(kinds.get(type(error), _FORBIDDEN))


def _answer(code: int) -> bytes:
    # The bound address is not revealed.
    return bytes((VERSION, code, 0, 1)) + bytes(6)
