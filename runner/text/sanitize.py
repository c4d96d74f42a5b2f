"""Untrusted text made safe to print: no part of it can move the cursor, change a colour, hide, or run backwards."""

import re
import unicodedata
from collections.abc import Iterator

from policy.model.digest import sha256_hex

# Blank or invisible although Unicode calls them letters, marks or symbols: they hide text or carry smuggled bytes.
_HIDING = {
    *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, 0xFFFC, 0x13441, 0x13442, 0x16FE4, 0x1D159),
    *range(0x180B, 0x1810),
    *range(0xFE00, 0xFE0E),  # without EMOJI_SELECTORS
    *range(0xE0100, 0xE01F0),
}
_HIDING_CATEGORIES = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"}
_MARKS = {"Mn", "Me", "Mc"}  # characters that are drawn onto the one before
_STACKED = 2  # marks on one letter that a language needs; more of them cover the lines around
_STACKED_IN_PROSE = 3
# Parts of a Hangul syllable. Vowels and finals are drawn onto the character before them.
_LEADING = frozenset(map(chr, (*range(0x1100, 0x115F), *range(0xA960, 0xA97D))))
_VOWELS = frozenset(map(chr, (*range(0x1161, 0x11A8), *range(0xD7B0, 0xD7C7))))
_FINALS = frozenset(map(chr, (*range(0x11A8, 0x1200), *range(0xD7CB, 0xD7FC))))
_KEYCAP, _KEYS = "\u20e3", frozenset("0123456789#*")  # the frame of a keycap emoji, and the characters in it
EMOJI_SELECTORS = "\ufe0e\ufe0f"  # show the character before them as plain text or as an emoji


def visible(text: str, *, lines: bool = True, prose: bool = False) -> str:
    """Return `text` with every character spelled out that is invisible or that moves, hides or covers other text.

    These are control, bidirectional, zero-width and invisible characters, blanks other than the ASCII space, variation
    selectors, and combining marks where no language uses them: a mark stays on a letter with which it makes one
    character (Unicode normalization form C) or on a letter of its own script. Vowels and finals of Hangul stay in a
    syllable.

    With `lines`, newlines stay (CR LF becomes LF) and tabs become spaces; without `lines`, both are spelled out, so
    that the result is one line. `prose` is for text that no decision depends on (words of the model and of the user,
    output of commands): up to three marks on any character stay, and a variation selector stays after a character that
    has an emoji. Printable ASCII and results of this function are returned unchanged.
    """
    if text.isascii() and (text.replace("\n", "") if lines else text).isprintable():
        return text
    if lines:
        text = text.replace("\r\n", "\n").expandtabs(4)
    shown = _in_prose(text) if prose else spelled(text)
    return "".join(char if (lines or char != "\n") else _spell(char) for char in shown)


def spelled(text: str) -> list[str]:
    """Return the shown form of each character of `text`, one item per character; newlines stay."""
    if text.isascii():
        return [char if char.isprintable() or char == "\n" else _spell(char) for char in text]
    found: list[str] = []
    base, stacked = "", 0
    for char in text:
        if char >= "\u0300" and unicodedata.category(char) in _MARKS:
            stacked += 1
            if stacked > _STACKED or not _belongs(char, base):
                char = base = f"<U+{ord(char):04X}>"  # a further mark would be drawn onto the end of this item
            found.append(char)
            continue
        base, stacked = (char if char == "\n" else _spell(char, base)), 0
        found.append(base)
    return found


def _belongs(mark: str, base: str) -> bool:
    """Return True if a language has `mark` on the letter `base`."""
    if len(base) != 1:  # there is no character before the mark, or it is spelled out
        return False
    drawn_over = unicodedata.category(mark) == "Me" or unicodedata.combining(mark) == 1  # strikes out or encloses
    if drawn_over or not base.isalpha() or _spell(mark) != mark:
        return False
    if len(unicodedata.normalize("NFC", base + mark)) == 1:
        return True
    return not base.isascii() and _script(mark) in (_script(base), "COMBINING")


def _has_room(char: str, before: str) -> bool:
    """Return False for a part of a Hangul syllable that is drawn onto `before`, which does not begin that syllable."""
    if char in _VOWELS:
        return before in _LEADING
    if char in _FINALS:
        return before in _VOWELS or ("\uac00" <= before <= "\ud7a3" and (ord(before) - 0xAC00) % 28 == 0)
    return True


def _script(char: str) -> str:
    """Return the first word of a character's name: for letters and marks of one script, that script."""
    return unicodedata.name(char, "").partition(" ")[0]


def _in_prose(text: str) -> Iterator[str]:
    """Yield the shown form of prose in pieces. Marks on one character after the third are replaced by their number."""
    base, stacked = "", 0
    for place, char in enumerate(text):
        if char >= "\u0300" and unicodedata.category(char) in _MARKS:
            shown = _spell(char)
            if char in EMOJI_SELECTORS:
                key = base in _KEYS and text[place + 1 : place + 2] == _KEYCAP
                if _has_emoji(base) or key:
                    yield char
                    continue
                shown = f"<U+{ord(char):04X}>"
            if shown == char:
                stacked += 1
                if stacked <= _STACKED_IN_PROSE:
                    yield char
                continue
            char = shown
        if stacked > _STACKED_IN_PROSE:
            yield f"⟨{stacked - _STACKED_IN_PROSE} marks more⟩"
        base, stacked = (char if char == "\n" or len(char) > 1 else _spell(char, base)), 0
        yield base
    if stacked > _STACKED_IN_PROSE:
        yield f"⟨{stacked - _STACKED_IN_PROSE} marks more⟩"


def _has_emoji(char: str) -> bool:
    """Return True for a sign that is shown as an emoji or as plain text: a symbol, or one of a few others.

    Source: emoji-variation-sequences.txt of the Unicode Character Database.
    """
    return len(char) == 1 and (char in "‼⁉ℹ〰〽" or unicodedata.category(char) in ("So", "Sm"))


def one_line(text: str, limit: int) -> str:
    """Return `text` on one safe line of at most `limit` characters; an ellipsis marks a cut."""
    shown = visible(text.strip(), lines=False)
    return shown if len(shown) <= limit else shown[: max(limit - 1, 0)] + "…"


def _spell(char: str, before: str = "") -> str:
    code = ord(char)
    if char == " " or (code not in _HIDING and unicodedata.category(char) not in _HIDING_CATEGORIES):
        return char if char < "\u1161" or _has_room(char, before) else f"<U+{code:04X}>"
    if code < 0x20:
        return chr(0x2400 + code)  # the control pictures: ESC becomes ␛
    return "␡" if code == 0x7F else f"<U+{code:04X}>"


# Characters that look like a hyphen, slash, dot, bar, quote or colon of ASCII.
_PASSING = (
    "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u2215\u2044\u29f8\u2024\ua78f\u2223\u01c0"
    "\u2018\u2019\u201c\u201d\u2236\ua789"
)


def look_alikes(text: str) -> tuple[str, ...]:
    """Return the first five words of a command with letters or marks that look like others, each with the name of the
    letter.
    """
    if text.isascii():
        return ()
    found = []
    for word in text.split():
        posing = [char for char in dict.fromkeys(word) if _poses(char, word)]
        if posing:
            named = ", ".join(f"`{char}` is {unicodedata.name(char, 'unnamed').lower()}" for char in posing[:3])
            found.append(f"in `{one_line(word, 40)}`: {named}")
    return tuple(found[:5])


def _poses(char: str, word: str) -> bool:
    """Return True for a character that is not ASCII and looks like ASCII (full width, bold, ...), or is a letter of
    another script in a `word` with letters of ASCII.
    """
    if char.isascii():
        return False
    if char in _PASSING or unicodedata.normalize("NFKC", char).isascii():
        return True
    other = char.isalpha() and not unicodedata.name(char, "").startswith("LATIN")
    return other and any(each.isascii() and each.isalpha() for each in word)


def visible_prose(text: str) -> str:
    """Return prose (see `visible`) with invisible and reversing characters spelled out. Tabs stay."""
    return "\t".join(visible(part, prose=True) for part in text.split("\t"))


def marked(tag: str, text: str, /, *, mark: str = "", **attributes: str) -> str:
    """Return `text` between two tags with the name `tag`; `attributes` are those of the opening tag.

    THREAT T73: the text cannot contain the closing tag, because that tag contains `mark`: the hash of the text
    (default), or of a text that contains it.
    """
    mark = mark or sha256_hex(text.encode("utf-8", "surrogatepass"))[:16]
    values = {key: one_line(value, 4096).replace('"', "'") for key, value in attributes.items()}
    words = "".join(f' {key}="{value}"' for key, value in values.items())
    return f'<{tag}{words} number="{mark}">\n{text}\n</{tag} {mark}>'


def without_ci_commands(line: str) -> str:
    """Return `line` with a zero-width space in every place where the job runner of a CI service would read a command.

    SOURCE: docs.github.com, "Workflow commands for GitHub Actions" (`::`, and `##[` of before);
    learn.microsoft.com, "Logging commands" (`##vso[`, `##[`).
    """
    command = r"^(\s*):(?=:)|#(?=#[A-Za-z]*\[)"
    return re.sub(command, lambda match: f"{match[1] or ''}{match[0].strip()}\u200b", line)
