"""Git commands that put files of the index or of the history into the workspace, or change the content of the index."""

import re
from collections.abc import Callable

from policy.handlers.git_contents import HISTORY, INDEX, GitSources, asked, before_dashes, is_revision, named
from policy.interpreter.command_call import Call, ParsedOptions
from policy.model.assessment import EffectKind, Step
from policy.model.facts import Kind

_READING = frozenset((EffectKind.READS, EffectKind.RUNS, EffectKind.UNKNOWN))
# Of Git's own commands, these print what lies in the workspace or in the index.
_PRINTING = frozenset(
    ("annotate", "blame", "cat-file", "diff", "diff-files", "diff-index", "difftool", "grep", "stash")
)
_NAMES = frozenset(("cd", "pushd", "popd", "ls", "test", "[", "mkdir", "rm"))  # print no content, though they look
# What gives a revision another meaning for the rest of a script: a name, or a number of commits before a name.
_NAMING = frozenset(("branch", "tag", "update-ref", "symbolic-ref", "replace", "fetch", "pull"))
_MOVING = frozenset(
    ("checkout", "switch", "reset", "merge", "rebase", "cherry-pick", "revert", "commit", "bisect", "am")
)
# `@{-1}` is not: it is HEAD, or what another command of the script brought, which is judged there.
_RELATIVE = re.compile(r".*(?:[~^]|@\{(?!-1\})).*")
_GOING_ON = frozenset(("--continue", "--abort", "--quit", "--skip"))  # of what an earlier command began


def brought(call: Call) -> None:
    """Ask if the command creates secret files that do not exist yet, and another command of the script reads files.

    A secret file that appears while a command runs is masked only for the next command. A command that only creates the
    file prints no content, so it needs no question.

    THREAT T117: `git checkout old && grep -r KEY .` prints what `git show old:.env` may not.
    """
    label = call.label.removeprefix("git ")
    sources_of = _SOURCES.get(label)
    if sources_of is None:
        return
    shape = call.parse()
    where = sources_of(call, shape, {flag.name for flag, _ in shape.flags})
    step, repeated = call.findings.step, call.findings.loops > 0
    own = step.step()
    counted = any(_RELATIVE.fullmatch(each.partition(" of ")[2]) for each in where)

    def missing(name: str) -> bool:
        return call.facts.look(f"{call.facts.workspace}/{name.rstrip('/')}").kind is Kind.MISSING

    def judged() -> None:
        others = [each for each in call.findings.steps if (each.words, each.named) != (own.words, own.named)]
        from_git = any(_is_git(each, _PRINTING) for each in others)
        if not from_git and not any(_reads(each) for each in others):
            return
        call.findings.step = step
        moved = repeated or any(_changes(each, _MOVING) for each in others)
        unsure = where and ((counted and moved) or any(_changes(each, _NAMING) for each in others))
        for each in HISTORY if unsure else where:
            names = call.facts.tracked(each)
            if names is None:
                asked(call, f"restores files stored by Git ({each}), which could not be checked for secrets")
            elif found := [name for name in names if from_git or label == "worktree add" or missing(name)]:
                asked(call, f"restores files stored by Git, which may include {named(found)}")

    call.findings.deferred_checks.append(judged)


def _is_git(step: Step, names: frozenset[str]) -> bool:
    """Return True if the step is one of the subcommands `names` of Git."""
    texts = [word.text for word in step.named[:2]]
    return len(texts) > 1 and texts[0] == "git" and texts[1] in names


def _changes(step: Step, names: frozenset[str]) -> bool:
    return _is_git(step, names) and any(each.kind is EffectKind.WRITES for each in step.effects)


def _reads(step: Step) -> bool:
    program = step.named[0].text if step.named else None
    return program != "git" and program not in _NAMES and any(each.kind in _READING for each in step.effects)


# ---- from where


def _tree(call: Call, shape: ParsedOptions, given: set[str]) -> GitSources:
    """Return the source of `git checkout REV`, `git checkout REV -- PATH` or `git checkout PATH`."""
    words = before_dashes(call, shape)
    if not words:
        return INDEX if shape.operands else ()
    if words[0].text == "-":  # what was checked out before, which an earlier command of the script may have been
        return _of("tree", ["HEAD", "@{-1}"])
    return _of("tree", [words[0].text]) if is_revision(call, words[0]) else INDEX


def _restored(call: Call, shape: ParsedOptions, given: set[str]) -> GitSources:
    sources = [value for flag, value in shape.flags if flag.name in ("-s", "--source")]
    if sources:
        return _of("tree", [value.text if value is not None else None for value in sources])
    return _of("tree", ["HEAD"]) if given & {"-S", "--staged"} else INDEX


def _moved(call: Call, shape: ParsedOptions, given: set[str]) -> GitSources:
    """Return the source of `git reset`, which puts the files of a tree into the index; without a revision those of
    HEAD.
    """
    words = before_dashes(call, shape)
    return _of("tree", [words[0].text if words and is_revision(call, words[0]) else "HEAD"])


def _added(call: Call, shape: ParsedOptions, given: set[str]) -> GitSources:
    return _of("tree", [word.text for word in shape.operands[1:]] or ["HEAD"])


def _joined(call: Call, shape: ParsedOptions, given: set[str]) -> GitSources:
    onto = [value.text if value is not None else None for flag, value in shape.flags if flag.name == "--onto"]
    words = [*onto, *(word.text for word in shape.operands)]
    return () if given & _GOING_ON else _of("tree", words) if words else HISTORY


def _picked(call: Call, shape: ParsedOptions, given: set[str]) -> GitSources:
    return () if given & _GOING_ON else _of("change", [word.text for word in shape.operands])


def _of(kind: str, texts: list[str | None]) -> GitSources:
    names = [text for text in texts if text]
    return tuple(f"{kind} of {name}" for name in names) if len(names) == len(texts) else HISTORY


def _always(where: GitSources) -> "_Sources":
    return lambda call, shape, given: where


_Sources = Callable[[Call, ParsedOptions, set[str]], GitSources]
_SOURCES: dict[str, _Sources] = {
    "checkout": _tree, "switch": _tree, "restore": _restored, "reset": _moved, "worktree add": _added,
    "merge": _joined, "rebase": _joined, "cherry-pick": _picked, "revert": _picked,
    **dict.fromkeys(("stash pop", "stash apply", "stash branch"), _always(("stash",))),
    **dict.fromkeys(("stash", "stash push", "stash save"), _always(("tree of HEAD",))),
    **dict.fromkeys(("sparse-checkout set", "sparse-checkout add", "sparse-checkout disable"), _always(INDEX)),
    **{f"bisect {word}": _always(HISTORY) for word in ("start", "good", "bad", "new", "old", "skip", "next", "replay")},
    "bisect run": _always(HISTORY),
}  # fmt: skip
