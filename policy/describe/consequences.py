"""What commands and flags do to somebody's work, in closer words than "cannot be undone". It decides nothing."""

# fmt: off
LOSSES = {
    "git reset --hard": "throws away uncommitted changes",
    "git checkout -f": "throws away uncommitted changes",
    "git checkout --force": "throws away uncommitted changes",
    "git switch -f": "throws away uncommitted changes",
    "git switch --force": "throws away uncommitted changes",
    "git switch --discard-changes": "throws away uncommitted changes",
    "git push --force": "overwrites commits on the server",
    "git push -f": "overwrites commits on the server",
    "git push --force-with-lease": "overwrites commits on the server",
    "git push --mirror": "makes the server a copy of this repository, and deletes what is only there",
    "git push --prune": "deletes branches on the server",
    "git push --delete": "deletes branches on the server",
    "git push -d": "deletes branches on the server",
    "git stash drop": "throws away changes that were put aside",
    "git stash clear": "throws away all changes that were put aside",
    "git clean": "deletes files that Git does not track",
    "git branch -D": "deletes branches, merged or not",
}
# fmt: on
