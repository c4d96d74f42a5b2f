"""Delta decoder for packs and binary patches of Git (gitformat-pack(5), "Deltified representation")."""


class DeltaError(ValueError):
    """Error for bytes that are not a delta, or a damaged one."""


class WrongBaseError(DeltaError):
    """Error for a delta with a base of another size, or with a result that is larger than allowed."""


def applied(delta: bytes, base: bytes, most: int) -> bytes:
    """Return the content that `delta` makes of `base`. `most`: bytes that the content may have.

    Raises WrongBaseError and DeltaError."""
    try:
        size, at = size_in(delta, 0)
        target, at = size_in(delta, at)
        if size != len(base) or target > most:
            raise WrongBaseError
        out = bytearray()
        while at < len(delta):
            code = delta[at]
            at += 1
            if code & 0x80:
                start = length = 0
                for bit in range(7):
                    if code & (1 << bit):
                        value = delta[at]
                        at += 1
                        if bit < 4:
                            start |= value << (8 * bit)
                        else:
                            length |= value << (8 * (bit - 4))
                piece = base[start : start + (length or 0x10000)]
                if len(piece) != (length or 0x10000):
                    raise DeltaError
            else:
                piece = delta[at : at + code]
                at += code
                if not code or len(piece) != code:
                    raise DeltaError
            out += piece
            if len(out) > target:
                raise DeltaError
    except IndexError:
        raise DeltaError from None
    if len(out) != target:
        raise DeltaError
    return bytes(out)


def size_in(data: bytes, at: int) -> tuple[int, int]:
    """Return the size in a delta at offset `at`, and the offset behind it.

    Raises IndexError if there is no size, or a size of more than 10 bytes: longer numbers would take quadratic time.
    """
    value = shift = 0
    while shift <= 63:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, at
    raise IndexError(at)


def distance_in(data: bytes, at: int) -> tuple[int, int]:
    """Return a number in the encoding of offsets of a pack at offset `at`, and the offset behind it.

    Raises IndexError if there is no number, or a number of more than 64 bits.
    """
    byte, value = data[at], data[at] & 0x7F
    while byte & 0x80 and value < 1 << 64:
        at += 1
        byte = data[at]
        value = ((value + 1) << 7) | (byte & 0x7F)
    if byte & 0x80:
        raise IndexError(at)
    return value, at + 1
