"""Redactor of secrets. Text that is displayed, recorded or sent to a model has each secret replaced by `[secret]`.

The redactor finds the encoded forms of `runner/secrets/encodings.py` and the token patterns at the end of this module,
from left to right. A secret that was encrypted, compressed, reversed or interleaved with other text is not recognized:
no command is ever given a secret, so redaction is the second defence and not the first.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from functools import cache
from typing import TypeVar, cast

from policy.model.frozen import fields, is_dataclass, replace
from runner.secrets.secret import MASK, SHORTEST, Secret, masked_secrets, registered_count

T = TypeVar("T")

# The beginning of a key at the end of a cut text is masked from this number of characters on.
_BEGINNING = 8
_WIDEST = 12  # characters of text that one character of a secret may take: an escape, broken over lines


class Redactor:
    """A redactor of secrets. Without any secret and without `shapes`, all text is returned unchanged.

    `secrets` are always masked. With `live`, all registered secrets of this process are masked, including later ones.
    With `shapes`, strings that have the form of a key are masked, too.
    """

    def __init__(self, secrets: Iterable[Secret] = (), *, live: bool = False, shapes: bool = False) -> None:
        self._given = tuple(secret for secret in secrets if len(secret.reveal()) >= SHORTEST)
        self._live, self._shapes = live, shapes
        self._seen = -1
        self._known: tuple[str, ...] = ()
        self._blind = Redactor(self._given, live=live) if shapes else self

    def text(self, text: str, before: str = "") -> str:
        """Return `text` without secrets, including one that its end cuts off. `before` is as in `split`."""
        if len(text) < _BEGINNING or not self._works:
            return text
        if not before and not self._forms and (len(text) < _LEAST or not any(begin in text for begin in SHAPES)):
            return text  # nothing in it can be a key: most texts of a record
        return self._whole(text, before)

    def is_harmless(self, texts: str) -> bool:
        """Return True if `text` changes no part of `texts`, because no key can begin in it and no secret is known."""
        return not self._works or (not self._forms and not any(begin in texts for begin in SHAPES))

    def mask(self, value: T) -> T:
        """Return a value of the same type whose texts contain no secret at any depth. Not for Permits, which must not
        be copied.
        """
        return cast(T, self._masked(value)) if self._works else value

    def stream(self) -> "RedactingStream":
        """Return a stream for one text that comes in pieces."""
        return RedactingStream(self)

    @property
    def idle(self) -> bool:
        """Return True if there is currently nothing to mask."""
        return not self._works

    def split(self, text: str, before: str = "") -> tuple[str, str]:
        """Return two parts: masked text that may be shown, and an unmasked rest that more text could complete to a
        secret.

        `before` is the character that was shown last, or empty. Directly after a letter or digit, no key is
        recognized by its form.
        """
        return self._split(text, before, whole=False) if self._works else (text, "")

    def _whole(self, text: str, before: str = "", *, rows: bool = False) -> str:
        shown, held = self._split(text, before, whole=True, rows=rows)
        return shown + (_mask(held, rows) if len(held) >= _BEGINNING else held)

    @property
    def _works(self) -> bool:
        return self._shapes or bool(self._forms)

    @property
    def _forms(self) -> tuple[str, ...]:
        now = registered_count() if self._live else 0
        if now != self._seen:
            self._known = ()
            if secrets := (*self._given, *(masked_secrets() if self._live else ())):
                from runner.secrets.encodings import encoded_forms  # most runs know no secret

                forms = (form for secret in secrets for form in encoded_forms(secret.reveal()))
                self._known = tuple(dict.fromkeys(forms))
            self._seen = now
        return self._known

    def _split(self, text: str, before: str, *, whole: bool, rows: bool = False) -> tuple[str, str]:
        """Return the masked text and the rest, as `split` does.

        INVARIANT: the secret that begins first takes precedence over secrets that begin inside it, so that pieces
        give the same result as the whole. `whole` means that no more text follows; then only the beginning of a secret
        itself is held back, not that of a shape or an escape. `rows` keeps the number of lines.
        """
        shown: list[str] = []
        text, at = before + text, len(before)
        end = self._held(text, at, whole)
        # In the order of their starts; of spans with one start, the longest first.
        for first, last in sorted(self._spans(text, at), key=lambda span: (span[0], -span[1])):
            if first < at:
                continue
            if first >= end and not whole:
                break
            shown += [text[at:first], _mask(text[first:last], rows)]
            at = last
            if at > end:
                end = self._held(text, at, whole)
        end = max(end, at)
        return "".join([*shown, text[at:end]]), text[end:]

    def _spans(self, text: str, least: int) -> Iterator[tuple[int, int]]:
        if self._forms:
            from runner.secrets.encodings import decoded_views

            for view in decoded_views(text, self._longest):
                read, ways = view.text, None
                for form in self._forms:
                    at = read.find(form)
                    while at >= 0:
                        starts, ends = ways = ways or view.origins()
                        yield starts[at], ends[at + len(form) - 1]
                        at = read.find(form, at + 1)
        if self._shapes:
            yield from key_spans(text, least)

    def _held(self, text: str, least: int, whole: bool) -> int:
        """Return the position from `least` on where the end of `text` may begin a secret, or the length of `text`."""
        first = len(text)
        if self._forms:
            from runner.secrets.encodings import begun, decoded_views

            start = max(least, len(text) - self._longest * _WIDEST)
            for view in decoded_views(text[start:], self._longest):
                if not view.to_end:
                    continue
                cut = len(view.text) if whole else begun(view.text)
                begins = cut - self._begun(view.text[:cut])
                if begins < len(view.text):
                    first = min(first, start + view.origins()[0][begins])
        if self._shapes and not whole:
            first = min(first, unfinished(text, least))
        return first

    @property
    def _longest(self) -> int:
        return max(map(len, self._forms))

    def _begun(self, text: str) -> int:
        """Return the number of characters at the end of `text` that may be the beginning of a secret."""
        longest = 0
        for form in self._forms:
            at = text.find(form[0], max(len(text) - len(form) + 1, 0))
            while 0 <= at < len(text) - longest:
                if form.startswith(text[at:]):
                    longest = len(text) - at
                    break
                at = text.find(form[0], at + 1)
        return longest

    def _masked(self, value: object) -> object:
        if isinstance(value, Enum):
            return value
        match value:
            case str():
                return self.text(value)
            case bytes():
                # latin-1 maps every byte to a character and back, and a key is plain ASCII
                return self.text(value.decode("latin-1")).encode("latin-1")
            case list():
                return [self._masked(item) for item in self._as_rows(value)]
            case tuple():
                return tuple(self._masked(item) for item in self._as_rows(value))
            case dict():
                return {self._masked(key): self._masked(item) for key, item in value.items()}
            case _ if is_dataclass(value) and not isinstance(value, type):
                opaque = getattr(value, "OPAQUE", ())
                # Opaque fields have no readable text: only known secrets are masked there, no mere forms of keys.
                ways = {item.name: self._blind if item.name in opaque else self for item in fields(value)}
                return replace(value, **{name: way._masked(getattr(value, name)) for name, way in ways.items()})
            case _:
                return value

    def _as_rows(self, items: Sequence[object]) -> Sequence[object]:
        """Mask texts, or groups that end in a text, as consecutive lines of a file.

        A secret can continue from one line to the next, where each line alone would contain only a part of it.
        """
        texts = [each[-1] if type(each) in (list, tuple) and each else each for each in items]  # type: ignore[index]  # both
        if len(texts) < 2 or not all(type(each) is str and "\n" not in each for each in texts):
            return items
        before = "\n".join(cast(list[str], texts))
        after = self._whole(before, rows=True)
        if after == before:
            return items
        return [_with_text(each, row) for each, row in zip(items, after.split("\n"), strict=True)]


def _with_text(item: object, text: str) -> object:
    """Return a text, or a group that ends in a text, with `text` in its place."""
    return type(item)([*item[:-1], text]) if isinstance(item, list | tuple) else text


def _mask(hidden: str, rows: bool) -> str:
    return MASK + "\n" * hidden.count("\n") if rows else MASK


class RedactingStream:
    """A text in pieces. A part that may be the beginning of a secret is held back until more text is known."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = self._last = ""

    def feed(self, piece: str) -> str:
        """Return the text that may be shown now, which may be empty."""
        shown, self._held = self._redactor.split(self._held + piece, self._last)
        self._last = shown[-1:] or self._last
        return shown

    def end(self) -> str:
        """Return the rest of the text."""
        held, self._held = self._held, ""
        return self._redactor.text(held, self._last)


def masked(text: str) -> str:
    """Return `text` with every registered secret replaced by `[secret]`."""
    return Redactor(live=True).text(text)


_WORD = r"[A-Za-z0-9_-]"
_CODED = r"[A-Za-z0-9+/=]"
# The text between the lines of a quoted key: line ends, also escaped ones, quotes, line numbers, signs of a diff.
# THREAT: shell operators and words are excluded: masked text is not shown, so a command between the lines of a key
# would run unseen.
_BETWEEN = r"(?:\\+[nrt\n]|[0-9]{1,6}(?: {0,2}\| ?|(?![A-Za-z0-9+/=]))|\+(?=\s)|[^A-Za-z0-9+/=\\;&|$(){}<>`]){1,40}"
_END = r"-----END [A-Z0-9 ]{0,24}PRIVATE KEY-----"

# The beginning of a key, and the pattern that has to follow. Patterns are compiled on first use: few runs need them.
# fmt: off
SHAPES = {
    "sk-":          rf"(?={_WORD}*[0-9]){_WORD}{{20,}}",                        # OpenAI, Anthropic and others
    "ghp_":         r"[A-Za-z0-9]{36,}",                                        # GitHub, five kinds
    "gho_":         r"[A-Za-z0-9]{36,}",
    "ghu_":         r"[A-Za-z0-9]{36,}",
    "ghs_":         r"[A-Za-z0-9]{36,}",
    "ghr_":         r"[A-Za-z0-9]{36,}",
    "github_pat_":  r"[A-Za-z0-9_]{40,}",
    "glpat-":       rf"{_WORD}{{20,}}",                                         # GitLab
    "AKIA":         r"[A-Z0-9]{16}(?![A-Za-z0-9])",                             # AWS, the public half of a pair
    "ASIA":         r"[A-Z0-9]{16}(?![A-Za-z0-9])",
    "xoxb-":        r"[0-9A-Za-z-]{20,}",                                       # Slack
    "xoxp-":        r"[0-9A-Za-z-]{20,}",
    "AIza":         rf"{_WORD}{{35}}",                                          # Google
    "ya29.":        rf"{_WORD}{{20,}}",
    "npm_":         r"(?=[A-Za-z]*[0-9])[A-Za-z0-9]{36}",
    "pypi-":        rf"AgE{_WORD}{{50,}}",
    "hf_":          r"(?=[A-Za-z]*[0-9])[A-Za-z0-9]{30,}",                      # Hugging Face
    "dckr_pat_":    rf"{_WORD}{{20,}}",                                         # Docker
    "sk_live_":     r"[A-Za-z0-9]{20,}",                                        # Stripe
    "rk_live_":     r"[A-Za-z0-9]{20,}",
    "eyJ":          rf"{_WORD}{{8,}}\.eyJ{_WORD}{{8,}}\.{_WORD}{{16,}}",  # RFC 7519, a signed web token
    # RFC 7468; RFC 1421 for the two lines of an encrypted key. DER begins with M, OpenSSH's own form with b3Bl. The
    # match includes the following lines that can belong to a key: at least 24 characters each, except the last line.
    "-----BEGIN ":  rf"(?:[A-Z0-9]+ ){{0,3}}PRIVATE KEY-----(?:{_BETWEEN}"
                    rf"(?:Proc-Type: 4,ENCRYPTED{_BETWEEN}DEK-Info: [A-Z0-9-]+,[0-9A-Fa-f]+{_BETWEEN}{_CODED}{{24,}}"
                    rf"|\+?(?:M|b3Bl){_CODED}{{20,}})(?:{_BETWEEN}{_CODED}{{24,}})*"
                    rf"(?:(?:{_BETWEEN}[A-Za-z0-9+/]{{0,22}}={{1,2}})?(?:{_BETWEEN})?\+?{_END})?)?",
}
# fmt: on
_LEAST = 20  # characters of the shortest key of a known shape
_THROUGH = ("sk-", "eyJ")  # their patterns read a run of `_WORD` to its end before they fail
_MOST = {"eyJ": 4096, "-----BEGIN ": 16384}  # characters held back for an incomplete key; 512 for all others


@cache  # compiled when its beginning is found: most texts have none
def _whole(begin: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![A-Za-z0-9]){re.escape(begin)}{SHAPES[begin]}")


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def key_spans(text: str, least: int = 0) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each string with a known shape in `text`, from `least` on."""
    for begin in SHAPES:
        at = text.find(begin, least)
        while at >= 0:
            match = _whole(begin).match(text, at)
            last = match.end() if match else _after_failed_prefix(begin, text, at)
            if match:
                yield at, last
            at = text.find(begin, last)


def _after_failed_prefix(begin: str, text: str, at: int) -> int:
    """Return the position to continue at after a prefix at `at` without a match.

    If the pattern reads a run of characters to its end, no later position in that run can match: trying each would take
    quadratic time for a text like `sk-sk-sk-..`.
    """
    before = text[at - 1 : at]
    if begin not in _THROUGH or (before.isascii() and before.isalnum()):
        return at + 1
    run = _compiled(rf"{_WORD}+").match(text, at)
    return run.end() if run else at + 1


def unfinished(text: str, least: int = 0) -> int:
    """Return the start of a string at the end of `text`, from `least` on, that may become a key, or the length of
    `text`.
    """
    first = len(text)
    for begin in SHAPES:
        for size in range(min(len(begin) - 1, len(text) - least), 0, -1):
            if text.endswith(begin[:size]) and not text[len(text) - size - 1 : len(text) - size].isalnum():
                first = min(first, len(text) - size)
                break
        at = text.find(begin, max(len(text) - _MOST.get(begin, 512), least))
        while 0 <= at < first:
            if _may_continue(begin, text, at):
                first = at
            at = text.find(begin, at + 1)
    return first


def _may_continue(begin: str, text: str, at: int) -> bool:
    """Return True if the string at `at`, which may be a key, is not complete at the end of `text`."""
    if begin.startswith("-"):
        return re.search(_END, text[at:]) is None
    return (
        not text[at - 1 : at].isalnum() and _compiled(r"[A-Za-z0-9_.-]*").fullmatch(text, at + len(begin)) is not None
    )
