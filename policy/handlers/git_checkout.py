"""Git commands that put files of the index or of the history into the workspace, or change the content of the index."""

import re
from collections.abc import Callable

from policy.handlers.git_contents import (
    HISTORY,
    INDEX,
    GitSources,
    add_question,
    before_dashes,
    is_revision,
    join_names,
)
from policy.interpreter.command_call import Call, ParsedOptions
from policy.model.assessment import EffectKind, Step
from policy.model.facts import GitSource, GitSourceKind, Kind

_READING_KINDS = frozenset((EffectKind.READS, EffectKind.RUNS, EffectKind.UNKNOWN))
# Git commands that print content of the workspace or of the index.
_PRINTING = frozenset(
    ("annotate", "blame", "cat-file", "diff", "diff-files", "diff-index", "difftool", "grep", "stash")
)
_NO_CONTENT = frozenset(("cd", "pushd", "popd", "ls", "test", "[", "mkdir", "rm"))  # read names only
# Commands that change the meaning of a revision for the rest of the script: by changing a name, or by moving HEAD.
_CHANGES_NAMES = frozenset(("branch", "tag", "update-ref", "symbolic-ref", "replace", "fetch", "pull"))
_MOVES_HEAD = frozenset(
    ("checkout", "switch", "reset", "merge", "rebase", "cherry-pick", "revert", "commit", "bisect", "am")
)
# `@{-1}` is not included: it is HEAD, or the revision of an earlier command of the script, which is judged there.
_RELATIVE = re.compile(r".*(?:[~^]|@\{(?!-1\})).*")
_SEQUENCER_FLAGS = frozenset(("--continue", "--abort", "--quit", "--skip"))  # continue or end an earlier command


def judge_restored_files(call: Call) -> None:
    """Require an approval if the command may create new secret files and another command of the script reads files.

    A secret file that appears while a command runs is masked only for the next command. A command that only creates the
    file prints no content, so it needs no question.

    THREAT T117: `git checkout old && grep -r KEY .` prints the file that `git show old:.env` is not allowed to print.
    """
    label = call.label.removeprefix("git ")
    sources_of = _SOURCES.get(label)
    if sources_of is None:
        return
    shape = call.parse()
    sources = sources_of(call, shape, {flag.name for flag, _ in shape.flags})
    step, repeated = call.findings.step, call.findings.loops > 0
    own_step = step.step()
    relative = any(_RELATIVE.fullmatch(each.revision) for each in sources)

    def is_missing(name: str) -> bool:
        return call.facts.look(f"{call.facts.workspace}/{name.rstrip('/')}").kind is Kind.MISSING

    def judge() -> None:
        others = [each for each in call.findings.steps if (each.words, each.named) != (own_step.words, own_step.named)]
        from_git = any(_is_git(each, _PRINTING) for each in others)
        if not from_git and not any(_reads(each) for each in others):
            return
        head_moves = repeated or any(_changes(each, _MOVES_HEAD) for each in others)
        uncertain = sources and ((relative and head_moves) or any(_changes(each, _CHANGES_NAMES) for each in others))
        with call.findings.in_step(step):
            for each in HISTORY if uncertain else sources:
                names = call.facts.tracked(each)
                if names is None:
                    add_question(call, f"restores files stored by Git ({each}), which could not be checked for secrets")
                elif found := [name for name in names if from_git or label == "worktree add" or is_missing(name)]:
                    add_question(call, f"restores files stored by Git, which may include {join_names(found)}")

    call.findings.deferred_checks.append(judge)


def _is_git(step: Step, names: frozenset[str]) -> bool:
    """Return True if the step is one of the subcommands `names` of Git."""
    texts = [word.text for word in step.named[:2]]
    return len(texts) > 1 and texts[0] == "git" and texts[1] in names


def _changes(step: Step, names: frozenset[str]) -> bool:
    return _is_git(step, names) and any(each.kind is EffectKind.WRITES for each in step.effects)


def _reads(step: Step) -> bool:
    program = step.named[0].text if step.named else None
    return program != "git" and program not in _NO_CONTENT and any(each.kind in _READING_KINDS for each in step.effects)


# ---- sources of the files


def _checkout(call: Call, shape: ParsedOptions, flags: set[str]) -> GitSources:
    """Return the source of `git checkout REV`, `git checkout REV -- PATH` or `git checkout PATH`."""
    words = before_dashes(call, shape)
    if not words:
        return INDEX if shape.operands else ()
    if words[0].text == "-":  # the previous branch, which may be one that the script left
        return _revisions(GitSourceKind.TREE, ["HEAD", "@{-1}"])
    return _revisions(GitSourceKind.TREE, [words[0].text]) if is_revision(call, words[0]) else INDEX


def _restore(call: Call, shape: ParsedOptions, flags: set[str]) -> GitSources:
    sources = [value for flag, value in shape.flags if flag.name in ("-s", "--source")]
    if sources:
        return _revisions(GitSourceKind.TREE, [value.text if value is not None else None for value in sources])
    return _revisions(GitSourceKind.TREE, ["HEAD"]) if flags & {"-S", "--staged"} else INDEX


def _reset(call: Call, shape: ParsedOptions, flags: set[str]) -> GitSources:
    """Return the source of `git reset`, which copies the files of a tree (default: HEAD) into the index."""
    words = before_dashes(call, shape)
    return _revisions(GitSourceKind.TREE, [words[0].text if words and is_revision(call, words[0]) else "HEAD"])


def _worktree(call: Call, shape: ParsedOptions, flags: set[str]) -> GitSources:
    return _revisions(GitSourceKind.TREE, [word.text for word in shape.operands[1:]] or ["HEAD"])


def _merge(call: Call, shape: ParsedOptions, flags: set[str]) -> GitSources:
    onto = [value.text if value is not None else None for flag, value in shape.flags if flag.name == "--onto"]
    words = [*onto, *(word.text for word in shape.operands)]
    return () if flags & _SEQUENCER_FLAGS else _revisions(GitSourceKind.TREE, words) if words else HISTORY


def _pick(call: Call, shape: ParsedOptions, flags: set[str]) -> GitSources:
    return () if flags & _SEQUENCER_FLAGS else _revisions(GitSourceKind.CHANGE, [word.text for word in shape.operands])


def _revisions(kind: GitSourceKind, texts: list[str | None]) -> GitSources:
    names = [text for text in texts if text]
    return tuple(GitSource(kind, name) for name in names) if len(names) == len(texts) else HISTORY


def _constant(sources: GitSources) -> "_SourceFunction":
    return lambda call, shape, flags: sources


_SourceFunction = Callable[[Call, ParsedOptions, set[str]], GitSources]
_BISECT = ("start", "good", "bad", "new", "old", "skip", "next", "replay", "run")
_SOURCES: dict[str, _SourceFunction] = {
    "checkout": _checkout, "switch": _checkout, "restore": _restore, "reset": _reset, "worktree add": _worktree,
    "merge": _merge, "rebase": _merge, "cherry-pick": _pick, "revert": _pick,
    **dict.fromkeys(("stash pop", "stash apply", "stash branch"), _constant((GitSource(GitSourceKind.STASH),))),
    **dict.fromkeys(("stash", "stash push", "stash save"), _constant((GitSource(GitSourceKind.TREE, "HEAD"),))),
    **dict.fromkeys(("sparse-checkout set", "sparse-checkout add", "sparse-checkout disable"), _constant(INDEX)),
    **{f"bisect {word}": _constant(HISTORY) for word in _BISECT},
}  # fmt: skip
