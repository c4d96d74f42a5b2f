"""Brace expansion: `src/{a,b}.py` is two words, `{1..3}` three, `*.{ts,tsx}` two globs. Other words are not changed."""

import itertools
import re
from collections.abc import Iterator, Sequence

from policy.bash.ast import Glob, Parameter, Part, Text, Tilde, Word
from policy.model.abstract_word import SourceSpan
from policy.model.frozen import dataclass

_MOST = 100  # words of one expansion

_TEXT = r"[A-Za-z0-9_./:=@%+*?-]*"
_CHOICE = rf"\{{{_TEXT}(?:,{_TEXT})+\}}"
_NUMBER = r"-?[0-9]{1,5}"
_STEP = rf"(?:\.\.{_NUMBER})?"
_RANGE = rf"(?:{_NUMBER}\.\.{_NUMBER}|[a-z]\.\.[a-z]|[A-Z]\.\.[A-Z]){_STEP}"
_SEQUENCE = rf"\{{{_RANGE}\}}"
_GROUP = re.compile(rf"{_CHOICE}|{_SEQUENCE}")
_BOUNDS = re.compile(
    rf"(?!.*-0)(?:(?P<first>{_NUMBER})\.\.(?P<last>{_NUMBER})|(?P<from>[A-Za-z])\.\.(?P<to>[A-Za-z]))"
    rf"(?:\.\.(?P<step>{_NUMBER}))?"
)
_PADDED = re.compile(r"-?0[0-9]")

BRACED = re.compile(rf"{_TEXT}(?:(?:{_CHOICE}|{_SEQUENCE}){_TEXT})+(?=[ \t\n;|&)]|\Z)")
# Braces without a comma or `..` between them are literal; no other brace may follow them (`@{u}..HEAD`).
LITERAL_BRACES = re.compile(r"(?:\{(?:[A-Za-z0-9_-]|\.(?!\.))*\}[A-Za-z0-9_./:^~@-]*)+\Z")
LIKE_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")


def expand(word: str) -> tuple[str, ...] | None:
    """Return the words that bash makes of `word`, which BRACED matches, or None if they are not certain."""
    if LIKE_ASSIGNMENT.match(word):
        return None  # whether bash expands it depends on the command
    pieces: list[Sequence[str]] = []
    at = 0
    for found in _GROUP.finditer(word):
        pieces.append([word[at : found.start()]])
        inside = found[0][1:-1]
        if "," in inside:
            if ".." in inside:
                return None
            pieces.append(inside.split(","))
        else:
            counted = _sequence(inside)
            if counted is None:
                return None
            pieces.append(counted)
        at = found.end()
    pieces.append([word[at:]])
    words = tuple("".join(choice) for choice in itertools.islice(itertools.product(*pieces), _MOST + 1))
    return words if len(words) <= _MOST and all(words) else None


def _sequence(inside: str) -> list[str] | None:
    """Return the items of `1..3`, `01..10`, `a..e` or `1..9..2`, or None."""
    found = re.fullmatch(_RANGE, inside) and _BOUNDS.fullmatch(inside)
    if not found:
        return None
    step = abs(int(found["step"])) if found["step"] is not None else 1
    if step == 0:
        return None
    if found["from"] is not None:
        first, last, width = ord(found["from"]), ord(found["to"]), 0
    else:
        ends = (found["first"], found["last"])
        (first, last), padded = map(int, ends), any(map(_PADDED.match, ends))
        width = max(map(len, ends)) if padded else 0
    if abs(last - first) // step >= _MOST:
        return None
    numbers = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    return [chr(number) if found["from"] is not None else f"{number:0{width}d}" for number in numbers]


# Words with more than unquoted text in them: every other part is kept whole.

_Atom = str | Part  # an unquoted character, or a part of another kind
_Atoms = tuple[_Atom, ...]
_CONTEXT_SIGNS = frozenset("$~[]")  # their meaning depends on the text after them, which expansion changes


def spread(word: Word, text: str) -> tuple[Word, ...] | None:
    """Return the words that bash makes of `word`, which was parsed as if braces had no meaning, or None if that is not
    certain.

    bash composes the words as text before it expands variables: `$x{a,b}` is `$xa $xb`, and is refused.
    """
    atoms: list[_Atom] = []
    for part in word.parts:
        if isinstance(part, Text) and not part.quoted:
            if not _CONTEXT_SIGNS.isdisjoint(part.text):
                return None
            atoms += part.text
        elif _keeps_meaning(part, text):
            atoms.append(part)
        else:
            return None
    reader = _Braces(atoms)
    found = reader.series(inside=False)
    if found is None or reader.at < len(atoms) or LIKE_ASSIGNMENT.match(text, word.span.start, word.span.end):
        return None
    words = tuple(Word(tuple(_parts(each, word.span)), word.span) for each in found)
    return words if all(each.parts and not LIKE_ASSIGNMENT.match(each.prefix) for each in words) else None


def _keeps_meaning(part: Part, text: str) -> bool:
    """Return True if the part has the same meaning at every position."""
    if isinstance(part, Parameter):
        return part.quoted or text.startswith("${", part.span.start)
    if isinstance(part, Glob):
        return "," not in part.text
    return isinstance(part, (Text, Tilde))  # a tilde is at the start, before a `/`


@dataclass(slots=True)
class _Braces:
    """The expansion of the brace groups in a word that is given as atoms."""

    atoms: list[_Atom]
    at: int = 0

    def series(self, *, inside: bool) -> list[_Atoms] | None:
        """Return all expansions of the atoms up to a `,` or `}` (or the end), or None if they are not certain."""
        found: list[_Atoms] = [()]
        while self.at < len(self.atoms):
            atom = self.atoms[self.at]
            if inside and atom in (",", "}"):
                break
            self.at += 1
            if atom == "}":
                return None
            more = self._group() if atom == "{" else [(atom,)]
            if more is None or len(found) * len(more) > _MOST:
                return None
            found = [(*each, *other) for each in found for other in more]
        return found

    def _group(self) -> list[_Atoms] | None:
        """Return the expansions of the group after a `{`, or None if they are not certain."""
        begin = self.at
        found: list[_Atoms] = []
        branches = 0
        while True:
            branch = self.series(inside=True)
            if branch is None or self.at >= len(self.atoms):
                return None
            found += branch
            branches += 1
            self.at += 1
            if self.atoms[self.at - 1] == "}":
                break
        if branches > 1:
            return found if len(found) <= _MOST else None
        within = self.atoms[begin : self.at - 1]
        counted = _sequence("".join(each for each in within if isinstance(each, str)))
        plain = all(isinstance(each, str) for each in within)
        return [tuple(text) for text in counted] if plain and counted is not None else None


def _parts(atoms: _Atoms, span: SourceSpan) -> Iterator[Part]:
    for live, group in itertools.groupby(atoms, lambda atom: isinstance(atom, str)):
        if live:
            yield Text("".join(atom for atom in group if isinstance(atom, str)), span, False)
        else:
            yield from (atom for atom in group if not isinstance(atom, str))
