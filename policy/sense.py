"""What one word of a command may become when it is expanded: certain text, a few texts, or a bound."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from policy.assessment import Span

LIMIT = 12  # more possible texts than this are "known only when it runs"


@dataclass(frozen=True, slots=True)
class Sense:
    """The meanings of one word.

    `texts`: all the texts it may be; empty when that is not known. Otherwise `head` is how it certainly starts and
    `tail` how it certainly ends. `wild`: the unknown middle is names of existing files. `many`: it may become several
    words or none. `dashless`: no word it becomes starts with `-`. `some`: of the files there, a chosen part.
    """

    texts: tuple[str, ...] = ()
    head: str = ""
    tail: str = ""
    wild: bool = False
    many: bool = False
    dashless: bool = False
    some: bool = False
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
    if certain:
        return Sense(texts=tuple(dict.fromkeys(texts)), span=span)
    head = ""
    for part in parts:
        head += part.head if part.text is None else part.text
        if part.text is None:
            break
    # Without a certain start, any part may turn out to be the start, when the ones before it are empty.
    tame_start = bool(head) or all(part.plain for part in parts)
    tail = ""
    for part in reversed(parts):
        if part.text is None:
            tail = part.tail + tail
            break
        tail = part.text + tail
    unknown = [part for part in parts if part.text is None]
    many = any(part.many for part in unknown)
    splits = any(part.many and not part.wild and not part.dashless for part in unknown)
    dashless = head[:1] != "-" and tame_start and not splits
    # A `..` after the unknown part would lead out of the folder that bounds it.
    wild = all(part.wild for part in unknown) and not any(".." in (part.text or "") for part in parts)
    return Sense(head=head, tail=tail, wild=wild, many=many, dashless=dashless, span=span)


def either(first: Sense, second: Sense) -> Sense:
    """What is known when one of two senses holds."""
    if first == second:
        return first
    if first.texts and second.texts:
        texts = tuple(dict.fromkeys((*first.texts, *second.texts)))
        if len(texts) <= LIMIT:
            return Sense(texts=texts)
    return Sense(many=True, dashless=first.plain and second.plain)


def unquoted(value: Sense) -> Sense:
    """A variable's value where bash splits it into words and expands its globs."""
    if value.texts:
        if all(text and not _SPECIAL.intersection(text) for text in value.texts):
            return value
        return Sense(many=True, dashless=all(_calm(text) for text in value.texts))
    return replace(value, many=True, dashless=False, wild=False)


_SPECIAL = frozenset(" \t\n*?[]\\")


def _calm(text: str) -> bool:
    """Whether no word of `text`, once split, starts with `-`."""
    return not any(word.startswith("-") for word in text.split()) and not _SPECIAL.intersection(text) - set(" \t\n")
