"""Digests of short data without `hashlib`, whose import loads OpenSSL and takes 2 ms of a short command.

`random` of the standard library takes its digest from the same modules. OpenSSL is five times as fast, so it computes
the digest of long data, and every digest in a process that has loaded it.
"""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import sha256 as _sha256
else:
    try:
        from _sha2 import sha256 as _sha256  # since Python 3.12
    except ImportError:
        try:
            from _sha256 import sha256 as _sha256
        except ImportError:  # this Python was built without its own functions
            from hashlib import sha256 as _sha256

_LONG = 1 << 16  # bytes


def sha256_hex(data: bytes) -> str:
    """Return the SHA-256 of `data` as hexadecimal digits. SOURCE: FIPS 180-4."""
    if len(data) < _LONG and "hashlib" not in sys.modules:
        return _sha256(data).hexdigest()
    from hashlib import sha256

    return sha256(data).hexdigest()
