"""What a session's file says of the files: the steps of /undo, and the runs that made them."""

import re
from collections.abc import Sequence

from runner.sessions.entries import Unsound, parse
from runner.sessions.tree import Tree
from runner.state.lineage import SessionLineage

_SNAPSHOT = re.compile(rb'"snapshot":"([0-9]{1,15})"')


def steps_of(tree: Tree) -> list[tuple[int, int]]:
    """The lines of all branches that name a step of /undo, with it: the order of the file is that of time."""
    lines = tree.lines(range(len(tree)), ("snapshot",))
    return [(at, int(named[1])) for at, _, raw in lines if (named := _SNAPSHOT.search(raw))]


def earlier_of(tree: Tree, steps: Sequence[tuple[int, int]], name: str) -> SessionLineage:
    """The runs of all branches (a person may have gone back to before one began), of which the first has the `name` of
    the session itself. What stands before it is a copy of another session's."""
    runs, copied, first = set[str](), set[str](), len(tree)
    for at, _, raw in tree.lines(range(len(tree)), ("run",)):
        try:
            run = str(parse(raw).body["audit"])
        except Unsound:
            continue  # it is on no way that counts, or was told of there
        if run == name or runs:
            runs.add(run)
            first = min(first, at)
        else:
            copied.add(run)
    until = max((step for at, step in steps if at < first), default=0)
    return SessionLineage(frozenset(runs), max((step for _, step in steps), default=0), frozenset(copied), until)
