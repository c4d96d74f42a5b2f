"""The steps of /undo and the runs that made them, read from a session's file."""

import re
from collections.abc import Sequence

from runner.sessions.entries import Unsound, parse
from runner.sessions.tree import Tree
from runner.state.lineage import SessionLineage

_SNAPSHOT = re.compile(rb'"snapshot":"([0-9]{1,15})"')


def steps_of(tree: Tree) -> list[tuple[int, int]]:
    """Return the lines of all branches that name a step of /undo, each with that step, in the order of time."""
    lines = tree.lines(range(len(tree)), ("snapshot",))
    return [(at, int(named[1])) for at, _, raw in lines if (named := _SNAPSHOT.search(raw))]


def earlier_of(tree: Tree, steps: Sequence[tuple[int, int]], name: str) -> SessionLineage:
    """Return the runs of all branches, because the user may have rewound to a point before a run began.

    The first own run has the `name` of the session. Runs before it are copied from another session.
    """
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
