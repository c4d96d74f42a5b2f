"""TLS client hellos, whole and in pieces."""

import ssl
import struct

import pytest


def client_hello(name: str | None) -> bytes:
    """Return the ClientHello that OpenSSL sends for `name`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    inward, outward = ssl.MemoryBIO(), ssl.MemoryBIO()
    connection = context.wrap_bio(inward, outward, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        connection.do_handshake()
    return outward.read()


def extension(number: int, body: bytes) -> bytes:
    return struct.pack(">HH", number, len(body)) + body


def sni(*names: bytes, kind: int = 0) -> bytes:
    entries = b"".join(bytes((kind,)) + struct.pack(">H", len(name)) + name for name in names)
    return extension(0, struct.pack(">H", len(entries)) + entries)


def made(extensions: bytes, *, tail: bytes = b"", size: int | None = None, kind: int = 1) -> bytes:
    body = b"\x03\x03" + bytes(32) + b"\x00" + b"\x00\x02\x13\x01" + b"\x01\x00"
    body += struct.pack(">H", len(extensions)) + extensions + tail
    message = bytes((kind,)) + (len(body) if size is None else size).to_bytes(3, "big") + body
    return b"\x16\x03\x01" + struct.pack(">H", len(message)) + message


def split(data: bytes, *, every: int) -> bytes:
    """Return the message in many records of at most `every` bytes."""
    message = data[5:]
    pieces = [message[at : at + every] for at in range(0, len(message), every)]
    return b"".join(b"\x16\x03\x01" + struct.pack(">H", len(piece)) + piece for piece in pieces)
