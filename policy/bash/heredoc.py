"""Here-documents: parses the delimiter after `<<` and the body, which becomes one word."""

import re

from policy.bash.ast import Part, Text, Word
from policy.bash.scanner import COST_OF_NESTING, ReadBodies
from policy.bash.words import Words
from policy.model.abstract_word import SourceSpan

_DELIMITER = re.compile(
    r"""(?:(?P<bare>[A-Za-z0-9_.][A-Za-z0-9_.-]*)"""
    r"""|'(?P<single>[A-Za-z0-9_.][A-Za-z0-9_. -]*)'"""
    r'''|"(?P<double>[A-Za-z0-9_.][A-Za-z0-9_. -]*)"'''
    r"""|\\(?P<escaped>[A-Za-z0-9_.][A-Za-z0-9_.-]*))(?=[ \t\n;|&)]|[<>](?!\()|\Z)"""
)
_TABS = re.compile(r"^\t+", re.MULTILINE)


def parse_here_document(words: Words, strip: bool) -> Word:
    """Parse the delimiter at the cursor, and the body, which begins after the current line or after an earlier body.

    `strip`: leading tabs are removed (`<<-`). Raises RefusalError if the body is not certain.
    """
    words.count_words(COST_OF_NESTING)
    text, start = words.text, words.pos
    found = _DELIMITER.match(text, start, words.end)
    if not found:
        raise words.refusal("a here-document delimiter that is not a plain word")
    delimiter = found[found.lastgroup or 0]
    quoted = found.lastgroup != "bare"
    if words.end < len(text):
        raise words.refusal("a here-document inside backquotes or another here-document", start, found.end())
    words.pos = found.end()
    read_bodies = words.read_bodies
    if read_bodies is None:
        line_end = text.find("\n", words.pos)
        begin = line_end + 1 if line_end >= 0 else len(text)
    elif read_bodies.level == words.level and read_bodies.line_end >= words.pos:
        line_end, begin = read_bodies.line_end, read_bodies.resume
    else:
        raise words.refusal("here-documents within each other", start, found.end())
    close, resume = _find_close(words, start, begin, delimiter, strip, quoted)
    span = SourceSpan(begin, close)
    if quoted:
        body = text[begin:close]
        parts: tuple[Part, ...] = (Text(_TABS.sub("", body) if strip else body, span, True),)
    else:
        parts = words.here_body(begin, close)
        if strip:
            parts = tuple(_stripped(words, part, begin) for part in parts)
    words.read_bodies = ReadBodies(line_end, resume, words.level)
    return Word(parts, span)


def _find_close(words: Words, start: int, begin: int, delimiter: str, strip: bool, quoted: bool) -> tuple[int, int]:
    """Return the end of the body, and the start of the line after its delimiter."""
    text, at = words.text, begin
    continued = ""  # the lines before this one that a line continuation joins with it
    while at < len(text):
        newline = text.find("\n", at)
        end = len(text) if newline < 0 else newline
        line = text[at:end].lstrip("\t") if strip else text[at:end]
        if line == delimiter and not continued:
            return at, min(end + 1, len(text))
        if line.startswith(delimiter) or (continued + line).startswith(delimiter):
            # Inside `$(..)` some versions of bash end the body here and run the rest of the line.
            raise words.refusal("a here-document line that starts with its delimiter", at, end)
        if continued and strip and text.startswith("\t", at):
            raise words.refusal("a tab after a line continuation in a `<<-` here-document", at, end)
        continues = not quoted and (len(line) - len(line.rstrip("\\"))) % 2 == 1
        continued = continued + line[:-1] if continues else ""
        at = end + 1
    raise words.refusal(f"a here-document that never meets `{delimiter}`", start, words.pos)


def _stripped(words: Words, part: Part, begin: int) -> Part:
    """Return `part` without the tabs that `<<-` removes before anything in the body is parsed."""
    at = part.span.start
    if isinstance(part, Text):
        # A Text begins a line only if its source text does, because no escape makes a newline here.
        whole = _TABS.sub("", part.text)
        starts_line = at == begin or words.text[at - 1] == "\n"
        tabs = part.text[: len(part.text) - len(part.text.lstrip("\t"))]
        return Text(whole if starts_line else tabs + whole, part.span, True)
    if "\n\t" in words.text[at : part.span.end]:
        raise words.refusal("a substitution over several lines in a `<<-` here-document", at, part.span.end)
    return part
