"""The handler of `find`: its tests and actions are an allowlist, and every action is judged."""

import re

from policy.handlers.wrappers import with_data
from policy.interpreter.command_call import Call
from policy.interpreter.name_filters import name_of_regex, names_for_patterns
from policy.interpreter.operand_roles import judge_bounded
from policy.model.abstract_word import AbstractWord, below, literal
from policy.model.frozen import replace
from policy.model.tier import Tier
from policy.rules.rule import Role

# fmt: off
_TESTS_0 = frozenset(["-empty", "-nouser", "-nogroup", "-readable", "-writable", "-executable", "-true", "-false"])
_FILE_TESTS = frozenset(["-newer", "-anewer", "-cnewer", "-samefile"])
_BY_NAME = frozenset(["-name", "-iname", "-path", "-ipath", "-wholename", "-iwholename", "-samefile"])
_BY_EXPRESSION = frozenset(["-regex", "-iregex"])
# Tests that select few files; a type or a date may be true of nearly all files.
_SELECTIVE_TESTS = _FILE_TESTS | _BY_NAME | _BY_EXPRESSION | {"-lname", "-ilname", "-inum"}
_TESTS_1 = _SELECTIVE_TESTS | frozenset((
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
_ACTING = _EXEC | _WRITE_FILE | frozenset(["-fprintf", "-delete", "-files0-from"])
# fmt: on
# The number of words that belong to each test, option and action; an `-exec` ends where its command ends.
_ARGUMENTS = {
    **dict.fromkeys(_TESTS_0 | _OPTIONS_0 | _ACTIONS_0 | {"-delete"}, 0),
    **dict.fromkeys(_TESTS_1 | _OPTIONS_1 | _WRITE_FILE | {"-printf"}, 1),
    "-fprintf": 2,
}
_KNOWN_WORDS = _ARGUMENTS.keys() | _OPERATORS | _EXEC | {"-files0-from", "-D"}
_PRINTING = _EXEC | _WRITE_FILE | frozenset((
    "-print", "-print0", "-ls", "-printf", "-fprintf", "-help", "--help", "-version", "--version",
))  # fmt: skip
_NEWER = re.compile("-newer[aBcmt]{2}")
_NOT = frozenset(["!", "-not"])
_OR = frozenset(["-o", "-or", ","])
_GIT_FOLDER = re.compile(r"(?:^|/)\\?\.git(?:/|\*|\Z)")


def find(call: Call) -> None:
    """Judge `find [PATHS] [EXPRESSION]`."""
    words, at = call.words, 0
    starts: list[AbstractWord] = []
    parts: list[tuple[str, list[AbstractWord]]] = []
    narrowed = negated = doubtful = False
    all_narrowed = True  # each alternative so far was narrowed
    printing: set[str] = set()
    while at < len(words):
        word, text = words[at], words[at].text
        at += 1
        if text is None:
            if word.plain or _names_only(word):
                starts.append(word)
                continue
            if not _judge_doubt(call, "a word known only at run time may become a test or action of `find`", word):
                return
            starts.append(word)
            doubtful = True
            continue
        if text not in ("!", "(", ")", ",") and text[:1] != "-":
            starts.append(word)
            continue
        if text in _OR:
            all_narrowed, narrowed = all_narrowed and narrowed, False
        after_not, negated = negated, text in _NOT
        all_narrowed = all_narrowed and not (after_not and text == "(")
        if text in _PRINTING:
            printing.add(text)
        if text in _OPERATORS or text in _OPTIONS_0 or text in _ACTIONS_0:
            continue
        if text in _TESTS_0:
            narrowed = narrowed or (text == "-empty" and not after_not)
            continue
        count = _exec_length(words, at) if text in _EXEC else 1 if _NEWER.fullmatch(text) else _ARGUMENTS.get(text)
        if count is None:
            call.unknown(f"`{text}` is not a known test or action of `find`", word)
            return
        values = words[at : at + count]
        at += count
        if text not in _EXEC and any(value.may_split and not (value.plain or _names_only(value)) for value in values):
            trouble = f"the value of `{text}` may become further tests or actions of `find`"
            if not _judge_doubt(call, trouble, values[0]):
                return
            doubtful = True
        narrowed = narrowed or (text in _SELECTIVE_TESTS and not after_not and _is_selective(values))
        parts.append((text, values))
    call.add_rule_fact(Tier.READ)
    narrowed = narrowed and all_narrowed and not doubtful
    starts = starts or [literal(".")]
    for start in starts:
        call.access_path(Role.TREE, start)
    names = _matched_names(call, words, parts, starts)
    secrets = tuple(text for start in starts for text in start.texts if call.findings.classifier.secret_parts(text))
    call.says = names or secrets
    results = [replace(_result_word(start, narrowed), hints=names or secrets) for start in starts]
    if printing == {"-print0"}:
        call.lists = tuple(results)
    for text, values in parts:
        _judge_predicate(call, text, values, results)


def _judge_doubt(call: Call, trouble: str, word: AbstractWord) -> bool:
    """Judge a word that may become tests or actions. Return False if it may become a known action other than printing.

    THREAT T166: the actions that the other words name are certain: `find "$x" -exec git reset --hard ;`.
    """
    if any(text in _ACTING for text in (*word.texts, *word.hints)) or (
        word.head[:1] == "-" and any(name.startswith(word.head) for name in _ACTING)
    ):
        call.unknown(trouble, word)
        return False
    judge_bounded(call, trouble, word)
    return True


def _matched_names(
    call: Call, words: list[AbstractWord], parts: list[tuple[str, list[AbstractWord]]], starts: list[AbstractWord]
) -> tuple[str, ...]:
    """Return the names that all found files have, as written, and the secrets that only such a pattern finds.

    With an operator, a test alone does not determine the found files, so nothing is returned. The exception is `-o`
    between tests of names that all name secrets.
    """
    operators = _LOGIC.intersection(word.text for word in words)
    choice = bool(operators) and operators <= _PLAIN_OR and all(test in _BY_NAME or test in _EXEC for test, _ in parts)
    if operators and not choice:
        return ()
    tests = [(text, values[0].text or "") for text, values in parts if values]
    if choice and not all(call.findings.classifier.secret_parts(text) for test, text in tests if test in _BY_NAME):
        return ()
    patterns = [text for test, text in tests if test in _BY_NAME]
    patterns += [name_of_regex(text) for test, text in tests if test in _BY_EXPRESSION]
    return names_for_patterns(call, patterns, [text for start in starts for text in start.texts])


_PLAIN_OR = frozenset(["-o", "-or"])
# With one of these, a test alone does not determine the found files.
_LOGIC = frozenset(["!", "-not", "-o", "-or", ",", "-prune"])


def _is_selective(values: list[AbstractWord]) -> bool:
    """Return True if the pattern in `values` excludes most files, and all files of the folder `.git`.

    A pattern known only at run time counts as selective.
    """
    text = values[0].text if values else None
    return text is None or (bool(text.strip("*?./")) and not _GIT_FOLDER.search(text))


def _exec_length(words: list[AbstractWord], at: int) -> int:
    """Return the number of words of the `-exec` command at `at`, including the final `;` or `{} +`."""
    for index in range(at, len(words)):
        text = words[index].text
        if text == ";" or (text == "+" and index > at and words[index - 1].text == "{}"):
            return index + 1 - at
    return len(words) - at


def _names_only(word: AbstractWord) -> bool:
    """Return True if the word can only name files: it is a glob or one word, and no test or action has its end."""
    one = word.globbed or not word.may_split
    return one and bool(word.tail) and not any(name.endswith(word.tail) for name in _KNOWN_WORDS)


def _result_word(start: AbstractWord, narrowed: bool) -> AbstractWord:
    """Return the possible values of `{}`: the start folder or a path below it, which begins with its name."""
    if start.text:
        return replace(below(start.text), subset=narrowed)
    if start.globbed and start.head:
        return replace(start, may_split=False, subset=True)
    return AbstractWord(head=start.head, never_an_option=start.plain)


def _judge_predicate(call: Call, text: str, values: list[AbstractWord], results: list[AbstractWord]) -> None:
    if text in _FILE_TESTS and values:
        call.access_path(Role.TREE, values[0])
    elif values and (text in _WRITE_FILE or text == "-fprintf"):
        call.access_path(Role.WRITE, values[0])
    elif text == "-delete":
        for each in results:
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
            data = AbstractWord(head="./", globbed=several, never_an_option=True, hints=results[0].hints)
            call.run(with_data(values, "{}", data, several=several), state)
            return
        for each in results:
            call.run(with_data(values, "{}", each, several=several))
