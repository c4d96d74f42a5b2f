"""Tests of whole outputs stored for the user: private, numbered by the product, and bounded."""

import os
import stat
from pathlib import Path

import pytest

from runner.state.output_store import OutputStore


def test_both_streams_are_kept_for_the_user_alone(tmp_path: Path) -> None:
    path = Path(OutputStore(tmp_path / "o").keep(b"out", b"err"))
    assert path.read_bytes() == b"out\n[stderr]\nerr"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.threat("T14")
def test_no_model_fills_the_disk_with_what_is_kept(tmp_path: Path) -> None:
    shelf = OutputStore(tmp_path / "o", most=100)
    shelf.keep(b"x" * 60, b"")
    for _ in range(3):
        with pytest.raises(OSError, match="reached their limit"):
            shelf.keep(b"x" * 50, b"")
    shelf.keep(b"x" * 40, b"")
    assert sum(path.stat().st_size for path in (tmp_path / "o").iterdir()) == 100


@pytest.mark.threat("T14")
def test_a_piece_that_the_disk_took_does_not_stay(tmp_path: Path) -> None:
    import resource
    import signal

    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            OutputStore(tmp_path / "o").keep(b"x" * 5000, b"")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert os.listdir(tmp_path / "o") == []
