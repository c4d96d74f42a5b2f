"""Untrusted text, made safe to show: nothing in it can move the cursor, change a colour, hide, or run backwards."""

import unicodedata

# Blank or invisible although Unicode calls them letters, marks or symbols: they hide text or carry smuggled bytes.
_HIDING = {
    0x034F,
    0x115F,
    0x1160,
    0x17B4,
    0x17B5,
    0x2800,
    0x3164,
    0xFFA0,
    *range(0x180B, 0x1810),
    *range(0xFE00, 0xFE0E),  # the two behind them make a sign an emoji, or none, which is seen
    *range(0xE0100, 0xE01F0),
}
_STACKED = 3  # marks on one letter that a language needs; more of them are drawn over the lines around
_STACKING = {"Mn", "Me"}
_HIDING_CATEGORIES = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"}


def visible(text: str, *, lines: bool = True) -> str:
    """`text` with every control, bidirectional, zero-width and look-alike blank character spelled out, and the marks
    that are piled upon one letter counted.

    With `lines`, newlines stay (CR LF becomes LF) and tabs become spaces; without, both are spelled out too, so that
    the answer is one line. Printable text comes back unchanged.
    """
    if text.isascii() and text.isprintable():
        return text
    if lines:
        text = text.replace("\r\n", "\n").expandtabs(4)
    return "".join(char if (lines and char == "\n") else _spell(char) for char in _flat(text))


def _flat(text: str) -> str:
    """`text` with no more marks on one letter than a language needs: of what is piled on top, only how many."""
    stacked = 0
    shown: list[str] = []
    for char in text:
        if char >= "\u0300" and unicodedata.category(char) in _STACKING:
            stacked += 1
            if stacked <= _STACKED:
                shown.append(char)
            continue
        if stacked > _STACKED:
            shown.append(f"⟨{stacked - _STACKED} marks more⟩")
        stacked = 0
        shown.append(char)
    if stacked > _STACKED:
        shown.append(f"⟨{stacked - _STACKED} marks more⟩")
    return "".join(shown)


def one_line(text: str, limit: int) -> str:
    """The whole of `text` on one safe line of at most `limit` characters; an ellipsis marks a cut."""
    shown = visible(text.strip(), lines=False)
    return shown if len(shown) <= limit else shown[: max(limit - 1, 0)] + "…"


def _spell(char: str) -> str:
    code = ord(char)
    if char == " " or (code not in _HIDING and unicodedata.category(char) not in _HIDING_CATEGORIES):
        return char
    if code < 0x20:
        return chr(0x2400 + code)  # the control pictures: ESC becomes ␛
    return "␡" if code == 0x7F else f"<U+{code:04X}>"


# Marks that pass for one of ASCII: hyphens, slashes, dots, bars, quotes, and a colon.
_PASSING = (
    "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u2215\u2044\u29f8\u2024\ua78f\u2223\u01c0"
    "\u2018\u2019\u201c\u201d\u2236\ua789"
)


def look_alikes(text: str, most: int = 5) -> tuple[str, ...]:
    """Words of a command whose letters or marks pass for others, each with the name of that letter: `most` of them."""
    if text.isascii():
        return ()
    found = []
    for word in text.split():
        posing = [char for char in dict.fromkeys(word) if _poses(char, word)]
        if posing:
            named = ", ".join(f"`{char}` is {unicodedata.name(char, 'unnamed').lower()}" for char in posing[:3])
            found.append(f"in `{one_line(word, 40)}`: {named}")
    return tuple(found[:most])


def _poses(char: str, word: str) -> bool:
    """Not of ASCII, and either made to look like it (full width, bold, ...) or a letter of another script beside it."""
    if char.isascii():
        return False
    if char in _PASSING or unicodedata.normalize("NFKC", char).isascii():
        return True
    other = char.isalpha() and not unicodedata.name(char, "").startswith("LATIN")
    return other and any(each.isascii() and each.isalpha() for each in word)
