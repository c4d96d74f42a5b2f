"""The expression language of find: an allowlist of tests and actions; every action is judged."""

import re
from dataclasses import replace

from policy.handlers.wrappers import with_data
from policy.interpreter.command_call import Call
from policy.interpreter.name_filters import name_of_regex, names_for_patterns
from policy.model.abstract_word import AbstractWord, below, literal
from policy.model.tier import Tier
from policy.rules.rule import Role

# fmt: off
_TESTS_0 = frozenset(["-empty", "-nouser", "-nogroup", "-readable", "-writable", "-executable", "-true", "-false"])
_FILE_TESTS = frozenset(["-newer", "-anewer", "-cnewer", "-samefile"])
_BY_NAME = frozenset(["-name", "-iname", "-path", "-ipath", "-wholename", "-iwholename", "-samefile"])
_BY_EXPRESSION = frozenset(["-regex", "-iregex"])
# Tests that choose files one by one; a type or a date is true of nearly all of them.
_NARROW = _FILE_TESTS | _BY_NAME | _BY_EXPRESSION | {"-lname", "-ilname", "-inum"}
_TESTS_1 = _NARROW | frozenset((
    "-type", "-xtype", "-size", "-mtime", "-atime", "-ctime", "-mmin", "-amin", "-cmin", "-perm", "-user",
    "-group", "-uid", "-gid", "-links", "-fstype", "-used", "-context", "-Btime", "-Bmin",
))
_OPTIONS_0 = frozenset((
    "-depth", "-d", "-mount", "-xdev", "-x", "-noleaf", "-daystart", "-follow", "-f", "-s", "-E", "-X",
    "-ignore_readdir_race", "-noignore_readdir_race", "-warn", "-nowarn", "-H", "-L", "-P", "-O1", "-O2", "-O3",
    "-help", "--help", "-version", "--version",
))
_OPTIONS_1 = frozenset(["-maxdepth", "-mindepth", "-regextype"])
_ACTIONS_0 = frozenset(["-print", "-print0", "-ls", "-prune", "-quit"])
_OPERATORS = frozenset(["(", ")", "!", "-not", "-a", "-and", "-o", "-or", ","])
_EXEC = frozenset(["-exec", "-execdir", "-ok", "-okdir"])
_WRITE_FILE = frozenset(["-fprint", "-fprint0", "-fls"])
# fmt: on
# The number of words that belong to each test, option and action; an `-exec` ends where its command ends.
_ARGUMENTS = {
    **dict.fromkeys(_TESTS_0 | _OPTIONS_0 | _ACTIONS_0 | {"-delete"}, 0),
    **dict.fromkeys(_TESTS_1 | _OPTIONS_1 | _WRITE_FILE | {"-printf"}, 1),
    "-fprintf": 2,
}
_EVERY = _ARGUMENTS.keys() | _OPERATORS | _EXEC | {"-files0-from", "-D"}
_SPEAKS = _EXEC | _WRITE_FILE | frozenset((
    "-print", "-print0", "-ls", "-printf", "-fprintf", "-help", "--help", "-version", "--version",
))  # fmt: skip
_NEWER = re.compile("-newer[aBcmt]{2}")
_NOT = frozenset(["!", "-not"])
_OR = frozenset(["-o", "-or", ","])
_HISTORY = re.compile(r"(?:^|/)\\?\.git(?:/|\*|\Z)")


def find(call: Call) -> None:
    """Judge `find [PATHS] [EXPRESSION]`."""
    words, at = call.words, 0
    starts: list[AbstractWord] = []
    todo: list[tuple[str, list[AbstractWord]]] = []
    narrowed = negated = False
    every = True  # each alternative so far was narrowed
    printing: set[str] = set()
    while at < len(words):
        word, text = words[at], words[at].text
        at += 1
        if text is None:
            if word.plain or _no_predicate(word):
                starts.append(word)
                continue
            call.unknown("a word known only at run time may become a test or action of `find`", word)
            return
        if text not in ("!", "(", ")", ",") and text[:1] != "-":
            starts.append(word)
            continue
        if text in _OR:
            every, narrowed = every and narrowed, False
        was, negated = negated, text in _NOT
        every = every and not (was and text == "(")
        if text in _SPEAKS:
            printing.add(text)
        if text in _OPERATORS or text in _OPTIONS_0 or text in _ACTIONS_0:
            continue
        if text in _TESTS_0:
            narrowed = narrowed or (text == "-empty" and not was)
            continue
        taken = _until_end(words, at) if text in _EXEC else 1 if _NEWER.fullmatch(text) else _ARGUMENTS.get(text)
        if taken is None:
            call.unknown(f"`{text}` is not a known test or action of `find`", word)
            return
        values = words[at : at + taken]
        at += taken
        if text not in _EXEC and any(value.may_split and not (value.plain or _no_predicate(value)) for value in values):
            call.unknown(f"the value of `{text}` may become further tests or actions of `find`", values[0])
            return
        narrowed = narrowed or (text in _NARROW and not was and _picks(values))
        todo.append((text, values))
    call.add_rule_fact(Tier.READ)
    narrowed = narrowed and every
    starts = starts or [literal(".")]
    for start in starts:
        call.access_path(Role.TREE, start)
    named = _named(call, words, todo, starts)
    begun = tuple(text for start in starts for text in start.texts if call.findings.classifier.secret_parts(text))
    call.says = named or begun
    found = [replace(_found(start, narrowed), hints=named or begun) for start in starts]
    if printing == {"-print0"}:
        call.lists = tuple(found)
    for text, values in todo:
        _act(call, text, values, found)


def _named(
    call: Call, words: list[AbstractWord], todo: list[tuple[str, list[AbstractWord]]], starts: list[AbstractWord]
) -> tuple[str, ...]:
    """Return the names that every file found has, as written, and the secrets that such a pattern alone finds.

    After an operator a test does not determine the matches, except for a choice between tests of names that are all for
    secrets.
    """
    operators = _CHOOSES.intersection(word.text for word in words)
    choice = bool(operators) and operators <= _OR_ALONE and all(test in _BY_NAME or test in _EXEC for test, _ in todo)
    if operators and not choice:
        return ()
    tests = [(text, values[0].text or "") for text, values in todo if values]
    if choice and not all(call.findings.classifier.secret_parts(text) for test, text in tests if test in _BY_NAME):
        return ()
    patterns = [text for test, text in tests if test in _BY_NAME]
    patterns += [name_of_regex(text) for test, text in tests if test in _BY_EXPRESSION]
    return names_for_patterns(call, patterns, [text for start in starts for text in start.texts])


_OR_ALONE = frozenset(["-o", "-or"])
_CHOOSES = frozenset(["!", "-not", "-o", "-or", ",", "-prune"])  # with these, a test says not what is found


def _picks(values: list[AbstractWord]) -> bool:
    """Return True if a pattern excludes most files, and those in which Git keeps all versions."""
    text = values[0].text if values else None
    return text is None or (bool(text.strip("*?./")) and not _HISTORY.search(text))


def _until_end(words: list[AbstractWord], at: int) -> int:
    """Return the number of words of an `-exec`, its `;` or `{} +` included."""
    for index in range(at, len(words)):
        text = words[index].text
        if text == ";" or (text == "+" and index > at and words[index - 1].text == "{}"):
            return index + 1 - at
    return len(words) - at


def _no_predicate(word: AbstractWord) -> bool:
    """Return True if the word is a glob whose certain end is the end of no test or action: its matches can only be
    names.
    """
    return word.globbed and bool(word.tail) and not any(name.endswith(word.tail) for name in _EVERY)


def _found(start: AbstractWord, narrowed: bool) -> AbstractWord:
    """Return the possible values of `{}`: the start or a path below it, which begins with the start."""
    if start.text:
        return replace(below(start.text), subset=narrowed)
    if start.globbed and start.head:
        return replace(start, may_split=False, subset=True)
    return AbstractWord(head=start.head, never_an_option=start.plain)


def _act(call: Call, text: str, values: list[AbstractWord], found: list[AbstractWord]) -> None:
    if text in _FILE_TESTS and values:
        call.access_path(Role.TREE, values[0])
    elif values and (text in _WRITE_FILE or text == "-fprintf"):
        call.access_path(Role.WRITE, values[0])
    elif text == "-delete":
        for each in found:
            call.access_path(Role.DELETE, each)
    elif text in _EXEC:
        several = bool(values) and values[-1].text == "+"
        while values and values[-1].text in (";", "+"):
            del values[-1]
        if not values:
            call.unknown(f"`find {text}` without a command")
            return
        if text.endswith("dir"):
            state = replace(call.state, cwds=None)
            data = AbstractWord(head="./", globbed=several, never_an_option=True, hints=found[0].hints)
            call.run(with_data(values, "{}", data, several=several), state)
            return
        for each in found:
            call.run(with_data(values, "{}", each, several=several))
