"""Git commands that print the content of files that Git stores: in the index, in commits, or under an object id."""

import re
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from fnmatch import fnmatchcase

from policy.describe.phrases import plain, short_list
from policy.interpreter.command_call import Call, ParsedOptions
from policy.model.abstract_word import AbstractWord
from policy.model.assessment import EffectKind, Scope
from policy.model.facts import GitSource, GitSourceKind, Kind
from policy.model.secret_paths import inside, normal
from policy.model.tier import Tier

# Parts of the repository, as `Facts.tracked` names them.
INDEX = (GitSource(GitSourceKind.INDEX),)
HISTORY = (*INDEX, GitSource(GitSourceKind.HISTORY))
ASSUMED, DELETED = (GitSource(GitSourceKind.ASSUMED),), (GitSource(GitSourceKind.DELETED),)

# Flags with which a command that lists commits or names also prints patches (git-log(1), "Generating patch text").
_EXPLICIT = frozenset((
    "-p", "-u", "--patch", "-U", "--unified", "--patch-with-raw", "--patch-with-stat", "--binary", "--check",
))  # fmt: skip
_PATCH = _EXPLICIT | frozenset((
    "-c", "--cc", "--dd", "-W", "--function-context", "--word-diff", "--word-diff-regex", "--color-words",
    "--remerge-diff", "--diff-merges", "-m",
))  # fmt: skip
# Flags with which a command that prints patches prints none.
_NO_PATCH = frozenset((
    "-s", "--no-patch", "--stat", "--numstat", "--shortstat", "--dirstat", "--summary", "--name-only", "--name-status",
    "--raw", "--quiet", "--compact-summary", "--cumulative",
))  # fmt: skip
# A word that may be the id of the content of a file. Names of references are names of commits.
_ID = re.compile(r"(?:[0-9a-f]{4,64}|.*\^\{(?:blob|object)?\})", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9_][\w./+-]*")  # the name of a reference
_KINDS = ("commit", "tree", "tag")
_GLOB, _CLASS = re.compile(r"[*?\[\\]"), re.compile(r"[\[\\]")
_EXCLUDE = re.compile(r":(?:[!^]|\(exclude\))(.+)")
# The braces after a revision may contain a colon: `HEAD^{/fix: x}`, `main@{12:00}`.
_BRACES = re.compile(r"[\^@]\{[^}]*\}")
# Flags of `git` that change the meaning of a pathspec, and flags that print more than the paths select.
_PATHSPECS = frozenset(("--literal-pathspecs", "--glob-pathspecs", "--noglob-pathspecs", "--icase-pathspecs"))
_BEYOND_PATHS = frozenset(("--full-diff", "--follow", "--stdin"))

GitSources = tuple[GitSource, ...]


def judge_printed_files(call: Call, git_flags: AbstractSet[str]) -> None:
    """Require an approval if the command may print secret files from the index or the history.

    `call` is that of the subcommand; `git_flags` are the flags of `git` itself.

    THREAT T117: the sandbox masks secret files, but not the objects in which Git stores them.
    """
    shape = call.parse()
    flags = {flag.name for flag, _ in shape.flags}
    shows = _SOURCES.get(call.label.removeprefix("git "))
    uncertain = shape.bounded  # a word may become any flag, such as `-p`, or any revision
    sources = () if shows is None else HISTORY if uncertain else shows(call, shape, flags)
    if not sources:
        return
    # Paths do not limit the content printed for an object id.
    narrowed = not (uncertain or git_flags & _PATHSPECS or flags & _BEYOND_PATHS or _may_name_object(call, shape))
    exact = _exact_sources(call, shape, flags) if sources == HISTORY and not git_flags - _NEUTRAL_FLAGS else ()
    _judge_sources(call, shape, exact or sources, narrowed=narrowed)
    if exact:  # another command of the script, even a later one, may change the meaning of the revisions
        step = call.findings.step

        def judge_all_sources() -> None:
            with call.findings.in_step(step):
                _judge_sources(call, shape, sources, narrowed=narrowed)

        call.findings.deferred_checks.append(judge_all_sources)


def _judge_sources(call: Call, shape: ParsedOptions, sources: GitSources, *, narrowed: bool) -> None:
    names: list[str] = []
    for each in sources:
        found = call.facts.tracked(each)
        if found is None:
            add_question(call, f"prints files stored by Git ({each}), which could not be checked for secrets")
            return
        names += found
    every = sorted(set(names))
    if names := _selected_names(call, shape, every) if narrowed else every:
        add_question(call, f"prints files stored by Git, which may include {join_names(names)}")


def join_names(names: list[str]) -> str:
    """Return the first three of `names` and the number of the others, for a reason."""
    return short_list([f"`{plain(name)}`" for name in names[:3]] + ([f"{len(names) - 3} more"] if names[3:] else []))


def add_question(call: Call, text: str) -> None:
    """Require an approval for the command. `text` is the reason: the end of a sentence about the command."""
    call.findings.add_effect(EffectKind.READS, f"{call.facts.workspace}/.git", Scope.WORKSPACE, False)
    call.add_fact(Tier.READ_OUTSIDE, text)


# ---- sources that a command prints


def _diff(call: Call, shape: ParsedOptions, flags: set[str]) -> GitSources:
    if "--no-index" in flags or (flags & _NO_PATCH and not flags & _EXPLICIT):
        return ()
    compared = flags & {"--cached", "--staged", "--merge-base"} or any(
        is_revision(call, word) for word in before_dashes(call, shape)
    )
    return HISTORY if compared else INDEX


def _log(call: Call, shape: ParsedOptions, flags: set[str]) -> GitSources:
    unknown = any(flag.name == "-L" and (value is None or not value.texts) for flag, value in shape.flags)
    if unknown or flags & _EXPLICIT or (flags & _PATCH and not flags & _NO_PATCH):
        return HISTORY
    return DELETED if "-L" in flags else ()  # -L follows renames: the file may have had a secret name


def _show(call: Call, shape: ParsedOptions, flags: set[str]) -> GitSources:
    if flags & _NO_PATCH and not flags & (_EXPLICIT | {"--stdin"}) and not _may_name_object(call, shape):
        return _tags(call, shape)
    words = before_dashes(call, shape)
    files = bool(words) and all(word.texts and all(map(_names_file, word.texts)) for word in words)
    return () if files and "--stdin" not in flags else HISTORY  # the name in `REV:PATH` is judged elsewhere


def _names_file(text: str) -> bool:
    """Return True for `REV:PATH` and `:PATH` (gitrevisions(7)); `:/TEXT` and `REV^{/TEXT}` are commits."""
    return not text.startswith(":/") and ":" in _BRACES.sub("", text)


def _may_name_object(call: Call, shape: ParsedOptions) -> bool:
    """Return True if an operand may be the id of the content of a file, which is printed whatever the flags are."""
    return any(not word.texts or any(map(_ID.fullmatch, word.texts)) for word in before_dashes(call, shape))


def _cat_file(call: Call, shape: ParsedOptions, flags: set[str]) -> GitSources:
    if flags & {"--batch", "--batch-command", "--textconv", "--filters"}:
        return HISTORY
    if flags & {"-t", "-s", "-e", "--batch-check"}:
        return ()
    words = shape.operands
    if words and words[0].text in _KINDS and len(words) > 1:
        return ()
    return HISTORY if _may_name_object(call, shape) else _tags(call, shape)


def _tags(call: Call, shape: ParsedOptions) -> GitSources:
    """Return a source for each possible name of a tag, because the command prints a file that a tag names."""
    texts = [word.text for word in before_dashes(call, shape) if word.text]
    names = [text for text in texts if _NAME.fullmatch(text) and text not in ("HEAD", "@")]
    return tuple(GitSource(GitSourceKind.CONTENT, name) for name in names)


def _format(call: Call, shape: ParsedOptions, flags: set[str]) -> GitSources:
    """Return the sources for `--format`: `%(raw)` prints the content of a file that a reference names."""
    values = [value for flag, value in shape.flags if flag.name == "--format"]
    return HISTORY if any(value is None or value.text is None or "raw" in value.text for value in values) else ()


def _grep(call: Call, shape: ParsedOptions, flags: set[str]) -> GitSources:
    if "--no-index" in flags or "--untracked" in flags:
        return ()
    words = before_dashes(call, shape)
    words = words if flags & {"-e", "-f"} else words[1:]
    # For files assumed unchanged, git grep reads the index (git-update-index(1)).
    return HISTORY if "--cached" in flags or any(is_revision(call, word) for word in words) else ASSUMED


def _with(*names: str, sources: GitSources = HISTORY) -> "_SourceFunction":
    """Return the function for a command that prints `sources` if one of the flags `names` is given."""
    return lambda call, shape, flags: sources if flags & set(names) else ()


def _without(*names: str) -> "_SourceFunction":
    """Return the function for a command that prints content unless one of the flags `names` is given."""
    return lambda call, shape, flags: () if flags & set(names) else HISTORY


def _one_file(call: Call, shape: ParsedOptions, flags: set[str]) -> GitSources:
    """Return the sources for a command that prints one file. A file with a known name is judged elsewhere."""
    return HISTORY if any(not word.texts for word in shape.operands) else ()


def _config(call: Call, shape: ParsedOptions, flags: set[str]) -> GitSources:
    value = next((value for flag, value in shape.flags if flag.name == "--blob" and value is not None), None)
    if "--blob" not in flags:
        return ()
    return () if value is not None and value.texts and all(map(_names_file, value.texts)) else HISTORY


_SourceFunction = Callable[[Call, ParsedOptions, set[str]], GitSources]
_INTERACTIVE = _with("-p", "--patch", "-i", "--interactive", "-e", "--edit")
_SOURCES: dict[str, _SourceFunction] = {
    "diff": _diff,
    "log": _log, "whatchanged": _log, "shortlog": _log, "reflog": _log, "reflog show": _log,
    "stash list": _log, "rev-list": _log,
    # The repository's setting `stash.showPatch` may make this command print patches.
    "stash show": lambda call, shape, flags: HISTORY if flags & _EXPLICIT or not flags & _NO_PATCH else (),
    "show": _show,
    "diff-tree": _log, "diff-index": _log,
    "diff-files": lambda call, shape, flags: INDEX if _log(call, shape, flags) else (),
    "range-diff": _without("-s", "--no-patch"), "merge-tree": _without("--name-only"),
    "cat-file": _cat_file, "grep": _grep, "blame": _one_file, "annotate": _one_file,
    "archive": _without("--list", "-l"), "fast-export": _without("--no-data", "--anonymize"),
    "bundle create": _without(), "format-patch": _without(), "request-pull": _with("-p"),
    "difftool": _without(), "upload-pack": _without(), "upload-archive": _without(), "http-backend": _without(),
    "config": _config, "config get": _config, "config list": _config,
    "for-each-ref": _format, "branch": _format, "tag": _format,
    "pack-objects": _without(), "mktree": _without(), "hash-object": _with("-t", "--literally"),  # new object ids
    **dict.fromkeys(("notes add", "notes append"), _with("-C", "-c", "--reuse-message", "--reedit-message")),
    "status": _with("-v", "--verbose"),
    "commit": _with("-v", "--verbose", "-p", "--patch", "--interactive"),
    **dict.fromkeys(("add", "checkout", "reset", "restore", "stash", "stash push"), _INTERACTIVE),
    **dict.fromkeys(("rebase", "am"), _with("--show-current-patch")),
}  # fmt: skip


# ---- trees that a command prints

# Flags that change the output, but not the commits that are compared.
_DISPLAY = (_PATCH - {"--remerge-diff", "--diff-merges", "-m"}) | _NO_PATCH | frozenset((
    "-a", "-b", "-w", "-z", "-M", "-R", "--abbrev", "--abbrev-commit", "--color", "--color-moved", "--date",
    "--decorate", "--diff-algorithm", "--exit-code", "--find-renames", "--format", "--full-index", "--histogram",
    "--ignore-all-space", "--ignore-blank-lines", "--ignore-space-change", "--indent-heuristic", "--inter-hunk-context",
    "--minimal", "--no-abbrev-commit", "--no-color", "--no-decorate", "--no-ext-diff", "--no-notes", "--no-prefix",
    "--no-renames", "--no-textconv", "--oneline", "--patience", "--pretty", "--text",
))  # fmt: skip
_NUMBER = re.compile(r"-\d+")
_COUNT = frozenset(("-#", "-n", "--max-count"))
_EXACT_FLAGS = {
    "diff": _DISPLAY | {"--cached", "--staged", "--diff-filter"},
    "log": _DISPLAY | _COUNT,
    "show": _DISPLAY | _COUNT | {"--diff-filter"},
}
# Flags of `git` that change no revision.
_NEUTRAL_FLAGS = frozenset(("-C", "-c", "-P", "--no-pager", "--no-optional-locks"))


def _exact_sources(call: Call, shape: ParsedOptions, flags: set[str]) -> GitSources:
    """Return the trees and changes if the command certainly prints files of no others, else nothing."""
    name = call.label.removeprefix("git ")
    if shape.trouble or name not in _EXACT_FLAGS or flags - _EXACT_FLAGS[name]:
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
        return _diff_trees(texts, bool(flags & {"--cached", "--staged"}))
    if name == "log" and (not flags & _COUNT or len(texts) > 1 or len(shape.operands) > len(texts)):
        return ()  # with a path, the printed commit is the last that changed the path
    return tuple(GitSource(GitSourceKind.CHANGE, text) for text in texts or ["HEAD"] if not _names_file(text))


def _diff_trees(texts: list[str], cached: bool) -> GitSources:
    """Return the sources that `git diff` compares: the index and a tree, or trees; nothing if they are uncertain.

    `texts` are the revisions. `cached` is True if the index is compared instead of the workspace.
    """
    found: list[str] = []
    for text in texts or ["HEAD"]:
        first, dots, second = text.partition("..")
        if second.startswith("."):
            return ()  # the merge base of `A...B` is not computed
        found += [first or "HEAD", second or "HEAD"] if dots else [first]
    trees = tuple(GitSource(GitSourceKind.TREE, each) for each in found)
    return trees if len(trees) > 1 and not cached else (*INDEX, *trees)


# ---- files that paths select


def dashes_at(call: Call) -> int | None:
    """Return the position of `--` among the words, or None."""
    return next((place for place, word in enumerate(call.words) if word.text == "--"), None)


def before_dashes(call: Call, shape: ParsedOptions) -> list[AbstractWord]:
    """Return the operands before `--`."""
    dashes = dashes_at(call)
    after = len(call.words) - dashes - 1 if dashes is not None else 0
    return shape.operands[: len(shape.operands) - after]


def is_revision(call: Call, word: AbstractWord) -> bool:
    """Return True unless the word, which is before any `--`, is certainly an existing path."""
    classifier, cwds = call.findings.classifier, call.state.cwds
    if not word.texts or not cwds or dashes_at(call) is not None:
        return True
    return any(classifier.place(text, cwd).kind is Kind.MISSING for text in word.texts for cwd in cwds)


def _selected_names(call: Call, shape: ParsedOptions, names: list[str]) -> list[str]:
    """Return those of `names` that the paths of the command select; all of `names` if that is uncertain."""
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
    excluded = [match[1] for path in paths if (match := _EXCLUDE.fullmatch(path))]
    wanted = [path for path in paths if not _EXCLUDE.fullmatch(path)]
    uncertain = any(path.startswith((":", "/")) or _CLASS.search(path) for path in (*wanted, *excluded))
    if uncertain or any(_GLOB.search(path) for path in excluded):
        return names
    return [
        name
        for name in names
        if (not wanted or any(_selects(name, path, within) or _may_select_in(name, path, within) for path in wanted))
        and not any(_selects(name, path, within) for path in excluded)
    ]


def _selects(name: str, path: str, within: str) -> bool:
    """Return True if the pathspec `path`, typed in the folder `within`, selects `name` (gitglossary(7), pathspec)."""
    whole, name = _full_path(path, within), name.lower().rstrip("/")
    if not whole or name == whole or name.startswith(f"{whole}/"):
        return True
    above = ["/".join(name.split("/")[:count]) for count in range(1, name.count("/") + 2)]
    return bool(_GLOB.search(whole)) and any(fnmatchcase(each, whole) for each in above)


def _may_select_in(name: str, path: str, within: str) -> bool:
    """Return True if the pathspec `path` may select a file in the folder `name`: a prefix of `path` matches it."""
    whole = _full_path(path, within)
    return name.endswith("/") and any(fnmatchcase(name.lower(), whole[:end]) for end in range(1, len(whole) + 1))


def _full_path(path: str, within: str) -> str:
    return normal(f"{within}/{path}")[1:].lower()
