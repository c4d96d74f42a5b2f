"""A QR code in a terminal, so that a phone can open a one-time link without typing it.

Byte mode, error correction level L, versions 1 to 10: up to 271 bytes. SOURCE: ISO/IEC 18004:2015.
"""

from collections.abc import Callable, Iterator, Sequence

# For each version: data codewords, error correction codewords of each block, blocks, and centres of alignment patterns.
# fmt: off
_VERSIONS = (
    (19,   7, 1, ()),          (34,  10, 1, (6, 18)),     (55,  15, 1, (6, 22)),     (80,  20, 1, (6, 26)),
    (108, 26, 1, (6, 30)),     (136, 18, 2, (6, 34)),     (156, 20, 2, (6, 22, 38)), (194, 24, 2, (6, 24, 42)),
    (232, 30, 2, (6, 26, 46)), (274, 18, 4, (6, 28, 50)),
)
_MASKS = (
    lambda row, column: (row + column) % 2 == 0,
    lambda row, column: row % 2 == 0,
    lambda row, column: column % 3 == 0,
    lambda row, column: (row + column) % 3 == 0,
    lambda row, column: (row // 2 + column // 3) % 2 == 0,
    lambda row, column: row * column % 2 + row * column % 3 == 0,
    lambda row, column: (row * column % 2 + row * column % 3) % 2 == 0,
    lambda row, column: ((row + column) % 2 + row * column % 3) % 2 == 0,
)
# fmt: on
_QUIET = 4  # light modules around the code
_FINDER_LIKE = ((1, 0, 1, 1, 1, 0, 1, 0, 0, 0, 0), (0, 0, 0, 0, 1, 0, 1, 1, 1, 0, 1))

Modules = list[list[bool]]
DrawModule = Callable[[int, int, bool], None]


def terminal_code(text: str) -> str | None:
    """Return the QR code of an ASCII text as lines for a terminal, dark on light; None if the text is too long."""
    modules = qr_modules(text)
    if modules is None:
        return None
    size = len(modules) + 2 * _QUIET
    wide = [[False] * size for _ in range(size + size % 2)]
    for row, line in enumerate(modules):
        wide[row + _QUIET][_QUIET : _QUIET + len(line)] = line
    signs = {(False, False): " ", (True, False): "▀", (False, True): "▄", (True, True): "█"}
    rows = ("".join(signs[pair] for pair in zip(*wide[row : row + 2], strict=True)) for row in range(0, len(wide), 2))
    return "\n".join(f"\x1b[38;5;16;48;5;231m{row}\x1b[0m" for row in rows)


def qr_modules(text: str) -> Modules | None:
    """Return the modules of the QR code of an ASCII text, True for dark; None if the text is too long."""
    data = text.encode("ascii")
    for version, (room, _, _, _) in enumerate(_VERSIONS, 1):
        count_bits = 8 if version < 10 else 16
        if 4 + count_bits + 8 * len(data) <= 8 * room:
            return min((_drawn(version, data, count_bits, mask) for mask in range(len(_MASKS))), key=_penalty)
    return None


def _drawn(version: int, data: bytes, count_bits: int, mask: int) -> Modules:
    size = 17 + 4 * version
    modules, fixed = ([[False] * size for _ in range(size)] for _ in range(2))

    def draw(row: int, column: int, dark: bool) -> None:
        modules[row][column], fixed[row][column] = dark, True

    _draw_patterns(version, size, draw)
    _draw_format(version, size, mask, draw)
    bits = _bits(_codewords(version, data, count_bits))
    for row, column in _zigzag(size):
        if not fixed[row][column]:
            modules[row][column] = next(bits, False) ^ _MASKS[mask](row, column)
    return modules


def _draw_patterns(version: int, size: int, draw: DrawModule) -> None:
    for at in range(size):
        draw(6, at, at % 2 == 0)
        draw(at, 6, at % 2 == 0)
    for top, left in ((0, 0), (0, size - 7), (size - 7, 0)):
        for row in range(max(top - 1, 0), min(top + 8, size)):
            for column in range(max(left - 1, 0), min(left + 8, size)):
                distance = max(abs(row - top - 3), abs(column - left - 3))
                draw(row, column, distance not in (2, 4))
    centres = _VERSIONS[version - 1][3]
    for middle in ((row, column) for row in centres for column in centres):
        if middle in ((6, 6), (6, size - 7), (size - 7, 6)):
            continue  # a finder pattern is there
        for row in range(middle[0] - 2, middle[0] + 3):
            for column in range(middle[1] - 2, middle[1] + 3):
                draw(row, column, max(abs(row - middle[0]), abs(column - middle[1])) != 1)


def _draw_format(version: int, size: int, mask: int, draw: DrawModule) -> None:
    """DrawModule the error correction level and the mask twice, and the version twice from version 7 on."""
    word = _with_remainder(0b01 << 3 | mask, 0x537, 10) ^ 0x5412  # level L
    for place in range(15):
        dark = bool(word >> place & 1)
        near = place if place < 6 else place + 1 if place < 8 else 0
        draw(*((near, 8) if place < 8 else (8, 7) if place == 8 else (8, 14 - place)), dark)
        draw(*((8, size - 1 - place) if place < 8 else (size - 15 + place, 8)), dark)
    draw(size - 8, 8, True)
    if version >= 7:
        word = _with_remainder(version, 0x1F25, 12)
        for place in range(18):
            far, near = size - 11 + place % 3, place // 3
            draw(far, near, bool(word >> place & 1))
            draw(near, far, bool(word >> place & 1))


def _with_remainder(value: int, divisor: int, bits: int) -> int:
    """Return `value` with the remainder of its division by a polynomial behind it (BCH code)."""
    rest = value << bits
    for place in range(value.bit_length() + bits - 1, bits - 1, -1):
        if rest >> place & 1:
            rest ^= divisor << (place - bits)
    return value << bits | rest


def _codewords(version: int, data: bytes, count_bits: int) -> bytes:
    """Return the data and the error correction in the order in which they are drawn."""
    room, corrections, blocks, _ = _VERSIONS[version - 1]
    stream = f"0100{len(data):0{count_bits}b}{''.join(f'{each:08b}' for each in data)}"
    stream += "0" * min(4, 8 * room - len(stream))
    stream += "0" * (-len(stream) % 8)
    words = [int(stream[at : at + 8], 2) for at in range(0, len(stream), 8)]
    words += [0xEC if number % 2 == 0 else 0x11 for number in range(room - len(words))]
    short, longer = room // blocks, blocks - room % blocks  # the first `longer` blocks have `short` words
    parts, at = [], 0
    for block in range(blocks):
        length = short + (block >= longer)
        parts.append(words[at : at + length])
        at += length
    checks = [_correction(part, corrections) for part in parts]
    mixed = [part[at] for at in range(short + 1) for part in parts if at < len(part)]
    return bytes(mixed + [check[at] for at in range(corrections) for check in checks])


def _correction(words: Sequence[int], count: int) -> list[int]:
    """Return the Reed-Solomon code of `words`: the remainder of a division by the generator polynomial."""
    generator, root = [1], 1
    for _ in range(count):
        product = [*generator, 0]
        for place, factor in enumerate(generator):
            product[place + 1] ^= _product(factor, root)
        generator, root = product, _product(root, 2)
    rest = [0] * count
    for word in words:
        factor = word ^ rest[0]
        rest = [each ^ _product(part, factor) for each, part in zip([*rest[1:], 0], generator[1:], strict=True)]
    return rest


def _product(one: int, other: int) -> int:
    """Return the product of two elements of the field of 256 elements with the polynomial 0x11D."""
    found = 0
    for place in range(8):
        if other >> place & 1:
            found ^= one << place
    for place in range(14, 7, -1):
        if found >> place & 1:
            found ^= 0x11D << (place - 8)
    return found


def _bits(words: bytes) -> Iterator[bool]:
    return (bool(word >> place & 1) for word in words for place in range(7, -1, -1))


def _zigzag(size: int) -> Iterator[tuple[int, int]]:
    """Yield the places of the data: pairs of columns from the right, upwards and downwards in turn."""
    upwards = True
    for right in (*range(size - 1, 6, -2), 5, 3, 1):
        for row in range(size - 1, -1, -1) if upwards else range(size):
            yield row, right
            yield row, right - 1
        upwards = not upwards


def _penalty(modules: Modules) -> int:
    """Return how hard the code is to read; the mask with the smallest value is used."""
    size, found = len(modules), 0
    for line in (*modules, *map(list, zip(*modules, strict=True))):
        run = 0
        for place, dark in enumerate(line):
            run = run + 1 if place and dark == line[place - 1] else 1
            found += 3 if run == 5 else 1 if run > 5 else 0
        found += 40 * sum(tuple(line[at : at + 11]) in _FINDER_LIKE for at in range(size - 10))
    for row in range(size - 1):
        for column in range(size - 1):
            square = (*modules[row][column : column + 2], *modules[row + 1][column : column + 2])
            found += 3 if len(set(square)) == 1 else 0
    dark = sum(each for line in modules for each in line)
    return found + 10 * (abs(dark * 20 - size * size * 10) // (size * size))
