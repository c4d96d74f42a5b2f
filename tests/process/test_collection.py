"""Test of the collection: the list of tests is equal in every process, so that workers agree and a failure can be run
again by its id.
"""

import os
import subprocess
import sys

import pytest

from tests.support.places import ROOT


@pytest.mark.thorough
def test_two_collections_give_the_same_ids_in_the_same_order(request: pytest.FixtureRequest) -> None:
    """Two processes have different temporary folders, object addresses and hashes of strings: no id may contain any.

    With several workers of pytest-xdist, each worker has collected the tests, and pytest-xdist has compared the lists
    of ids before the first test.
    """
    ids = [item.nodeid for item in request.session.items]
    assert len(set(ids)) == len(ids)
    if int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > 1:
        assert "PYTHONHASHSEED" not in os.environ, "the hashes of strings differ between the workers"
        return
    words = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests"]
    collections = [
        subprocess.Popen(words, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed}, stdout=subprocess.PIPE, text=True)
        for seed in ("1", "2")
    ]
    outputs = [each.communicate()[0] for each in collections]
    assert [each.returncode for each in collections] == [0, 0]
    first, second = ([line for line in output.splitlines() if "::" in line] for output in outputs)
    assert len(first) > 1000
    assert [pair for pair in zip(first, second, strict=True) if pair[0] != pair[1]] == []
    assert len(set(first)) == len(first)
