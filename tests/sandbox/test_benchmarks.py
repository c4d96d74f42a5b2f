"""Tests of the benchmarks: they start and end. No test asserts a duration."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import TESTS

BENCH = TESTS / "bench" / "bench.py"
PARTS = ["--decisions", "--config", "--redaction"]  # the others take minutes, or are run by hand


@pytest.mark.thorough
@pytest.mark.parametrize("part", PARTS)
def test_a_part_can_be_run_alone(part: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, BENCH, part], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "goal" in done.stdout


@pytest.mark.thorough
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may be another user")
def test_the_launches_run_as_another_user(tmp_path: Path) -> None:
    ask = "import json, bench; print(json.dumps(bench.as_other_user()))"
    environ = {**os.environ, "PYTHONPATH": str(BENCH.parent)}
    done = subprocess.run([sys.executable, "-c", ask], env=environ, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(each > 0 for each in json.loads(done.stdout).values())
