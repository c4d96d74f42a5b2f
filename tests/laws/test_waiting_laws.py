"""Properties of the changes that wait for the end of a turn: random commands whose changes are kept leave the tree that
they leave when they run plainly one after the other, and what is discarded leaves no trace.
"""

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from policy.model.tier import Mode
from runner.approval.approver import Answer, No, Question
from tests.laws.test_transaction_laws import PROGRAM
from tests.process.test_sub_agents import play
from tests.process.test_tried_session import layers
from tests.process.test_waiting_changes import DO, RULE, do, everything
from tests.support.law import examples
from tests.support.layers import overlays_work

pytestmark = pytest.mark.skipif(not overlays_work(), reason="this user cannot mount an overlay")

BEFORE = "mkdir -p d/e f/g; echo 1 > a; echo 2 > d/a; echo 3 > f/g/h; ln -s a b"
LISTS = st.lists(st.tuples(st.lists(PROGRAM, min_size=1, max_size=3), st.booleans()), min_size=1, max_size=3)


class Decider:
    """A user who keeps everything of a list or nothing, as planned for each prompt."""

    name = "terminal"
    tries = True
    keeps = True

    async def ask_all(self, questions: Sequence[Question]) -> tuple[Answer, ...]:
        return tuple(everything(each) if self.keeps else No() for each in questions)


def picture(folder: Path) -> dict[str, tuple[object, ...]]:
    """Return the type, mode and content of everything in a folder."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        content: object = os.readlink(path) if path.is_symlink() else path.read_bytes() if stat.S_ISREG(mode) else None
        found[str(path.relative_to(folder))] = (mode, content)
    return found


@pytest.mark.slow("each example plays up to three turns with up to three sandboxed commands each")
@pytest.mark.threat("T317")
@examples(5, many=24, suppress_health_check=list(HealthCheck))
@given(LISTS)
def test_law_what_is_kept_is_what_plain_commands_leave(lists: list[tuple[list[str], bool]]) -> None:
    base = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="t"))
    patch = pytest.MonkeyPatch()
    try:
        plain, tried, config = base / "plain", base / "w", base / "h/.config/ringfence"
        config.mkdir(parents=True)
        (config / "config.toml").write_text(RULE)
        for folder in (plain, tried):
            folder.mkdir()
            (folder / "do.py").write_text(DO)
            subprocess.run(["bash", "-c", BEFORE], cwd=folder, check=True)
        for programs, keeps in lists:
            user = Decider()
            user.keeps = keeps
            calls: list[object] = [[do(program)] for program in programs]
            played = play(base, patch, {"main": [*calls, "done"]}, mode=Mode.DEFAULT, approver=user)  # type: ignore[arg-type]
            assert "not tried" not in str(played.history)
            assert not layers()
            for program in programs if keeps else ():
                subprocess.run(["python3", "do.py", program], cwd=plain, capture_output=True, check=False)
            assert picture(tried) == picture(plain)
    finally:
        patch.undo()
        shutil.rmtree(base, ignore_errors=True)
