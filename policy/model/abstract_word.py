"""Abstract words: the texts that one word of a script may expand to, or a bound on these texts."""

import re
from collections.abc import Iterable, Sequence
from functools import reduce

from policy.model.frozen import dataclass, replace
from policy.model.glob import late

MOST_MAYBE = 41  # texts of one word; one more than any caller tries, so that a caller notices a cut list
MOST_TEXT = 16 * 1024  # characters; the rest of a longer text is unknown
MOST_HINTS = 24  # texts of one word that only serve to find secrets
LIMIT = 12  # possible texts of one word; a word with more is known only at run time


@dataclass(frozen=True, slots=True)
class SourceSpan:
    """Half-open range of code points in the script: `script[start:end]`."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class AbstractWord:
    """The set of words that one word of a script may become, as far as it is known before the script runs.

    Attributes:
        texts: all texts that the word may be; empty if they are not known.
        head: the certain beginning of a word whose texts are not known.
        tail: the certain end of a word whose texts are not known.
        globbed: the unknown part stays below the folder of `head`: names of existing files, or a number.
        may_split: the word may become several words or none.
        never_an_option: no word that it becomes starts with `-`.
        subset: the word represents some of the files that a pattern finds, not all of them.
        likely_texts: texts that an unknown word is likely to be (`${x:-/etc/shadow}`). Their effects are judged, too.
        unsplittable: the word contains no blank and no glob, so bash never splits it: it is one word, or none.
        hints: texts that known data would give an unknown word (`$(echo x)`, lines of a here-string). They only serve
            to find secrets: a word that may name a secret is refused.
        heads: the possible beginnings of the word if none is certain. They also only serve to find secrets.
        pattern: the glob by which bash finds the existing files.
        shape: the whole word as a glob, with `*` for each unknown part.
        content: the likely content of the file that the word names.
        output: the certain content of the pipe that the word names (`<(echo x)`); None if it is not certain.
        number: the word is a whole number, perhaps with a sign; with `empty`, it may also be the empty text.
        depends_on_substitution: the word contains the output of a command substitution. If that command fails, the
            output is empty: `rm -rf "$(cmd)"/*` becomes `rm -rf /*`.
        items: the elements of a known array, which is not associative and has no gaps.
        keyed: of the value of a variable: the variable is certainly an associative array.
        value: for a word that declares a variable (`local x=$y`), the value of the variable, which bash does not split.
        empty: see `number`.
        span: the range of the script that the word comes from.
    """

    texts: tuple[str, ...] = ()
    head: str = ""
    tail: str = ""
    globbed: bool = False
    may_split: bool = False
    never_an_option: bool = False
    unsplittable: bool = False
    subset: bool = False
    likely_texts: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()
    pattern: str = ""
    shape: str = ""
    content: tuple[str, ...] = ()
    output: str | None = None
    number: bool = False
    depends_on_substitution: bool = False
    items: "tuple[AbstractWord, ...] | None" = None
    value: "AbstractWord | None" = None
    empty: bool = False
    keyed: bool = False
    span: SourceSpan | None = None

    @property
    def text(self) -> str | None:
        """Return the one text that the word certainly is, or None."""
        return self.texts[0] if len(self.texts) == 1 else None

    @property
    def plain(self) -> bool:
        """Return True if no word that this word becomes is a flag, so that each can only be an operand."""
        if len(self.texts) == 1:  # nearly every word
            return self.texts[0][:1] != "-" or self.texts[0] == "-"
        if self.texts:
            return all(text[:1] != "-" or text == "-" for text in self.texts)
        return self.never_an_option or (self.head[:1] not in ("", "-") and not self.may_split)


NOTHING = AbstractWord(texts=("",))
ANYTHING = AbstractWord(may_split=True)
NUMBER = AbstractWord(number=True, globbed=True)  # a path with a number in it stays in its folder
MAYBE_NUMBER = AbstractWord(number=True, never_an_option=True, empty=True)  # if it is empty, it bounds no path
COUNT = AbstractWord(number=True, globbed=True, never_an_option=True)


def literal(text: str, span: SourceSpan | None = None) -> AbstractWord:
    """Return the word that is certainly `text`."""
    return AbstractWord(texts=(text,), span=span)


def below(folder: str, span: SourceSpan | None = None) -> AbstractWord:
    """Return one word that is some path below `folder` (`./x` or `/x`), known only at run time."""
    head = folder if folder.endswith("/") else f"{folder}/"
    return AbstractWord(head=head, globbed=True, never_an_option=head[:1] != "-", span=span)


def concatenate(parts: Sequence[AbstractWord], span: SourceSpan | None) -> AbstractWord:
    """Return the concatenation of the parts of one word."""
    if len(parts) == 1:
        return replace(parts[0], span=span)
    texts: list[str] = [""]
    certain = True
    for part in parts:
        if not part.texts or len(texts) * len(part.texts) > LIMIT:
            certain = False
            break
        texts = [text + more for text in texts for more in part.texts]
        if len(texts[0]) > MOST_TEXT:
            if len(texts) > 1:
                return AbstractWord(span=span)
            return AbstractWord(head=texts[0], never_an_option=texts[0][:1] != "-", span=span)
    content = tuple(text for part in parts for text in part.content)[:MOST_HINTS]
    if certain:
        return AbstractWord(texts=tuple(dict.fromkeys(texts)), content=content, span=span)
    unknown = [index for index, part in enumerate(parts) if part.text is None]  # at least one
    first, last = unknown[0], unknown[-1]
    head = "".join(part.text or "" for part in parts[:first]) + parts[first].head
    tail = parts[last].tail + "".join(part.text or "" for part in parts[last + 1 :])
    # Without a certain start, any part may be the start: the parts before it may be empty.
    tame_start = bool(head) or all(_starts_calm(part) for part in parts)
    # After a part that splits, the next part may become the start of a word.
    calm = all(
        part.never_an_option and all(map(_starts_calm, parts[index + 1 :]))
        for index, part in enumerate(parts)
        if part.text is None and part.may_split and not part.globbed and not part.unsplittable
    )
    names = all(parts[index].globbed for index in unknown)
    pieces = (part.pattern or ("*" if part.text is None else _GLOB.sub(r"[\g<0>]", part.text)) for part in parts)
    shape = "".join(pieces)
    hinted = (part.texts or part.likely_texts or part.hints for part in parts)
    return AbstractWord(
        head=head,
        tail=tail,
        # A `..` after the unknown part would lead out of the folder that bounds it.
        globbed=names and not any(".." in (part.text or "") for part in parts),
        may_split=any(parts[index].may_split for index in unknown),
        never_an_option=head[:1] != "-" and tame_start and calm,
        unsplittable=all(map(_solid, parts)),
        depends_on_substitution=any(part.depends_on_substitution for part in parts),
        # The texts of the whole word if every unknown part has a likely text, or a text from known data (`hints`).
        likely_texts=_combined((part.texts or part.likely_texts for part in parts), MOST_MAYBE),
        hints=_combined(hinted, MOST_HINTS) if any(part.hints for part in parts) else (),
        heads=_heads(parts, head),
        pattern=shape if names else "",
        shape=shape,
        content=content,
        span=span,
    )


def _combined(choices: Iterable[tuple[str, ...]], most: int) -> tuple[str, ...]:
    """Return the concatenations of one text of each of `choices`, at most `most`."""
    texts = [""]
    for each in choices:
        texts = [text + more for text in texts for more in each][:most]
    return tuple(dict.fromkeys(texts))


def _heads(parts: Sequence[AbstractWord], head: str) -> tuple[str, ...]:
    """Return the possible beginnings of the whole, up to the first part without known texts; empty if `head` is the
    only beginning.
    """
    choices: list[tuple[str, ...]] = []
    for part in parts:
        texts = part.texts or (*part.likely_texts, *part.hints)
        choices.append(texts or part.heads or (part.head,))
        if not texts:
            break
    heads = _combined(choices, MOST_HINTS)
    return () if heads == (head,) else heads


def _solid(part: AbstractWord) -> bool:
    """Return True if bash never splits the value of `part` and finds no glob in it."""
    return part.unsplittable or (bool(part.texts) and not any(_SPECIAL.intersection(text) for text in part.texts))


def _starts_calm(part: AbstractWord) -> bool:
    """Return True if the part itself does not begin with `-`. An empty part decides nothing about the next part."""
    return all(text[:1] != "-" for text in part.texts) if part.texts else part.plain


def join(first: AbstractWord, second: AbstractWord) -> AbstractWord:
    """Return the word that covers both `first` and `second`."""
    if first == second:
        return first
    if first.texts and second.texts:
        texts = tuple(dict.fromkeys((*first.texts, *second.texts)))
        if len(texts) <= LIMIT:
            return AbstractWord(texts=texts)
    likely = tuple(dict.fromkeys((*first.texts, *first.likely_texts, *second.texts, *second.likely_texts)))
    either = AbstractWord(never_an_option=first.plain and second.plain, likely_texts=likely[:MOST_MAYBE])
    if is_number(first) and is_number(second):
        empty = first.empty or second.empty
        return replace(either, number=True, globbed=not empty, empty=empty)
    return replace(
        either,
        may_split=first.may_split or second.may_split,
        unsplittable=_solid(first) and _solid(second),
        hints=tuple(dict.fromkeys((*first.hints, *second.hints)))[:MOST_HINTS],
        heads=tuple(dict.fromkeys((*_begins(first), *_begins(second))))[:MOST_HINTS],
        keyed=first.keyed and second.keyed,
    )


def joined(words: list[AbstractWord]) -> AbstractWord:
    """Return the value of a variable that is each of `words` in turn."""
    if not words:
        return NOTHING
    if len(words) == 1 and words[0].globbed:
        return replace(words[0], may_split=False)
    value = reduce(join, (replace(word, span=None) for word in words))
    return replace(value, may_split=False) if all(word.texts or word.globbed for word in words) else value


def _begins(sense: AbstractWord) -> tuple[str, ...]:
    return sense.texts or sense.heads or ((sense.head,) if sense.head else ())


def is_number(sense: AbstractWord) -> bool:
    """Return True if a value is certainly a whole number, which bash may evaluate without harm."""
    return sense.number or (bool(sense.texts) and all(_NUMERIC.fullmatch(text) for text in sense.texts))


def unquoted(value: AbstractWord) -> AbstractWord:
    """Return a variable's value at a place where bash splits it into words and expands its globs."""
    if value.number:
        return replace(value, may_split=True) if value.empty else value
    if value.unsplittable:
        return replace(value, may_split=True)  # an empty text is no word
    if value.texts:
        if all(text and not _SPECIAL.intersection(text) for text in value.texts):
            return value
        words = dict.fromkeys(word for text in value.texts for word in fields(text))
        globs = [word for word in words if _GLOBS.intersection(word)][:MOST_HINTS]
        return AbstractWord(
            may_split=True,
            never_an_option=not globs and not any(word.startswith("-") for word in words),
            likely_texts=_fields(value.texts),
            heads=tuple(_GLOB.split(glob)[0] for glob in globs),
            pattern=globs[0] if len(globs) == 1 else "",
        )
    return replace(
        value,
        may_split=True,
        never_an_option=False,
        globbed=False,
        likely_texts=_fields(value.likely_texts),
        hints=_fields(value.hints),
    )


_NUMERIC = late(r"0|-?[1-9][0-9]{0,17}")
_SPECIAL = frozenset(" \t\n*?[]\\")
_GLOBS = frozenset("*?[]\\")
_GLOB = late(r"[*?\[\]]")


def _fields(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of the texts without globs, at most MOST_MAYBE. A glob would become unknown file names."""
    words = (word for text in texts if not _GLOBS.intersection(text) for word in fields(text))
    return tuple(dict.fromkeys(words))[:MOST_MAYBE]


def fields(text: str) -> list[str]:
    """Return the words into which bash splits a value, without glob expansion."""
    return re.findall(r"[^ \t\n]+", text)


def tokens(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the words that a program may take out of texts, at most MOST_HINTS: whole lines, fields, and parts
    between NULs.
    """
    found: dict[str, None] = {}
    for text in texts:
        lines = re.split(r"[\0\n]", text)
        words = (word for line in lines for word in re.split(r"[ \t,;|]+", line))
        found |= dict.fromkeys(filter(None, (*lines, *words)))
    return tuple(found)[:MOST_HINTS]
