"""Git commands that print the content of files that Git stores: in the index, in commits, or under an object id."""

import re
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from fnmatch import fnmatchcase

from policy.describe.phrases import listed, plain
from policy.interpreter.command_call import Call, ParsedOptions
from policy.model.abstract_word import AbstractWord
from policy.model.assessment import EffectKind, Scope
from policy.model.facts import Kind
from policy.model.secret_paths import inside, normal
from policy.model.tier import Tier

# Parts of the repository, as `Facts.tracked` names them.
INDEX, HISTORY = ("index",), ("index", "history")
ASSUMED, DELETED = ("index entries assumed unchanged",), ("deleted files",)

# Flags with which a command that lists commits or names prints differences, too (git-log(1), "Generating patch text").
_EXPLICIT = frozenset((
    "-p", "-u", "--patch", "-U", "--unified", "--patch-with-raw", "--patch-with-stat", "--binary", "--check",
))  # fmt: skip
_PATCH = _EXPLICIT | frozenset((
    "-c", "--cc", "--dd", "-W", "--function-context", "--word-diff", "--word-diff-regex", "--color-words",
    "--remerge-diff", "--diff-merges", "-m",
))  # fmt: skip
# Flags with which a command that prints differences does not.
_NO_PATCH = frozenset((
    "-s", "--no-patch", "--stat", "--numstat", "--shortstat", "--dirstat", "--summary", "--name-only", "--name-status",
    "--raw", "--quiet", "--compact-summary", "--cumulative",
))  # fmt: skip
# A word that may be the id of a file's content; the name of a reference is one of commits.
_ID = re.compile(r"(?:[0-9a-f]{4,64}|.*\^\{(?:blob|object)?\})", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9_][\w./+-]*")  # of a reference
_KINDS = ("commit", "tree", "tag")
_GLOB, _CLASS = re.compile(r"[*?\[\\]"), re.compile(r"[\[\\]")
_EXCLUDE = re.compile(r":(?:[!^]|\(exclude\))(.+)")
# What stands behind a revision in braces may hold a colon: `HEAD^{/fix: x}`, `main@{12:00}`.
_BRACES = re.compile(r"[\^@]\{[^}]*\}")
# Flags of `git` that give a pathspec another meaning, and flags with which more is printed than the paths select.
_PATHSPECS = frozenset(("--literal-pathspecs", "--glob-pathspecs", "--noglob-pathspecs", "--icase-pathspecs"))
_PAST_PATHS = frozenset(("--full-diff", "--follow", "--stdin"))

GitSources = tuple[str, ...]


def kept(call: Call, before: AbstractSet[str]) -> None:
    """Ask if the command prints files of the index or of the history, and a secret one is or may be among them.

    `call` is that of the subcommand; `before` are the flags of `git` itself.

    THREAT T117: the sandbox masks secret files, and not the objects in which Git stores them.
    """
    shape = call.parse()
    given = {flag.name for flag, _ in shape.flags}
    shows = _SHOWS.get(call.label.removeprefix("git "))
    where = shows(call, shape, given) if shows is not None else ()
    if not where:
        return
    # No path keeps the content that an id names from being printed.
    narrowed = not (before & _PATHSPECS or given & _PAST_PATHS or _objects(call, shape))
    exact = _trees(call, shape, given) if where == HISTORY and not before - _PLAIN else ()
    _look(call, shape, exact or where, narrowed=narrowed)
    if exact:  # another command of the script may give the revisions another meaning, also one that stands behind
        step = call.findings.step

        def again() -> None:
            call.findings.step = step
            _look(call, shape, where, narrowed=narrowed)

        call.findings.deferred_checks.append(again)


def _look(call: Call, shape: ParsedOptions, where: GitSources, *, narrowed: bool) -> None:
    names: list[str] = []
    for each in where:
        found = call.facts.tracked(each)
        if found is None:
            asked(call, f"prints files stored by Git ({each}), which could not be checked for secrets")
            return
        names += found
    every = sorted(set(names))
    if names := _chosen(call, shape, every) if narrowed else every:
        asked(call, f"prints files stored by Git, which may include {named(names)}")


def named(names: list[str]) -> str:
    """Return the first of `names` and how many more there are, for a reason."""
    return listed([f"`{plain(name)}`" for name in names[:3]] + ([f"{len(names) - 3} more"] if len(names) > 3 else []))


def asked(call: Call, text: str) -> None:
    """Make the command a question. `text` is the cause, as the end of a sentence that starts with the command."""
    call.findings.add_effect(EffectKind.READS, f"{call.facts.workspace}/.git", Scope.WORKSPACE, False)
    call.add_fact(Tier.READ_OUTSIDE, text)


# ---- which of them print content


def _difference(call: Call, shape: ParsedOptions, given: set[str]) -> GitSources:
    if "--no-index" in given or (given & _NO_PATCH and not given & _EXPLICIT):
        return ()
    compared = given & {"--cached", "--staged", "--merge-base"} or any(
        is_revision(call, word) for word in before_dashes(call, shape)
    )
    return HISTORY if compared else INDEX


def _commits(call: Call, shape: ParsedOptions, given: set[str]) -> GitSources:
    unknown = any(flag.name == "-L" and (value is None or not value.texts) for flag, value in shape.flags)
    if unknown or given & _EXPLICIT or (given & _PATCH and not given & _NO_PATCH):
        return HISTORY
    return DELETED if "-L" in given else ()  # it follows renames: the file may have had the name of a secret


def _show(call: Call, shape: ParsedOptions, given: set[str]) -> GitSources:
    if given & _NO_PATCH and not given & (_EXPLICIT | {"--stdin"}) and not _objects(call, shape):
        return _marked(call, shape)
    words = before_dashes(call, shape)
    files = bool(words) and all(word.texts and all(map(_names_file, word.texts)) for word in words)
    return () if files and "--stdin" not in given else HISTORY  # `REV:PATH` is judged by its name


def _names_file(text: str) -> bool:
    """Return True for `REV:PATH` and `:PATH` (gitrevisions(7)); `:/TEXT` and `REV^{/TEXT}` are commits."""
    return not text.startswith(":/") and ":" in _BRACES.sub("", text)


def _objects(call: Call, shape: ParsedOptions) -> bool:
    """Return True if an operand may be the id of a file's content, which no flag keeps from being printed."""
    return any(not word.texts or any(map(_ID.fullmatch, word.texts)) for word in before_dashes(call, shape))


def _print(call: Call, shape: ParsedOptions, given: set[str]) -> GitSources:
    if given & {"--batch", "--batch-command", "--textconv", "--filters"}:
        return HISTORY
    if given & {"-t", "-s", "-e", "--batch-check"}:
        return ()
    words = shape.operands
    if words and words[0].text in _KINDS and len(words) > 1:
        return ()
    return HISTORY if _objects(call, shape) else _marked(call, shape)


def _marked(call: Call, shape: ParsedOptions) -> GitSources:
    """Return a look at each name that may be that of a tag: one that marks the content of a file prints it."""
    texts = [word.text for word in before_dashes(call, shape) if word.text]
    return tuple(f"content of {text}" for text in texts if _NAME.fullmatch(text) and text not in ("HEAD", "@"))


def _formatted(call: Call, shape: ParsedOptions, given: set[str]) -> GitSources:
    """Return the source for a format: `%(raw)` prints the content of a file that a reference names."""
    values = [value for flag, value in shape.flags if flag.name == "--format"]
    return HISTORY if any(value is None or value.text is None or "raw" in value.text for value in values) else ()


def _search(call: Call, shape: ParsedOptions, given: set[str]) -> GitSources:
    if "--no-index" in given or "--untracked" in given:
        return ()
    words = before_dashes(call, shape)
    words = words if given & {"-e", "-f"} else words[1:]
    # Of a file that is assumed to be unchanged, it reads what the index has (git-update-index(1)).
    return HISTORY if "--cached" in given or any(is_revision(call, word) for word in words) else ASSUMED


def _with(*flags: str, where: GitSources = HISTORY) -> "_Shows":
    """Return the description of a command that prints content with one of `flags`."""
    return lambda call, shape, given: where if given & set(flags) else ()


def _without(*flags: str) -> "_Shows":
    """Return the description of a command that prints content, but not with one of `flags`."""
    return lambda call, shape, given: () if given & set(flags) else HISTORY


def _unless_named(call: Call, shape: ParsedOptions, given: set[str]) -> GitSources:
    """Return the source for a command that prints one file, which is judged by its name if the name is known."""
    return HISTORY if any(not word.texts for word in shape.operands) else ()


def _settings(call: Call, shape: ParsedOptions, given: set[str]) -> GitSources:
    value = next((value for flag, value in shape.flags if flag.name == "--blob" and value is not None), None)
    if "--blob" not in given:
        return ()
    return () if value is not None and value.texts and all(map(_names_file, value.texts)) else HISTORY


_Shows = Callable[[Call, ParsedOptions, set[str]], GitSources]
_INTERACTIVE = _with("-p", "--patch", "-i", "--interactive", "-e", "--edit")
_SHOWS: dict[str, _Shows] = {
    "diff": _difference,
    "log": _commits, "whatchanged": _commits, "shortlog": _commits, "reflog": _commits, "reflog show": _commits,
    "stash list": _commits, "rev-list": _commits,
    # It may print differences by the repository's setting `stash.showPatch`.
    "stash show": lambda call, shape, given: HISTORY if given & _EXPLICIT or not given & _NO_PATCH else (),
    "show": _show,
    "diff-tree": _commits, "diff-index": _commits,
    "diff-files": lambda call, shape, given: INDEX if _commits(call, shape, given) else (),
    "range-diff": _without("-s", "--no-patch"), "merge-tree": _without("--name-only"),
    "cat-file": _print, "grep": _search, "blame": _unless_named, "annotate": _unless_named,
    "archive": _without("--list", "-l"), "fast-export": _without("--no-data", "--anonymize"),
    "bundle create": _without(), "format-patch": _without(), "request-pull": _with("-p"),
    "difftool": _without(), "upload-pack": _without(), "upload-archive": _without(), "http-backend": _without(),
    "config": _settings, "config get": _settings, "config list": _settings,
    "for-each-ref": _formatted, "branch": _formatted, "tag": _formatted,
    "pack-objects": _without(), "mktree": _without(), "hash-object": _with("-t", "--literally"),  # other names for it
    **dict.fromkeys(("notes add", "notes append"), _with("-C", "-c", "--reuse-message", "--reedit-message")),
    "status": _with("-v", "--verbose"),
    "commit": _with("-v", "--verbose", "-p", "--patch", "--interactive"),
    **dict.fromkeys(("add", "checkout", "reset", "restore", "stash", "stash push"), _INTERACTIVE),
    **dict.fromkeys(("rebase", "am"), _with("--show-current-patch")),
}  # fmt: skip


# ---- which trees

# Flags that change how something is printed, and not which commits are compared.
_DISPLAY = (_PATCH - {"--remerge-diff", "--diff-merges", "-m"}) | _NO_PATCH | frozenset((
    "-a", "-b", "-w", "-z", "-M", "-R", "--abbrev", "--abbrev-commit", "--color", "--color-moved", "--date",
    "--decorate", "--diff-algorithm", "--exit-code", "--find-renames", "--format", "--full-index", "--histogram",
    "--ignore-all-space", "--ignore-blank-lines", "--ignore-space-change", "--indent-heuristic", "--inter-hunk-context",
    "--minimal", "--no-abbrev-commit", "--no-color", "--no-decorate", "--no-ext-diff", "--no-notes", "--no-prefix",
    "--no-renames", "--no-textconv", "--oneline", "--patience", "--pretty", "--text",
))  # fmt: skip
_NUMBER = re.compile(r"-\d+")
_COUNT = frozenset(("-#", "-n", "--max-count"))
_ACCEPTED = {
    "diff": _DISPLAY | {"--cached", "--staged", "--diff-filter"},
    "log": _DISPLAY | _COUNT,
    "show": _DISPLAY | _COUNT | {"--diff-filter"},
}
_PLAIN = frozenset(("-C", "-c", "-P", "--no-pager", "--no-optional-locks"))  # flags of `git` that change no revision


def _trees(call: Call, shape: ParsedOptions, given: set[str]) -> GitSources:
    """Return the trees and changes of which alone the command prints files; nothing where that is not certain."""
    name = call.label.removeprefix("git ")
    if shape.trouble or name not in _ACCEPTED or given - _ACCEPTED[name]:
        return ()
    words = [word for word in before_dashes(call, shape) if is_revision(call, word)]
    texts = [word.text for word in words if word.text]
    if len(texts) != len(words):
        return ()
    counts = [value and value.text for flag, value in shape.flags if flag.name in ("-n", "--max-count")]
    counts += [word.text[1:] for word in call.words if word.text and _NUMBER.fullmatch(word.text)]
    if any(count != "1" for count in counts):
        return ()
    if name == "diff":
        return _compared(texts, bool(given & {"--cached", "--staged"}))
    if name == "log" and (not given & _COUNT or len(texts) > 1 or len(shape.operands) > len(texts)):
        return ()  # with a path, the last commit that changed it is printed
    return tuple(f"change of {text}" for text in texts or ["HEAD"] if not _names_file(text))


def _compared(texts: list[str], cached: bool) -> GitSources:
    """Return what `git diff` compares: the index or what lies in the workspace with a tree, or trees."""
    found: list[str] = []
    for text in texts or ["HEAD"]:
        first, dots, second = text.partition("..")
        if second.startswith("."):
            return ()  # the merge base is not looked for
        found += [first or "HEAD", second or "HEAD"] if dots else [first]
    trees = tuple(f"tree of {each}" for each in found)
    return trees if len(trees) > 1 and not cached else (*INDEX, *trees)


# ---- which files


def dashes_at(call: Call) -> int | None:
    """Return the position of `--` among the words, or None."""
    return next((place for place, word in enumerate(call.words) if word.text == "--"), None)


def before_dashes(call: Call, shape: ParsedOptions) -> list[AbstractWord]:
    """Return the operands before `--`."""
    dashes = dashes_at(call)
    after = len(call.words) - dashes - 1 if dashes is not None else 0
    return shape.operands[: len(shape.operands) - after]


def is_revision(call: Call, word: AbstractWord) -> bool:
    """Return True unless the word, which stands before any `--`, is certainly a path that is there."""
    classifier, cwds = call.findings.classifier, call.state.cwds
    if not word.texts or not cwds or dashes_at(call) is not None:
        return True
    return any(classifier.place(text, cwd).kind is Kind.MISSING for text in word.texts for cwd in cwds)


def _chosen(call: Call, shape: ParsedOptions, names: list[str]) -> list[str]:
    """Return those of `names` that the paths of the command select; all of them where that is not certain."""
    dashes = dashes_at(call)
    words = list(call.words[dashes + 1 :]) if dashes is not None else []
    if dashes is None and call.label.removeprefix("git ") in ("diff", "log", "show", "grep", "whatchanged"):
        words = [word for word in shape.operands if not is_revision(call, word)]
    workspace, cwds = call.facts.workspace, call.state.cwds or ()
    if not words or len(cwds) != 1 or not inside(cwds[0], workspace) or _GLOB.search(cwds[0]):
        return names
    if not all(word.texts for word in words):
        return names
    paths = [text for word in words for text in word.texts]
    within = cwds[0][len(workspace) :].strip("/")
    left = [match[1] for path in paths if (match := _EXCLUDE.fullmatch(path))]
    wanted = [path for path in paths if not _EXCLUDE.fullmatch(path)]
    odd = any(path.startswith((":", "/")) or _CLASS.search(path) for path in (*wanted, *left))
    if odd or any(_GLOB.search(path) for path in left):
        return names
    return [
        name
        for name in names
        if (not wanted or any(_fits(name, path, within) or _lies_in(name, path, within) for path in wanted))
        and not any(_fits(name, path, within) for path in left)
    ]


def _fits(name: str, path: str, within: str) -> bool:
    """Return True if the pathspec `path`, typed in the folder `within`, selects `name` (gitglossary(7), pathspec)."""
    whole, name = _full(path, within), name.lower().rstrip("/")
    if not whole or name == whole or name.startswith(f"{whole}/"):
        return True
    above = ["/".join(name.split("/")[:count]) for count in range(1, name.count("/") + 2)]
    return bool(_GLOB.search(whole)) and any(fnmatchcase(each, whole) for each in above)


def _lies_in(name: str, path: str, within: str) -> bool:
    """Return True if the pathspec may select something in the folder `name`: a beginning of it matches the folder."""
    whole = _full(path, within)
    return name.endswith("/") and any(fnmatchcase(name.lower(), whole[:end]) for end in range(1, len(whole) + 1))


def _full(path: str, within: str) -> str:
    return normal(f"{within}/{path}")[1:].lower()
