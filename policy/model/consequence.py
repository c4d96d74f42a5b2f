"""Consequences: the kinds of harm and change that the summary of an action tells apart."""

from enum import StrEnum


class Consequence(StrEnum):
    """One kind of harm or change. The summary is chosen by consequences, never by the text of a reason.

    A rule sets one with `does = "moves"`; code that reports a reason passes one with it. A reason without a consequence
    is summarized by its own text.
    """

    # fmt: off
    MOVES                 = "moves"                   # renames files: what it deletes is found elsewhere
    CHANGES_FILES         = "changes-files"           # changes files without naming them
    RUNS_CODE             = "runs-code"               # runs or builds code that stands somewhere
    RUNS_DOWNLOADED       = "runs-downloaded"         # fetches code, or rules that are code, and runs them
    RUNS_PROJECT_PROGRAM  = "runs-project-program"    # starts a program that the project has installed
    STARTS_EDITOR         = "starts-editor"           # starts an editor, from which other programs can be started
    STARTS_PROGRAMS       = "starts-programs"         # starts other programs from a text of its own language
    TRANSFERS             = "transfers"               # copies, sends or does something on another machine
    NEEDS_ADMINISTRATOR   = "needs-administrator"     # has the rights of the administrator
    IRREVERSIBLE          = "irreversible"            # cannot be undone, or goes around a protection
    DISCARDS_CHANGES      = "discards-changes"        # throws away all changes that are not committed
    DISCARDS_STASH_ENTRY  = "discards-stash-entry"    # throws away changes that Git put aside
    DISCARDS_STASH        = "discards-stash"          # throws away all changes that Git put aside
    DELETES_UNTRACKED     = "deletes-untracked"       # deletes files that Git does not track
    DELETES_BRANCHES      = "deletes-branches"        # deletes branches of this repository, merged or not
    OVERWRITES_BRANCH     = "overwrites-branch"       # overwrites or deletes a branch on the server
    OVERWRITES_COMMITS    = "overwrites-commits"      # overwrites commits on the server
    DELETES_REMOTE        = "deletes-remote"          # deletes branches on the server
    MIRRORS               = "mirrors"                 # makes the server a copy of this repository
    # Set by code alone: about the path that the reason names.
    WRITES_PATH           = "writes-path"             # writes or changes the path
    DELETES_PATH          = "deletes-path"            # deletes the path
    WRITES_FILES          = "writes-files"            # writes files anywhere in the workspace
    CHANGES_WORKSPACE     = "changes-workspace"       # changes every file in the workspace
    DELETES_WORKSPACE     = "deletes-workspace"       # deletes everything in the workspace
    CHANGES_ROOT          = "changes-root"            # changes the root folder of the system
    # fmt: on


PATH_CONSEQUENCES = frozenset(
    (
        Consequence.WRITES_PATH,
        Consequence.DELETES_PATH,
        Consequence.WRITES_FILES,
        Consequence.CHANGES_WORKSPACE,
        Consequence.DELETES_WORKSPACE,
        Consequence.CHANGES_ROOT,
    )
)
# The consequences that a rule file may set: `moves` -> MOVES.
RULE_CONSEQUENCES = {each.value: each for each in Consequence if each not in PATH_CONSEQUENCES}

# fmt: off
# The end of a sentence about the action, for consequences with a more specific text than "cannot be undone".
CONSEQUENCE_TEXTS = {
    Consequence.DISCARDS_CHANGES:     "throws away uncommitted changes",
    Consequence.DISCARDS_STASH_ENTRY: "throws away changes that were put aside",
    Consequence.DISCARDS_STASH:       "throws away all changes that were put aside",
    Consequence.DELETES_UNTRACKED:    "deletes files that Git does not track",
    Consequence.DELETES_BRANCHES:     "deletes branches, merged or not",
    Consequence.OVERWRITES_COMMITS:   "overwrites commits on the server",
    Consequence.DELETES_REMOTE:       "deletes branches on the server",
    Consequence.MIRRORS:              "makes the server a copy of this repository, and deletes what is only there",
}
# Flags with such a consequence, each after the command that it belongs to.
FLAG_CONSEQUENCES = {
    "git reset --hard":             Consequence.DISCARDS_CHANGES,
    "git checkout -f":              Consequence.DISCARDS_CHANGES,
    "git checkout --force":         Consequence.DISCARDS_CHANGES,
    "git switch -f":                Consequence.DISCARDS_CHANGES,
    "git switch --force":           Consequence.DISCARDS_CHANGES,
    "git switch --discard-changes": Consequence.DISCARDS_CHANGES,
    "git push --force":             Consequence.OVERWRITES_COMMITS,
    "git push -f":                  Consequence.OVERWRITES_COMMITS,
    "git push --force-with-lease":  Consequence.OVERWRITES_COMMITS,
    "git push --mirror":            Consequence.MIRRORS,
    "git push --prune":             Consequence.DELETES_REMOTE,
    "git push --delete":            Consequence.DELETES_REMOTE,
    "git push -d":                  Consequence.DELETES_REMOTE,
    "git branch -D":                Consequence.DELETES_BRANCHES,
}
# fmt: on
