"""The builtins `echo`, `printf`, `true` and `:`, which have no effect besides their output.

The printed texts are searched for paths of secrets, and never make a verdict less strict.
"""

import re
from collections.abc import Sequence
from itertools import islice, product, takewhile

from policy.interpreter.command_call import Call
from policy.interpreter.shell_state import ExitStates
from policy.model.abstract_word import ANYTHING, MOST_HINTS, MOST_TEXT, AbstractWord, literal
from policy.model.glob import late
from policy.model.tier import Tier

_NAME = late(r"[A-Za-z_][A-Za-z0-9_]*")
_FLAGS = late(r"-[neE]+")
_ESCAPE = late(r"\\(?:0?([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|([abfnrtv\\]))")
_LETTER_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\"}
_FIELD = late(r"%[-+ #0-9.*]*([a-zA-Z%])")
MOST_REPETITIONS = 50  # repetitions of the format of printf


def echo(call: Call) -> None:
    """Judge `echo`, `true` and `:`, which have no effect besides their output."""
    if call.label == "echo":
        call.says = echo_texts(call.words)
        call.output = _echo_output(call)
    elif call.label in ("true", ":"):
        call.output = ""
    call.add_rule_fact(Tier.READ)


def printf(call: Call) -> None:
    """Judge `printf FORMAT ..`; `-v NAME` is an assignment."""
    words, state = list(call.words), call.state
    while words and words[0].text is not None and words[0].text[:2] == "-v":
        first = words.pop(0)
        name = literal(first.text[2:]) if first.text and first.text[2:] else words.pop(0) if words else ANYTHING
        if name.text is None or not _NAME.fullmatch(name.text):
            call.unknown("`printf -v` sets a variable whose name is uncertain", first)
            return
        # The last -v is used, but bash also validates the names of the earlier ones.
        value = AbstractWord(may_split=True, hints=printf_texts(words[:1], words[1:]))
        state = call.shell.variables.assign(state, name.text, value, call.span)
        call.after = ExitStates.same(state)
    if words and words[0].text is None and not words[0].plain and call.frame.in_shell:
        call.unknown("a word known only at run time may become `-v` of `printf`, which sets a variable", words[0])
        return
    words = words[1:] if words and words[0].text == "--" else words
    call.says = printf_texts(words[:1], words[1:])
    if state is call.state:
        call.output = _printf_output(words)
    call.add_rule_fact(Tier.READ)


def echo_texts(words: Sequence[AbstractWord]) -> tuple[str, ...]:
    """Return the texts that `echo` may print for `words`; none if nothing is known about a word."""
    flags = [word.text or "" for word in takewhile(lambda word: _FLAGS.fullmatch(word.text or ""), words)]
    texts = (" ".join(each) for each in _combinations(words[len(flags) :]))
    return tuple(decode_escapes(text) if "e" in "".join(flags) else text for text in texts)


def printf_texts(format: Sequence[AbstractWord], words: Sequence[AbstractWord]) -> tuple[str, ...]:
    """Return the texts that `printf` may print for `format` (no word or one) and `words`; none if nothing is known
    about a word.
    """
    return tuple(_format(each[0], each[1:]) for each in _combinations([*format, *words]) if each)


def decode_escapes(text: str) -> str:
    """Return `text` with the escapes of `echo -e` and printf(1) replaced by the characters that they represent."""
    return _ESCAPE.sub(_character, text)


def _echo_output(call: Call) -> str | None:
    """Return the exact output of `echo`, or None if it is not certain: shells differ about backslashes and flags."""
    words = _exact(call.words)
    if words is None:
        return None
    count = sum(1 for _ in takewhile(_FLAGS.fullmatch, words))
    flags, text = "".join(words[:count]), " ".join(words[count:])
    if call.frame.other_shell and (flags or "\\" in text or text.startswith("-")):
        return None
    if "e" in flags and "\\" in text:
        return None
    return text if "n" in flags else f"{text}\n"


_PLAIN_FIELD = late(r"%s|%%|\\[nt\\]|[^%\\]")
_PLAIN_FORMAT = late(rf"(?:{_PLAIN_FIELD.pattern})*")
_PLAIN_ESCAPES = {"%%": "%", "\\n": "\n", "\\t": "\t", "\\\\": "\\"}


def _printf_output(words: Sequence[AbstractWord]) -> str | None:
    """Return the exact output of `printf` for a format of plain text and `%s`, or None for another format."""
    texts = _exact(words)
    if not texts or texts[0][:1] == "-" or not _PLAIN_FORMAT.fullmatch(texts[0]):
        return None
    fields, remaining, output = _PLAIN_FIELD.findall(texts[0]), texts[1:], []
    while True:
        before = len(remaining)
        for each in fields:
            if each == "%s":
                output.append(remaining.pop(0) if remaining else "")
            else:
                output.append(_PLAIN_ESCAPES.get(each, each))
        if not remaining or len(remaining) == before:
            return "".join(output)


def _exact(words: Sequence[AbstractWord]) -> list[str] | None:
    """Return the texts of words that are certain, or None."""
    texts = [word.text for word in words if word.text is not None and not word.may_split]
    return texts if len(texts) == len(words) and sum(map(len, texts)) <= 4 * MOST_TEXT else None


def _character(found: re.Match[str]) -> str:
    octal, byte, point, letter = found.groups()
    if letter:
        return _LETTER_ESCAPES[letter]
    return chr(int(octal, 8) & 0xFF) if octal else chr(int(byte or point, 16))


def _combinations(words: Sequence[AbstractWord]) -> list[tuple[str, ...]]:
    choices = [word.texts or word.likely_texts or word.hints for word in words]
    if not all(choices) or sum(len(max(each, key=len)) for each in choices) > MOST_TEXT:
        return []
    return list(islice(product(*choices), MOST_HINTS))


def _format(format: str, words: Sequence[str]) -> str:
    remaining, output = list(words), ""
    for _ in range(MOST_REPETITIONS):
        before = len(remaining)

        def field(found: re.Match[str]) -> str:
            if found[1] == "%":
                return "%"
            word = remaining.pop(0) if remaining else ""
            return decode_escapes(word) if found[1] == "b" else word

        output += _FIELD.sub(field, decode_escapes(format))
        if not remaining or len(remaining) == before:
            break
    return output
