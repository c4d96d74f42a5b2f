"""What one word of a command may become when it is expanded: certain text, a few texts, or a bound."""

import re
from collections.abc import Sequence
from dataclasses import replace

from policy.record import dataclass
from policy.span import Span

MOST_MAYBE = 41  # one more than is ever tried, so that nothing is cut without a word
MOST_TEXT = 16 * 1024  # no value is followed beyond that
MOST_HINTS = 24  # likely texts that are only looked at for secrets
LIMIT = 12  # more possible texts than this are "known only when it runs"


@dataclass(frozen=True, slots=True)
class Sense:
    """The meanings of one word.

    `texts`: all the texts it may be; empty when that is not known. Otherwise `head` is how it certainly starts and
    `tail` how it certainly ends. `wild`: the unknown middle is names of existing files. `many`: it may become several
    words or none. `dashless`: no word it becomes starts with `-`. `some`: of the files there, a chosen part.
    `solid`: no blank and no glob in it, so that bash never splits it: one word, or none.
    `number`: a whole number, maybe with a sign, or with `empty` no text at all. `items`: those of a known array.
    `frail`: in it is what a command prints, so a part of the word is missing when that failed.
    `value`: of a word that declares a variable (`local x=$y`), what the variable gets; bash does not split it.
    `maybe`: texts that an unknown word is likely to be (`${x:-/etc/shadow}`): what they would do counts, too.
    `hints`: texts that known data would make of an unknown word (`$(echo x)`, lines of a here-string); `heads`: how it
    may begin, where that is not certain. Both only tell secrets: a word that may name one is refused. `pattern`: for
    names of existing files, what bash matches them with; `shape`: the same
    of any word, with `*` for what is unknown. `content`: what the file that the word names likely holds.
    """

    texts: tuple[str, ...] = ()
    head: str = ""
    tail: str = ""
    wild: bool = False
    many: bool = False
    dashless: bool = False
    solid: bool = False
    some: bool = False
    maybe: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()
    pattern: str = ""
    shape: str = ""
    content: tuple[str, ...] = ()
    number: bool = False
    frail: bool = False
    items: "tuple[Sense, ...] | None" = None
    value: "Sense | None" = None
    empty: bool = False
    span: Span | None = None

    @property
    def text(self) -> str | None:
        """The one text it certainly is, or None."""
        return self.texts[0] if len(self.texts) == 1 else None

    @property
    def plain(self) -> bool:
        """Certainly one word that is no flag: it can only be an operand."""
        if self.texts:
            return all(text[:1] != "-" or text == "-" for text in self.texts)
        return self.dashless or (self.head[:1] not in ("", "-") and not self.many)


NOTHING = Sense(texts=("",))
ANYTHING = Sense(many=True)
NUMBER = Sense(number=True, wild=True)  # a path with a number in it stays in its folder
MAYBE_NUMBER = Sense(number=True, dashless=True, empty=True)  # and so it bounds no path
COUNT = Sense(number=True, wild=True, dashless=True)


def exactly(text: str, span: Span | None = None) -> Sense:
    """A word that is certainly `text`."""
    return Sense(texts=(text,), span=span)


def below(folder: str, span: Span | None = None) -> Sense:
    """A path below `folder` (as text, `./x` or `/x`), one word, known only when it runs."""
    head = folder if folder.endswith("/") else f"{folder}/"
    return Sense(head=head, wild=True, dashless=head[:1] != "-", span=span)


def joined(parts: Sequence[Sense], span: Span | None) -> Sense:
    """The parts of one word, one after the other."""
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
            return (
                Sense(head=texts[0], dashless=texts[0][:1] != "-", span=span) if len(texts) == 1 else Sense(span=span)
            )
    content = tuple(text for part in parts for text in part.content)[:MOST_HINTS]
    if certain:
        return Sense(texts=tuple(dict.fromkeys(texts)), content=content, span=span)
    head = ""
    for part in parts:
        head += part.head if part.text is None else part.text
        if part.text is None:
            break
    # Without a certain start, any part may turn out to be the start, when the ones before it are empty.
    tame_start = bool(head) or all(_starts_calm(part) for part in parts)
    tail = ""
    for part in reversed(parts):
        if part.text is None:
            tail = part.tail + tail
            break
        tail = part.text + tail
    unknown = [part for part in parts if part.text is None]
    many = any(part.many for part in unknown)
    splits = [
        index
        for index, part in enumerate(parts)
        if part.text is None and part.many and not part.wild and not part.solid
    ]
    # Where a part splits, the next one may become the start of a word.
    calm = all(parts[index].dashless and all(map(_starts_calm, parts[index + 1 :])) for index in splits)
    dashless = head[:1] != "-" and tame_start and calm
    # A `..` after the unknown part would lead out of the folder that bounds it.
    wild = all(part.wild for part in unknown) and not any(".." in (part.text or "") for part in parts)
    frail = any(part.frail for part in parts)
    shape = _pattern(parts)
    return Sense(
        head=head,
        tail=tail,
        wild=wild,
        many=many,
        dashless=dashless,
        solid=all(map(_solid, parts)),
        frail=frail,
        maybe=_likely(parts),
        hints=_hinted(parts),
        heads=_heads(parts, head),
        pattern=shape if all(part.wild for part in unknown) else "",
        shape=shape,
        content=content,
        span=span,
    )


def _hinted(parts: Sequence[Sense]) -> tuple[str, ...]:
    """Return the texts of the whole where known data gives one to each unknown part."""
    if not any(part.hints for part in parts):
        return ()
    texts = [""]
    for part in parts:
        texts = [text + more for text in texts for more in (part.texts or part.maybe or part.hints)][:MOST_HINTS]
    return tuple(dict.fromkeys(texts))


def _heads(parts: Sequence[Sense], head: str) -> tuple[str, ...]:
    """Return how the whole may begin, up to the first part of which nothing is known; empty when `head` says it all."""
    heads = [""]
    for part in parts:
        texts = part.texts or (*part.maybe, *part.hints)
        ends = not texts
        texts = texts or part.heads or (part.head,)
        heads = [each + more for each in heads for more in texts][:MOST_HINTS]
        if ends:
            break
    found = tuple(dict.fromkeys(heads))
    return () if found == (head,) else found


def _pattern(parts: Sequence[Sense]) -> str:
    return "".join(part.pattern or ("*" if part.text is None else _GLOB.sub(r"[\g<0>]", part.text)) for part in parts)


def _solid(part: Sense) -> bool:
    return part.solid or (bool(part.texts) and not any(_SPECIAL.intersection(text) for text in part.texts))


def _starts_calm(part: Sense) -> bool:
    """Whether no word that begins with this part begins with `-`."""
    return all(text[:1] != "-" for text in part.texts) if part.texts else part.plain


def _likely(parts: Sequence[Sense]) -> tuple[str, ...]:
    """The texts of the whole when each unknown part is what it is likely to be."""
    texts = [""]
    for part in parts:
        texts = [text + more for text in texts for more in (part.texts or part.maybe)][:MOST_MAYBE]
    return tuple(dict.fromkeys(texts))


def either(first: Sense, second: Sense) -> Sense:
    """What is known when one of two senses holds."""
    if first == second:
        return first
    if first.texts and second.texts:
        texts = tuple(dict.fromkeys((*first.texts, *second.texts)))
        if len(texts) <= LIMIT:
            return Sense(texts=texts)
    maybe = tuple(dict.fromkeys((*first.texts, *first.maybe, *second.texts, *second.maybe)))[:MOST_MAYBE]
    hints = tuple(dict.fromkeys((*first.hints, *second.hints)))[:MOST_HINTS]
    heads = tuple(dict.fromkeys((*_begins(first), *_begins(second))))[:MOST_HINTS]
    if _numeric(first) and _numeric(second):
        empty = first.empty or second.empty
        return Sense(number=True, wild=not empty, dashless=first.plain and second.plain, maybe=maybe, empty=empty)
    many, solid = first.many or second.many, _solid(first) and _solid(second)
    return Sense(many=many, dashless=first.plain and second.plain, solid=solid, maybe=maybe, hints=hints, heads=heads)


def _begins(sense: Sense) -> tuple[str, ...]:
    return sense.texts or sense.heads or ((sense.head,) if sense.head else ())


def _numeric(sense: Sense) -> bool:
    return sense.number or (bool(sense.texts) and all(_NUMERIC.fullmatch(text) for text in sense.texts))


def unquoted(value: Sense) -> Sense:
    """A variable's value where bash splits it into words and expands its globs."""
    if value.number:
        return replace(value, many=True) if value.empty else value
    if value.solid:
        return replace(value, many=True)  # without a text it is no word at all
    hints = _fields(value.hints)
    if value.texts:
        if all(text and not _SPECIAL.intersection(text) for text in value.texts):
            return value
        calm = all(_calm(text) for text in value.texts)
        globs = _globbed(value.texts)
        heads = tuple(_GLOB.split(glob)[0] for glob in globs)
        pattern = globs[0] if len(globs) == 1 else ""
        return Sense(many=True, dashless=calm, maybe=_fields(value.texts), heads=heads, pattern=pattern)
    return replace(value, many=True, dashless=False, wild=False, maybe=_fields(value.maybe), hints=hints)


_NUMERIC = re.compile(r"0|-?[1-9][0-9]{0,17}")
_SPECIAL = frozenset(" \t\n*?[]\\")
_GLOBS = frozenset("*?[]\\")
_GLOB = re.compile(r"[*?\[\]]")


def _fields(texts: tuple[str, ...]) -> tuple[str, ...]:
    """The words that the texts are split into. Those with globs become names of files: not known."""
    words = (word for text in texts if not _GLOBS.intersection(text) for word in fields(text))
    return tuple(dict.fromkeys(words))[:MOST_MAYBE]


def _globbed(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words with globs that the texts are split into."""
    found = dict.fromkeys(word for text in texts for word in fields(text) if _GLOBS.intersection(word))
    return tuple(found)[:MOST_HINTS]


def fields(text: str) -> list[str]:
    """The words that bash splits a value into."""
    return re.findall(r"[^ \t\n]+", text)


def tokens(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the words that a program may take out of lines of text: whole lines, fields, and what NUL separates."""
    found: dict[str, None] = {}
    for text in texts:
        lines = re.split(r"[\0\n]", text)
        found |= dict.fromkeys(
            filter(None, (*lines, *(word for line in lines for word in re.split(r"[ \t,;|]+", line))))
        )
    return tuple(found)[:MOST_HINTS]


def _calm(text: str) -> bool:
    """Whether no word of `text`, once split, starts with `-`."""
    return not any(word.startswith("-") for word in fields(text)) and not _SPECIAL.intersection(text) - set(" \t\n")
