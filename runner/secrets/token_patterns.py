"""Strings that are somebody's key by their very shape, as their makers document them: masked whoever they belong to.

A shape is a beginning that is looked for, and what has to follow it. Ordinary words that begin alike stay: where a
beginning is common (`sk-`), a digit is asked for as well.
"""

import re
from collections.abc import Iterator
from functools import cache

_WORD = r"[A-Za-z0-9_-]"
_CODED = r"[A-Za-z0-9+/=]"
# What may stand between a key's lines where it is quoted: line ends, also escaped ones, quotes, numbers of lines, signs
# of a change. THREAT: no mark that a shell knows, and no word: what is masked is shown to nobody, and a command between
# the marks of a key would run unseen.
_BETWEEN = r"(?:\\+[nrt\n]|[0-9]{1,6}(?: {0,2}\| ?|(?![A-Za-z0-9+/=]))|\+(?=\s)|[^A-Za-z0-9+/=\\;&|$(){}<>`]){1,40}"
_END = r"-----END [A-Z0-9 ]{0,24}PRIVATE KEY-----"

# How it begins, and what has to follow. Plain text: every run of `agent exec` loads it, few ever compile one.
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
    # RFC 7468; RFC 1421 on the two lines of one that is encrypted. DER begins with M, OpenSSH's own form with b3Bl. As
    # far as lines follow that can be a key's, of 24 characters at least but for the last.
    "-----BEGIN ":  rf"(?:[A-Z0-9]+ ){{0,3}}PRIVATE KEY-----(?:{_BETWEEN}"
                    rf"(?:Proc-Type: 4,ENCRYPTED{_BETWEEN}DEK-Info: [A-Z0-9-]+,[0-9A-Fa-f]+{_BETWEEN}{_CODED}{{24,}}"
                    rf"|\+?(?:M|b3Bl){_CODED}{{20,}})(?:{_BETWEEN}{_CODED}{{24,}})*"
                    rf"(?:(?:{_BETWEEN}[A-Za-z0-9+/]{{0,22}}={{1,2}})?(?:{_BETWEEN})?\+?{_END})?)?",
}
# fmt: on
_THROUGH = ("sk-", "eyJ")  # whose patterns read a run of `_WORD` to its end before they say no
_MOST = {"eyJ": 4096, "-----BEGIN ": 16384}  # characters that are waited for; of all others 512


@cache  # compiled where its beginning stands: most texts have none
def _whole(begin: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![A-Za-z0-9]){re.escape(begin)}{SHAPES[begin]}")


@cache
def _run() -> re.Pattern[str]:
    return re.compile(r"[A-Za-z0-9_.-]*")


@cache
def _word() -> re.Pattern[str]:
    return re.compile(rf"{_WORD}+")


def shaped(text: str, least: int = 0) -> Iterator[tuple[int, int]]:
    """Where in `text`, from `least` on, something of a known shape begins and ends."""
    for begin in SHAPES:
        at = text.find(begin, least)
        while at >= 0:
            found = _whole(begin).match(text, at)
            last = found.end() if found else _fruitless(begin, text, at)
            if found:
                yield at, last
            at = text.find(begin, last)


def _fruitless(begin: str, text: str, at: int) -> int:
    """Where to look on after what begins at `at` became none.

    Where the rest of a run of characters is looked through, no later place in that run can do better: to try each of
    them would take a text like `sk-sk-sk-..` the square of its length.
    """
    before = text[at - 1 : at]
    if begin not in _THROUGH or (before.isascii() and before.isalnum()):
        return at + 1
    run = _word().match(text, at)
    return run.end() if run else at + 1


def unfinished(text: str, least: int = 0) -> int:
    """Where something begins at the end of `text`, from `least` on, that may become one of these; the length of `text`
    when none does."""
    first = len(text)
    for begin in SHAPES:
        for size in range(min(len(begin) - 1, len(text) - least), 0, -1):
            if text.endswith(begin[:size]) and not text[len(text) - size - 1 : len(text) - size].isalnum():
                first = min(first, len(text) - size)
                break
        at = text.find(begin, max(len(text) - _MOST.get(begin, 512), least))
        while 0 <= at < first:
            if _goes_on(begin, text, at):
                first = at
            at = text.find(begin, at + 1)
    return first


def _goes_on(begin: str, text: str, at: int) -> bool:
    """Whether what begins at `at` reaches the end of `text`, so that more of it may come."""
    if begin.startswith("-"):
        return re.search(_END, text[at:]) is None
    return not text[at - 1 : at].isalnum() and _run().fullmatch(text, at + len(begin)) is not None
