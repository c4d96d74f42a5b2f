"""The parser of the beginning of a TLS connection, which finds the host name (RFC 8446, 4.1.2; RFC 6066, 3).

Nothing is decrypted: the first message of the client contains the name unencrypted.
"""

from sandbox.egress.ledger import Malformed

HANDSHAKE = 0x16
LONGEST = 16 << 10  # bytes: a ClientHello with post-quantum keys and a ticket takes less than 8 KiB
_RECORDS = 256  # the most TLS records for one hello: all data is parsed again whenever more arrives
_SERVER_NAME, _ENCRYPTED = 0, 0xFE0D


def server_name(data: bytes) -> tuple[bool, str]:
    """Return `(True, NAME)` once `data` holds a whole ClientHello, else `(False, "")`. NAME is empty if the hello has
    none.

    The hello may be split over several records, and each record may arrive in pieces. Raises Malformed for data that is
    not TLS, or whose host cannot be determined, such as a hello that hides its name (Encrypted ClientHello).
    """
    body, size = bytearray(), -1
    here = records = 0
    while size < 0 or len(body) < size:
        head = data[here : here + 5]
        if head[:1] not in (b"", b"\x16") or head[1:2] not in (b"", b"\x03"):
            raise Malformed("the connection is not TLS")
        if len(head) < 5:
            return False, ""
        length = int.from_bytes(data[here + 3 : here + 5], "big")
        if not 0 < length <= (16 << 10) + 256:  # RFC 8446, 5.2
            raise Malformed("a TLS record has an invalid length")
        body += data[here + 5 : here + 5 + length]
        records += 1
        if size < 0 and len(body) >= 4:
            size = 4 + int.from_bytes(body[1:4], "big")
            if body[0] != 1 or size > LONGEST:
                raise Malformed("the connection does not begin with a TLS ClientHello, or the ClientHello is too large")
        if records > _RECORDS:
            raise Malformed("the TLS ClientHello is split into too many records")
        if len(data) < here + 5 + length and (size < 0 or len(body) < size):
            return False, ""
        here += 5 + length
    if len(body) != size or data[here : here + 1] == b"\x16":
        # RFC 8446, 5.1: nothing may follow in the record. Only early data may follow before the server answers (2.3).
        raise Malformed("other data follows the TLS ClientHello before the server's answer")
    try:
        return True, _name(_extensions(bytes(body[4:])))
    except (IndexError, UnicodeDecodeError):
        raise Malformed("the TLS ClientHello cannot be parsed") from None


def _extensions(hello: bytes) -> dict[int, bytes]:
    """Return every extension by its number. Raises IndexError for an incomplete hello, Malformed for a repeated
    extension.
    """
    here = 2 + 32  # version, random
    here += 1 + hello[here]  # session
    here += 2 + _number(hello, here)  # cipher suites
    here += 1 + hello[here]  # compression
    if here == len(hello):
        return {}  # an old client: it names no host
    end = here + 2 + _number(hello, here)
    here += 2
    if end != len(hello):
        raise IndexError
    extensions: dict[int, bytes] = {}
    while here < end:
        kind, size = _number(hello, here), _number(hello, here + 2)
        here += 4 + size
        if here > end:
            raise IndexError
        if kind in extensions:
            raise Malformed("the TLS ClientHello contains an extension twice")
        extensions[kind] = hello[here - size : here]
    return extensions


def _name(extensions: dict[int, bytes]) -> str:
    if _ENCRYPTED in extensions:
        raise Malformed("the TLS connection hides its host name (Encrypted ClientHello)", status=403)
    value = extensions.get(_SERVER_NAME)
    if value is None:
        return ""
    # The value is a list of exactly one `host_name` (RFC 6066, 3: at most one name per type, and only one type exists).
    size = _number(value, 3)
    if _number(value, 0) != len(value) - 2 or value[2] != 0 or size != len(value) - 5 or not size:
        raise IndexError
    return value[5:].decode("ascii")


def _number(data: bytes, here: int) -> int:
    """Return the number in the next two bytes. Raises IndexError at the end of `data`."""
    return data[here] << 8 | data[here + 1]
