"""Files that a command selects by name patterns (`find -name`, `grep --include`, `grep '^x$'` of a list).

The results only serve to find secrets: they never make a verdict less strict.
"""

import re
from collections.abc import Iterable

from policy.describe.phrases import secret_kind
from policy.interpreter.command_call import Call, ParsedOptions
from policy.interpreter.uncertain_paths import only_secrets
from policy.model.abstract_word import AbstractWord, tokens
from policy.model.assessment import EffectKind, Scope
from policy.model.tier import Tier

_SIGNS = frozenset("*?[")
_ESCAPED = re.compile(r"\\(.)")
# Parts of a regular expression around a file name that do not change the name.
_AROUND = re.compile(r"\A\^?(?:\.\*)?/?|\$?\Z")
# Flags with patterns for file names: of grep, ripgrep, and ag (`-G`, a regular expression).
_CHOOSING = frozenset(["--include", "-g", "--glob", "--iglob", "-G"])
_PRINTS_A_FIELD = re.compile(r"\s*\{\s*print(?:\s+\$\w+)?\s*;?\s*\}\s*")
_NO_CONTENT = frozenset(["--files", "--type-list"])  # ripgrep prints names only
# With these flags, the input or the output of grep is not a list of names.
_OTHER_LINES = frozenset(
    ["-v", "--invert-match", "-r", "-R", "--recursive", "--dereference-recursive", "-c", "--count"]
)


def names_for_patterns(call: Call, patterns: Iterable[str], folders: Iterable[str] = (".",)) -> tuple[str, ...]:
    """Return the patterns of `find -name` as written, and the names of files that they match if each is a secret.

    A pattern that begins with a wildcard may match anything below the folders, so only its own text counts.
    """
    classifier, found = call.findings.classifier, dict[str, None]()
    for pattern in patterns:
        found[pattern] = None
        name = pattern.rpartition("/")[2]
        if not _SIGNS.intersection(name) or name[:1] in ("*", "?", ""):
            continue
        for cwd in call.state.cwds or ():
            for folder in folders:
                found |= dict.fromkeys(only_secrets(classifier, name, classifier.absolute(folder, cwd)))
    return tuple(found)


def name_of_regex(expression: str) -> str:
    """Return `expression` without anchors, a leading `.*/` and backslashes.

    For an expression such as `.*/\\.env$` or `^id_rsa$` this is the one name that it matches; for others it is not a
    name, so callers may use it only as a hint at secrets.
    """
    return _ESCAPED.sub(r"\1", _AROUND.sub("", expression))


def report_secret_search(call: Call, shape: ParsedOptions) -> None:
    """Report a search as reading a secret if its flags let it read only files with names of secrets."""
    given = {flag.name for flag, _ in shape.flags}
    if given.isdisjoint(_CHOOSING) or not given.isdisjoint(_NO_CONTENT):
        return
    chosen = [value for flag, value in shape.flags if flag.name in _CHOOSING and value is not None]
    texts = [text for value in chosen for text in value.texts if text[:1] != "!"]
    if "-G" in given:
        texts = [name_of_regex(text) for text in texts]
    unknown = any(not value.texts for value in chosen)
    classifier = call.findings.classifier
    secret = [name for text in texts for name in names_for_patterns(call, [text])[-1:] if classifier.secret_parts(name)]
    if texts and not unknown and len(secret) == len(texts):
        call.findings.add_effect(EffectKind.READS, secret[0], Scope.SECRET)
        call.add_reason(Tier.SECRET, f"reads nothing but {', '.join(secret[:3])}, {secret_kind(secret[0])}", chosen[0])


def names_from_grep(shape: ParsedOptions) -> tuple[str, ...]:
    """Return the names that `grep` selects from its input: its patterns, taken as patterns for one name each."""
    if not {flag.name for flag, _ in shape.flags}.isdisjoint(_OTHER_LINES):
        return ()
    patterns = [value for flag, value in shape.flags if flag.name in ("-e", "--regexp") and value is not None]
    operands = shape.operands
    if not patterns:
        patterns, operands = operands[:1], operands[1:]
    return () if operands else tuple(name_of_regex(text) for word in patterns for text in word.texts)


def split_output(program: str, words: list[AbstractWord], heard: tuple[str, ...]) -> tuple[str, ...]:
    """Return the lines `heard` and their words if `program` only splits them: `cut`, `tr -d`, `awk '{print $2}'`."""
    texts = [word.text or "" for word in words]
    deletes = program == "tr" and texts[:1] in (["-d"], ["-s"])
    prints = program == "awk" and texts and _PRINTS_A_FIELD.fullmatch(texts[-1])
    return (*heard, *tokens(heard)) if program == "cut" or deletes or prints else ()


def paths_from_fd(call: Call, shape: ParsedOptions) -> AbstractWord:
    """Return the paths that `fd` passes to a command, with hints from its patterns."""
    texts = [name_of_regex(text) for word in shape.operands[:1] for text in word.texts]
    extensions = [word for flag, word in shape.flags if flag.name in ("-e", "--extension") and word is not None]
    endings = [f"*.{text}" for word in extensions for text in word.texts]
    return AbstractWord(globbed=True, hints=(*names_for_patterns(call, texts), *endings))
