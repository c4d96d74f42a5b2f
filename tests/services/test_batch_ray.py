"""Tests of a batch on a real Ray cluster of this machine: the data sent and returned, and the files left behind."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.agent_program import AGENT
from tests.support.hosted import processes
from tests.support.ray_cluster import Cluster, cluster
from tests.support.waiting import until

pytestmark = pytest.mark.thorough  # a cluster takes long to start

KEY = "sk-ant-canary-0123456789abcdefghij"
SCRIPT = """
[[turn]]
calls = [{ name = "bash", arguments = { command = "cat sub/in.txt; env; echo out > sub/out.txt; rm one.txt" } }]
[[turn]]
text = "Done."
"""

# INVARIANT: neither is imported here: gRPC's threads would run on in what later tests fork, and crash there.
if not (find_spec("ray") and find_spec("grpc")):
    pytest.skip("the extra `ray` is not installed", allow_module_level=True)


@pytest.fixture(scope="module")
def there() -> Iterator[Cluster]:
    """The other machine: its own home and state, and no variable of ours."""
    folder = Path(tempfile.mkdtemp(prefix="rb-", dir="/tmp"))
    for name in ("home", "copies"):
        (folder / name).mkdir()
    environ = {
        "HOME": str(folder / "home"),
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "RINGFENCE_STATE_DIR": str(folder / "state"),
        "TMPDIR": str(folder / "copies"),
    }
    try:
        with cluster(folder, environ) as made:
            yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def batch(base: Path, there: Cluster, *more: str) -> subprocess.CompletedProcess[str]:
    environ = {
        "HOME": str(base / "home"),
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "RINGFENCE_STATE_DIR": str(base / "state"),
        "ANTHROPIC_API_KEY": KEY,
        **there.environ,
    }
    words = [*there.command, AGENT, "batch", "tasks.jsonl", "--cwd", "work/sub", "--engine", there.address, *more]
    return subprocess.run(words, cwd=base, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True)


def files(top: Path) -> Iterator[tuple[Path, bytes]]:
    """Every file below, with what it holds; the cluster goes on to make and remove its own meanwhile."""
    for folder, _, names in os.walk(top):
        for path in (Path(folder, name) for name in names):
            with suppress(FileNotFoundError):
                if stat.S_ISREG(path.lstat().st_mode):
                    yield path, path.read_bytes()


@pytest.mark.slow("a cluster is started, and its workers import the program")
@pytest.mark.threat("T97")
def test_tasks_run_there_and_what_comes_back_is_written_here(tmp_path: Path, there: Cluster) -> None:
    for name in ("home", "work", "work/sub", "work/.git"):
        (tmp_path / name).mkdir()
    (tmp_path / "work/.git/HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / "work/one.txt").write_text("1\n")
    (tmp_path / "work/.env").write_text("TOKEN=never-travels\n")
    (tmp_path / "work/sub/in.txt").write_text("came along\n")
    (there.folder / "script.toml").write_text(SCRIPT.replace("sub/", "").replace("one.txt", "../one.txt"))
    tasks = [{"id": f"t{n}", "prompt": f"use {KEY}", "metadata": {"n": n, "key": KEY}} for n in range(3)]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))

    done = batch(tmp_path, there, "--mode", "trust-project", f"--model=scripted:{there.folder}/script.toml")

    assert done.returncode == 0, (done.stdout, done.stderr)
    out = tmp_path / "tasks.batch"
    results = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    assert sorted(result["id"] for result in results) == ["t0", "t1", "t2"]
    assert {result["status"] for result in results} == {"done"}
    assert all(result["node"] for result in results)
    assert sorted(result["metadata"]["n"] for result in results) == [0, 1, 2]
    patch = (out / "patches/t0.patch").read_text()
    assert "sub/out.txt" in patch
    assert "one.txt" in patch
    events = (out / "events/t0.jsonl").read_text()
    assert "came along" in events
    assert (tmp_path / "work/one.txt").exists()
    assert [path.name for path in (there.folder / "copies").iterdir() if path.name.startswith("ringfence")] == []
    kept = dict(files(there.folder))
    assert there.folder / "script.toml" in kept, "they are looked at"
    assert [str(path) for path, data in kept.items() if KEY.encode() in data] == [], "the key travelled"
    assert [str(path) for path, data in kept.items() if b"never-travels" in data] == [], "a secret file travelled"
    assert (there.folder / "state/audit.db").exists(), "its record is in the log of the machine that did it"


def test_ctrl_c_here_ends_what_runs_there(tmp_path: Path, there: Cluster) -> None:
    for name in ("home", "work"):
        (tmp_path / name).mkdir()
    seconds = f"601.{os.getpid()}"  # seconds, which no process of another test worker waits
    (there.folder / "slow.toml").write_text(
        f'[[turn]]\ncalls = [{{ name = "bash", arguments = {{ command = "echo > begun.txt; sleep {seconds}" }} }}]\n'
    )
    (tmp_path / "tasks.jsonl").write_text('{"id": "slow", "prompt": "x"}\n')
    environ = {"HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", **there.environ}
    words = [
        *there.command,
        AGENT,
        "batch",
        "tasks.jsonl",
        "--cwd",
        "work",
        "--engine",
        there.address,
        "--mode",
        "trust-project",
    ]
    running = subprocess.Popen(
        [*words, f"--model=scripted:{there.folder}/slow.toml"],
        cwd=tmp_path,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: processes(seconds), of=running)  # what the command writes is in the layer of its transaction
    running.send_signal(signal.SIGINT)
    out, err = running.communicate()
    assert running.returncode == 130, (out, err)
    assert "Traceback" not in err
    until(lambda: not list((there.folder / "copies").glob("ringfence*")), what="the end of the copy")
    assert not (tmp_path / "tasks.batch/results.jsonl").exists()


NOT_THERE = """
import ray.util.client.worker as worker
from runner.frontends.batch.ray_engine import _connected
from runner.problems import Stopped
worker.INITIAL_TIMEOUT_SEC = worker.MAX_TIMEOUT_SEC = 0.1
try:
    _connected("ray://127.0.0.1:1")
except Stopped as stopped:
    print(stopped.problem.what)
"""


def test_a_cluster_that_is_not_there_is_said() -> None:
    done = subprocess.run([sys.executable, "-c", NOT_THERE], capture_output=True, text=True)
    assert done.stdout == "no Ray cluster answers at `ray://127.0.0.1:1`\n", done.stderr
    assert done.returncode == 0


def test_no_thread_of_ray_is_in_the_process_of_the_tests() -> None:
    assert not {"ray", "grpc"} & sys.modules.keys()
