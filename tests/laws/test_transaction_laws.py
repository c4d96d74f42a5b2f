"""Properties of transactions: random programs of file operations leave the same tree plain and as a transaction, a
discarded transaction leaves no trace, and undo restores the tree.
"""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.laws.test_undo_laws import kept, unlike
from tests.support.law import examples
from tests.support.layers import TransactionWorkspace, overlays_work
from tests.support.undo_workspace import UndoWorkspace

pytestmark = pytest.mark.skipif(not overlays_work(), reason="this user cannot mount an overlay")

NAMES = st.sampled_from(["a", "b", "d", "d/a", "d/e", "d/e/x", "é", "f", "f/g", "f/g/h"])
NUMBERS = st.integers(0, 9)
# Each does something or nothing: what there is decides.
DEEDS = st.one_of(
    st.tuples(st.just("echo {2} > {0}"), NAMES, NAMES, NUMBERS),
    st.tuples(st.just("echo {2} >> {0}"), NAMES, NAMES, NUMBERS),
    st.tuples(st.just("truncate -s {2} {0}"), NAMES, NAMES, NUMBERS),
    st.tuples(st.just("rm {0}"), NAMES, NAMES, NUMBERS),
    st.tuples(st.just("rmdir {0}"), NAMES, NAMES, NUMBERS),
    st.tuples(st.just("rm -rf {0}"), NAMES, NAMES, NUMBERS),
    st.tuples(st.just("mkdir {0}"), NAMES, NAMES, NUMBERS),
    st.tuples(st.just("mkdir -p {0}"), NAMES, NAMES, NUMBERS),
    st.tuples(st.just("mv -T {0} {1}"), NAMES, NAMES, NUMBERS),
    st.tuples(st.just("ln -sfn {1} {0}"), NAMES, NAMES, NUMBERS),
    st.tuples(st.just("chmod {2} {0}"), NAMES, NAMES, st.sampled_from([600, 644, 700, 755, 500])),
    st.tuples(st.just("cp -T {0} {1}"), NAMES, NAMES, NUMBERS),
    # Two names of one new file: a second name of a file that was there before keeps its old content.
    st.tuples(st.just("rm -f {0}; echo {2} > {0}; ln {0} {1}; echo {2} >> {0}"), NAMES, NAMES, NUMBERS),
)
PROGRAM = st.lists(DEEDS, min_size=1, max_size=8).map(
    lambda deeds: "; ".join(
        f"({deed.format(one, other, number)}) 2>/dev/null || true" for deed, one, other, number in deeds
    )
)


@examples(15, many=120, suppress_health_check=list(HealthCheck))
@given(PROGRAM, st.lists(PROGRAM, min_size=1, max_size=3), st.data())
def test_law_a_transaction_leaves_the_same_tree_and_undo_restores_it(
    first: str, programs: list[str], data: st.DataObject
) -> None:
    base = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="t"))
    try:
        (base / "plain").mkdir()
        world, plain = TransactionWorkspace(base), UndoWorkspace(base / "plain")
        world.sh(separate(first))
        plain.sh(separate(first))
        pictures = [kept(world)]
        for program in programs:
            # A link to an earlier link can lead outside of the workspace by its own name only: none is held back.
            world.begin(program).transaction.discard()
            assert unlike(kept(world), kept(plain)) == set(), "a discarded transaction changes nothing"
            recorded = world.transact(program)
            assert recorded.result.left == ()
            plain.sh(program)
            assert unlike(kept(world), kept(plain)) == set()
            assert world.traces() == []
            if recorded.step is not None:
                pictures.append(kept(world))
            world.sh(separate("true"))
            plain.sh(separate("true"))
        while len(pictures) > 1:
            count = data.draw(st.integers(1, len(pictures) - 1))
            now = pictures[-1]
            del pictures[-count:]
            undone = world.undo(count)
            assert undone.whole, undone
            assert unlike(kept(world), pictures[-1]) == set()
            assert world.undo(redo=True).whole
            assert unlike(kept(world), now) == set()
            world.undo(count)
    finally:
        shutil.rmtree(base, ignore_errors=True)


def separate(program: str) -> str:
    """Return the program, followed by commands that give every name of a file a content of its own."""
    return f'{program}; find . -type f -links +1 -exec sh -c \'cp -p "$1" .copy; mv -f .copy "$1"\' - {{}} \\;'
