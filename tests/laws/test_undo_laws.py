"""Property: undoing the last N actions restores the state before them."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.support.law import examples
from tests.support.undo_workspace import UndoWorkspace

NAMES = st.sampled_from(["a", "b", "d", "d/a", "d/e", "d/e/x", "é", "node_modules", "node_modules/i"])
# Each does something or nothing: what there is decides.
DEEDS = st.one_of(
    st.tuples(st.just("echo {2} > {0}"), NAMES, NAMES, st.integers(0, 3)),
    st.tuples(st.just("rm -rf {0}"), NAMES, NAMES, st.just(0)),
    st.tuples(st.just("mkdir -p {0}"), NAMES, NAMES, st.just(0)),
    st.tuples(st.just("mv -T {0} {1}"), NAMES, NAMES, st.just(0)),
    st.tuples(st.just("ln -sfn {1} {0}"), NAMES, NAMES, st.just(0)),
    st.tuples(st.just("ln -f {1} {0}"), NAMES, NAMES, st.just(0)),
    st.tuples(st.just("chmod {2} {0}"), NAMES, NAMES, st.sampled_from([600, 644, 700, 755])),
    st.tuples(st.just("cp -rT {0} {1}"), NAMES, NAMES, st.just(0)),
)
ACTIONS = st.lists(st.lists(DEEDS, min_size=1, max_size=4), min_size=1, max_size=4)


@examples(15, many=240, suppress_health_check=list(HealthCheck))
@given(ACTIONS, st.data())
def test_law_n_actions_back_is_as_it_was_before_them(
    actions: list[list[tuple[str, str, str, int]]], data: st.DataObject
) -> None:
    base = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="u"))
    try:
        world = UndoWorkspace(base)
        pictures = [kept(world)]
        for deeds in actions:
            script = "; ".join(
                f"({deed.format(one, other, number)}) 2>/dev/null || true" for deed, one, other, number in deeds
            )
            if world.act(script) is not None:
                pictures.append(kept(world))
        while len(pictures) > 1:
            count = data.draw(st.integers(1, len(pictures) - 1))
            now = pictures[-1]
            del pictures[-count:]
            taken = world.undo(count)
            left = {item.path for item in taken.items if item.problem}
            assert all("node_modules" in path or path == "d" for path in left), taken
            assert unlike(kept(world), pictures[-1]) <= left
            if taken.step is not None and not left:
                assert world.undo(redo=True).whole
                assert unlike(kept(world), now) == set()
                world.undo(count)
    finally:
        shutil.rmtree(base, ignore_errors=True)


def kept(world: UndoWorkspace) -> dict[str, tuple[object, ...]]:
    """Return all files of the workspace, except those that are never kept."""
    found = {path.decode()[1:]: entry[:3] for path, entry in world.picture().items()}
    return {path: entry for path, entry in found.items() if "node_modules" not in path.split("/")}


def unlike(one: dict[str, tuple[object, ...]], other: dict[str, tuple[object, ...]]) -> set[str]:
    return {path for path in one.keys() | other.keys() if one.get(path) != other.get(path)}
