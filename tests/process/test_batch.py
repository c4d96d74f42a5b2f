"""Tests of `agent batch`: the real command, real copies, a scripted model, and a killed parent."""

import asyncio
import fcntl
import gzip
import hashlib
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from runner.engine.run_limits import RunBudget
from runner.frontends.batch import attempt, ray_engine, remote_worker
from runner.frontends.batch.archive import pack, packed, remote_task, unpack, unpacked
from runner.frontends.batch.attempt import BatchEnvironment, words
from runner.frontends.batch.command import BatchArgs, chosen, listed
from runner.frontends.batch.pool import BatchLimits, TaskPool
from runner.frontends.batch.progress import Bar
from runner.frontends.batch.scratch import CopiesFolder, sweep
from runner.frontends.batch.store import BatchFolder, Past, TaskResult, history, worst
from runner.frontends.batch.task import Budget, Task, file_name, within
from runner.frontends.batch.tasklist import Defaults, parse
from runner.problems import Exit, Stopped
from runner.secrets.secret import _registered
from runner.text.gunzip import PackedError
from tests.support import forked_agent
from tests.support.agent_program import AGENT
from tests.support.marked_processes import new_nap
from tests.support.waiting import until

QUICK = """
[[turn]]
text = "I write."
calls = [{ name = "write", arguments = { path = "new.txt", content = "new\\n" } }]
[[turn]]
text = "Written."
"""
LONG = new_nap()
SLOW = f"""
[[turn]]
calls = [{{ name = "bash", arguments = {{ command = "echo begun > begun.txt; sleep {LONG}" }} }}]
[[turn]]
text = "Late."
"""


class Harness:
    """A workspace, a home, a state folder, and a place for copies that must be empty in the end."""

    def __init__(self, base: Path) -> None:
        self.base = base
        for name in ("home", "work", "copies"):
            (base / name).mkdir()
        self.work = base / "work"
        (self.work / "one.txt").write_text("1\n")
        (base / "quick.toml").write_text(QUICK)
        (base / "slow.toml").write_text(SLOW)
        self.out = base / "tasks.batch"
        self.environ = {
            "HOME": str(base / "home"),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "RINGFENCE_STATE_DIR": str(base / "state"),
            "TMPDIR": str(base / "copies"),
        }

    def put(self, *tasks: dict[str, object]) -> None:
        (self.base / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))

    def words(self, *more: str) -> list[str]:
        model = (
            () if any(word.startswith("--model") for word in more) else (f"--model=scripted:{self.base}/quick.toml",)
        )
        return [AGENT, "batch", "tasks.jsonl", "--cwd", str(self.work), "--mode", "trust-project", *model, *more]

    def run(self, *more: str, code: int = 0, execve: bool = False) -> subprocess.CompletedProcess[str]:
        run = subprocess.run if execve else forked_agent.run
        done = run(
            self.words(*more),
            cwd=self.base,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == code, (done.stdout, done.stderr)
        return done

    def start(self, *more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.words(*more),
            cwd=self.base,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def results(self) -> list[dict[str, object]]:
        file = self.out / "results.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def left(self) -> list[str]:
        """The processes that work for this harness, and the copies there are."""
        return [*processes(str(self.base)), *(path.name for path in (self.base / "copies").iterdir())]

    def wait_for_commands(self, many: int) -> None:
        """Wait until so many slow commands run. What they write is in the layers of their transactions."""
        until(lambda: len(processes(f"sleep\0{LONG}")) >= many, what="the start of the commands")

    def wait_until_alone(self) -> None:
        until(lambda: not processes(str(self.base)), what=lambda: f"the end of {processes(str(self.base))}")


def processes(name: str) -> list[str]:
    """The command lines and environments that name the folder, of every process but our own."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit() and int(each.name) != os.getpid():
            try:
                words = (each / "cmdline").read_bytes() + (each / "environ").read_bytes()
            except OSError:
                continue  # it is gone by now, or another user's
            if name.encode() in words:
                found.append(f"{each.name} {words[:200]!r}")
    return found


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    made = Harness(tmp_path)
    yield made
    made.wait_until_alone()


def test_each_task_works_on_its_own_copy_and_the_workspace_stays_as_it_is(harness: Harness) -> None:
    harness.put(
        {"id": "a", "prompt": "write", "metadata": {"suite": [1, None]}},
        {"prompt": "write", "max_turns": 1},
        {"id": "../../escape", "prompt": "write"},
    )
    done = harness.run("--jobs", "2", code=5)
    assert sorted(path.name for path in harness.work.iterdir()) == ["one.txt"]
    assert harness.left() == []
    found = {str(result["id"]): result for result in harness.results()}
    assert {id: result["status"] for id, result in found.items()} == {
        "a": "done",
        "line-2": "limit",
        "../../escape": "done",
    }
    assert found["a"]["metadata"] == {"suite": [1, None]}
    assert "2 done, 1 limit" in done.stdout
    assert len(done.stdout.splitlines()) == 5
    assert all(path.resolve().is_relative_to(harness.out) for path in harness.out.rglob("*"))
    assert not (harness.base.parent / "escape.jsonl").exists()


@pytest.mark.thorough
def test_a_second_call_runs_what_is_not_done_and_answers_the_same_code(harness: Harness) -> None:
    tasks: list[dict[str, object]] = [{"id": "a", "prompt": "write"}, {"id": "b", "prompt": "write", "max_turns": 1}]
    harness.put(*tasks)
    harness.run(code=5)
    harness.run(code=5)
    assert [(each["id"], each["attempt"]) for each in harness.results()] in ([("a", 1), ("b", 1)], [("b", 1), ("a", 1)])
    harness.put(*tasks, {"id": "c", "prompt": "write"})
    done = harness.run("--retry-failed", code=5)
    assert "1 of 3 tasks are already done" in done.stderr
    assert sorted((each["id"], each["attempt"]) for each in harness.results()[2:]) == [("b", 2), ("c", 1)]
    harness.put({"id": "a", "prompt": "other"})
    refused = harness.run(code=2)
    assert "`a` is another task than the one that was done" in refused.stderr
    harness.run("--rerun-changed")
    assert (harness.results()[-1]["id"], harness.results()[-1]["attempt"]) == ("a", 2)


def test_what_is_left_of_the_money_is_nothing_that_a_task_asks_for(harness: Harness) -> None:
    harness.put({"id": "a", "prompt": "write"}, {"id": "b", "prompt": "write"})
    harness.run("--max-cost", "5")
    assert harness.run("--max-cost", "4").stdout.startswith("2 done"), "the same list, and all of it is done"


def test_a_list_on_standard_input_is_checked(harness: Harness) -> None:
    for asked in (("run", "-", "--dry-run", "--out", "tasks.batch"), ("check", "-")):
        done = forked_agent.run(
            [AGENT, "batch", *asked, "--cwd", str(harness.work)],
            cwd=harness.base,
            env=harness.environ,
            input='{"prompt": "write"}\n',
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (done.returncode, done.stderr) == (0, ""), asked
        assert done.stdout.startswith("1 task in "), asked


@pytest.mark.thorough
def test_a_killed_batch_leaves_nothing_running_and_goes_on_where_it_was(harness: Harness) -> None:
    harness.put(
        {"id": "quick", "prompt": "write"},
        *({"id": f"s{n}", "prompt": "wait", "model": f"scripted:{harness.base}/slow.toml"} for n in range(2)),
    )
    batch = harness.start("--jobs", "2")
    harness.wait_for_commands(2)
    batch.send_signal(signal.SIGKILL)
    batch.communicate()
    harness.wait_until_alone()
    assert [each["id"] for each in harness.results()] == ["quick"]
    with (harness.out / "results.jsonl").open("a") as file:
        file.write('{"type":"result","id":"s0","sta')  # as a kill in the middle of write(2) would leave it
    (harness.base / "slow.toml").write_text(QUICK)
    harness.run()
    assert sorted((each["id"], each["attempt"]) for each in harness.results()) == [("quick", 1), ("s0", 2), ("s1", 2)]
    assert harness.left() == []


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_ends_what_runs_and_leaves_nothing(harness: Harness, times: int) -> None:
    harness.put(*({"id": f"s{n}", "prompt": "wait", "model": f"scripted:{harness.base}/slow.toml"} for n in range(3)))
    batch = harness.start("--jobs", "2")
    harness.wait_for_commands(2)
    for _ in range(times):
        batch.send_signal(signal.SIGINT)
    out, err = batch.communicate()
    assert batch.returncode == 130, (out, err)
    assert "2 running" in err
    assert "Traceback" not in err
    harness.wait_until_alone()
    assert harness.left() == []
    assert harness.results() == []
    past = history(harness.out)
    assert {id: each.interrupted for id, each in past.items()} == {"s0": True, "s1": True}


SEARCH = """
import glob, os
for place in PLACES:
    for folder, folders, files in os.walk(place):
        for name in files:
            path = os.path.join(folder, name)
            try:
                text = open(path, "rb").read()
            except OSError:
                continue
            if b"mark" + b"er" in text:
                print("FOUND " + path)
for place in PLACES:
    for name in ("results.jsonl", "journal.jsonl", "events/first.jsonl", "patches/first.patch", "patches/second.patch", "forged"):
        for target in (os.path.join(place, name), os.path.join("tasks.batch", name)):
            try:
                open(target, "a").write("forged by a task")
                print("WROTE " + target)
            except OSError:
                pass
"""


@pytest.mark.threat("T96")
@pytest.mark.parametrize("where", ["beside", "in the workspace"])
def test_a_task_finds_nothing_of_another_and_changes_nothing_of_it(harness: Harness, where: str) -> None:
    inside = where == "in the workspace"
    harness.out = (harness.work if inside else harness.base) / "tasks.batch"
    # The copy of another task that runs at the same time; the owner of the copy holds the lock.
    other = harness.base / "copies/ringfence-batch-other"
    (other / "ringfence-copy-x/work").mkdir(parents=True)
    (other / "ringfence-copy-x/work/file").write_text("marker\n")
    with (other / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        places = [str(harness.out), str(harness.base / "copies"), "/proc/1/root" + str(harness.base)]
        (harness.work / "search.py").write_text(f"PLACES = {places}\n{SEARCH}")
        config = harness.base / "config.toml"  # even where the user's own rules open the way
        config.write_text(f'[[rule]]\nverdict = "allow"\nread = ["{harness.base}/**"]\nwrite = ["{harness.base}/**"]\n')
        for name, command in (("first", "echo marker; echo marker > first.txt"), ("second", "python3 search.py")):
            call = json.dumps({"command": command}).replace('"command":', "command =")
            (harness.base / f"{name}.toml").write_text(f'[[turn]]\ncalls = [{{ name = "bash", arguments = {call} }}]\n')
        harness.put(
            *(
                {"id": name, "prompt": "x", "model": f"scripted:{harness.base}/{name}.toml"}
                for name in ("first", "second")
            )
        )
        harness.run("--jobs", "1", "--out", str(harness.out), "--config", str(config), execve=True)
    first, second = harness.results()
    assert (first["id"], second["id"]) == ("first", "second")
    assert "marker" in (harness.out / "patches/first.patch").read_text(), "there was something to find"
    said = (harness.out / "events/second.jsonl").read_text()
    assert '"status":0' in said, "the search ran"
    assert "FOUND" not in said
    # A folder of that name that the task wrote in its own copy is harmless, and is in no patch.
    assert not [line for line in said.splitlines() if '"type":"finished"' in line and f"WROTE {harness.out}" in line]
    for path in harness.out.rglob("*"):
        assert path.is_dir() or "forged by" not in path.read_text() or path.name == "second.jsonl"
    assert not (harness.out / "forged").exists()
    audit = forked_agent.run(
        [AGENT, "audit", "verify"], env=harness.environ, cwd=harness.base, capture_output=True, text=True
    )
    assert audit.returncode == 0, audit.stderr


def test_two_batches_do_not_work_on_one_folder(harness: Harness) -> None:
    harness.put({"id": "a", "prompt": "write"})
    store = BatchFolder.open(harness.out)
    refused = harness.run(code=1)
    store.close()
    assert "another batch uses" in refused.stderr
    harness.run()


def test_the_time_of_the_whole_ends_it(harness: Harness) -> None:
    harness.put(*({"id": f"s{n}", "prompt": "wait", "model": f"scripted:{harness.base}/slow.toml"} for n in range(2)))
    done = harness.run("--timeout", "3s", "--jobs", "1", code=5)
    assert "stopped after 3 s" in done.stderr
    harness.wait_until_alone()
    assert harness.left() == []
    assert harness.results() == []


def test_fail_fast_begins_no_more(harness: Harness) -> None:
    harness.put({"id": "bad", "prompt": "x", "model": "scripted:/nonexistent"}, {"id": "good", "prompt": "write"})
    done = harness.run("--jobs", "1", "--fail-fast", code=1)
    assert [each["id"] for each in harness.results()] == ["bad"]
    assert "`bad` failed" in done.stderr
    assert "/nonexistent" in str(harness.results()[0]["error"])


def test_json_is_one_object_a_line(harness: Harness) -> None:
    harness.put({"id": "a", "prompt": "write"})
    lines = [json.loads(line) for line in harness.run("--json").stdout.splitlines()]
    assert [line["type"] for line in lines] == ["result", "batch"]
    assert (lines[1]["exit"], lines[1]["done"], lines[1]["unfinished"]) == (0, 1, 0)


# ---- which runs when -----------------------------------------------------------------------------------------------------


class Scripted:
    """An engine whose attempts take a step of the event loop each, and end as they are told."""

    def __init__(self, **ends: dict[str, object] | Exception) -> None:
        self.ends = ends
        self.begun: list[str] = []
        self.left: list[float | None] = []
        self.cancelled: list[str] = []
        self.running = self.most = 0

    async def attempt(self, task: Task, number: int, left: float | None, hurry: asyncio.Event) -> TaskResult:
        self.begun.append(task.id)
        self.left.append(left)
        self.running += 1
        self.most = max(self.most, self.running)
        end = self.ends.get(task.id, {})
        try:
            await (asyncio.Event().wait() if end == {"wait": True} else asyncio.sleep(0))
        except asyncio.CancelledError:
            self.cancelled.append(task.id)
            raise
        finally:
            self.running -= 1
        if isinstance(end, Exception):
            raise end
        return {"id": task.id, "status": "done", "exit": 0, "attempt": number, "task": task.fingerprint, **end}


class Nobody:
    def begun(self, task: Task) -> None: ...
    def ended(self, task: Task, result: TaskResult) -> None: ...
    def notice(self, text: str) -> None: ...


def pooled(out: Path, engine: Scripted, ids: str, **bounds: object) -> TaskPool:
    """Run a batch of tasks and return its pool; each letter of `ids` is the id of a task."""
    store = BatchFolder.open(out)
    try:
        pool = TaskPool(store, engine, BatchLimits(**{"jobs": 2, **bounds}), Nobody())  # type: ignore[arg-type]  # `bounds` are fields of BatchLimits
        asyncio.run(pool.run([Task(id, 1, "x", "/") for id in ids]))
        return pool
    finally:
        store.close()


FAILED: dict[str, object] = {"status": "failed", "exit": 1}
# fmt: off
POOLS = [
    # bounds, how tasks end, those that began, those that were cancelled, what ended it
    ({"jobs": 2}, {}, "abcdef", "", None),
    ({"jobs": 9}, {}, "abcdef", "", None),
    ({"jobs": 1}, {"b": FAILED}, "abcdef", "", None),
    ({"jobs": 1, "fail_fast": True}, {"b": FAILED}, "ab", "", Exit.FAILED),
    ({"jobs": 1, "fail_fast": True}, {"b": {"status": "denied", "exit": 3}}, "abcdef", "", None),
    ({"jobs": 1}, {"b": {"status": "failed", "exit": 4}}, "ab", "", Exit.SANDBOX),
    ({"jobs": 1, "cost": 1.0}, {"a": {"cost": 0.6}, "b": {"cost": 0.6}}, "ab", "", Exit.LIMIT),
    ({"jobs": 2, "cost": 1.0}, {"a": {"cost": 2}, "b": {"wait": True}}, "ab", "b", Exit.LIMIT),
    ({"jobs": 1, "cost": 1.0}, {"a": {"cost": None}}, "abcdef", "", None),
    ({"jobs": 2, "seconds": 0.2}, {"a": {"wait": True}, "c": {"wait": True}}, "abc", "ac", Exit.LIMIT),
    ({"jobs": 3, "seconds": 0.2, "fail_fast": True}, {"a": FAILED, "b": {"wait": True}, "c": {"wait": True}}, "abc", "bc",
     Exit.FAILED),
]
# fmt: on


@pytest.mark.parametrize(("bounds", "ends", "began", "cancelled", "by"), POOLS)
def test_what_runs_and_what_ends_it(
    bounds: dict[str, object],
    ends: dict[str, dict[str, object]],
    began: str,
    cancelled: str,
    by: Exit | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Scripted(**ends)
    clock = SimpleNamespace(monotonic=lambda: float("c" in engine.begun))  # a time is over once `c` runs
    monkeypatch.setattr("runner.frontends.batch.pool.time", clock)
    pool = pooled(tmp_path / "out", engine, "abcdef", **bounds)
    assert "".join(engine.begun) == began
    assert "".join(sorted(engine.cancelled)) == cancelled
    assert pool.ended_by == by
    assert engine.most <= int(str(bounds["jobs"]))
    assert engine.running == 0
    past = history(tmp_path / "out")
    assert {id for id, each in past.items() if each.interrupted} == set(cancelled)
    assert {id for id, each in past.items() if each.result} == set(began) - set(cancelled)


def test_each_task_is_given_the_money_that_is_left(tmp_path: Path) -> None:
    engine = Scripted(a={"cost": 0.25}, b={"cost": 0.5})
    pooled(tmp_path / "out", engine, "abc", jobs=1, cost=1.0)
    assert engine.left == [1.0, 0.75, 0.25]
    again = Scripted()
    assert pooled(tmp_path / "out", again, "d", jobs=1, cost=0.75).ended_by == Exit.LIMIT
    assert again.begun == [], "what earlier calls cost counts"
    failed = Scripted(e={"cost": 0.25, "status": "failed", "exit": 1})
    pooled(tmp_path / "out", failed, "e", jobs=1, cost=1.25)
    once_more = Scripted()
    pooled(tmp_path / "out", once_more, "e", jobs=1, cost=1.25)
    pooled(tmp_path / "out", once_more, "f", jobs=1, cost=1.25)
    assert once_more.left == [0.25, 0.25], "so does what was tried again"
    assert within(Task("a", 1, "x", "/", budget=Budget(cost=0.1)), 0.25).budget.cost == 0.1
    assert within(Task("a", 1, "x", "/"), 0.25).budget.cost == 0.25


# what is left of the money and the time, what `agent ci` is given
LITTLE = [
    (Budget(cost=0.5, seconds=90.0), ("--max-cost=0.5", "--timeout=90.000s")),
    (Budget(cost=2**-40, seconds=1e-9), (f"--max-cost={2**-40}", "--timeout=0.001s")),
]


@pytest.mark.parametrize(("budget", "expected"), LITTLE)
def test_a_little_is_not_rounded_to_nothing(budget: Budget, expected: tuple[str, ...], tmp_path: Path) -> None:
    said = words(Task("a", 1, "x", "/", budget=budget), "/", tmp_path / "p", BatchEnvironment((), {}, "", 0, ""))
    assert said[-2:] == expected
    flags = RunBudget(
        **{name: word.partition("=")[2] for name, word in zip(("cost", "timeout"), expected, strict=True)}
    )
    assert [value > 0 for _, _, value in flags.given_options()] == [True, True]


def test_what_an_earlier_attempt_left_is_not_of_the_next(tmp_path: Path) -> None:
    store, task = BatchFolder.open(tmp_path / "out"), Task("a", 1, "x", "/")
    for file in (store.patch(task), store.events(task)):
        file.write_text("of the first")
    store.end({"id": "a", "attempt": store.begin(task, "now"), "cost": 1})
    assert store.files(task) == {"patch": None, "events": None}
    store.close()


# what was done, what was begun after it and not ended, what the list says now, whether it runs: None when refused
AGAIN: list[tuple[str, str | None, str, bool | None, str]] = [
    ("x", None, "x", False, "it is done"),
    ("x", None, "y", None, "the list was changed"),
    ("x", "x", "x", True, "it was interrupted when tried again"),
    ("x", "y", "y", True, "it was interrupted when a user had said yes to the change"),
    ("x", "y", "z", None, "the list was changed once more"),
    ("x", "y", "x", True, "the list is as it was, but not what the attempts left"),
]


@pytest.mark.parametrize(("done", "begun", "now", "runs", "why"), AGAIN, ids=[row[4] for row in AGAIN])
def test_what_runs_again(done: str, begun: str | None, now: str, runs: bool | None, why: str, tmp_path: Path) -> None:
    first, last = Task("a", 1, done, "/"), Task("a", 1, now, "/")
    store = BatchFolder.open(tmp_path / "out")
    store.end({"id": "a", "attempt": store.begin(first, "now"), "status": "done", "task": first.fingerprint})
    if begun is not None:
        store.begin(Task("a", 1, begun, "/"), "now")
    store.close()
    store = BatchFolder.open(tmp_path / "out")
    try:
        found: bool | None = chosen([last], store, retry=False, changed=False, out=tmp_path / "out") == [last]
    except Stopped:
        found = None
    store.close()
    assert found is runs


def test_events_that_cannot_be_created_are_a_problem_with_a_remedy(tmp_path: Path) -> None:
    events = tmp_path / "none" / "x.jsonl"
    with pytest.raises(Stopped) as raised:
        asyncio.run(attempt.run((), prompt="x", events=events, environ={}, hurry=asyncio.Event()))
    assert raised.value.problem.why == "no such file or directory"


def test_who_holds_the_output_of_a_task_open_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = "import subprocess, sys; print(subprocess.Popen(['sleep', '600']).pid); print('{\"type\":\"result\",\"exit\":0}')"
    monkeypatch.setattr(attempt, "_START", started)
    monkeypatch.setattr(attempt, "_REST", 0.5)
    events = tmp_path / "events"

    async def run() -> attempt.Gone:
        return await attempt.run((), prompt="x", events=events, environ={}, hurry=asyncio.Event())

    try:
        gone = asyncio.run(run())
    finally:
        os.kill(int(events.read_text().splitlines()[0]), signal.SIGKILL)
    assert (gone.status, gone.last) == (0, {"type": "result", "exit": 0})


def test_a_defect_of_ours_ends_everything_that_runs(tmp_path: Path) -> None:
    engine = Scripted(a={"wait": True}, b=RuntimeError("nobody planned this"))
    with pytest.raises(RuntimeError, match="nobody planned"):
        pooled(tmp_path / "out", engine, "abc")
    assert engine.cancelled == ["a"]
    assert history(tmp_path / "out")["b"].interrupted


# ---- the list -----------------------------------------------------------------------------------------------------------

# the line, what is said about it
WRONG = [
    ("{", "not valid JSON"),
    ("[]", "not a JSON object"),
    ('{"prompt": "a", "prompt": "b"}', "`prompt` is in it twice"),
    ('{"promt": "a"}', "a task has no field `promt`; did you mean `prompt`?"),
    ('{"id": "a"}', "it has no prompt"),
    ('{"prompt": "a", "prompt_file": "b"}', "it has two prompts"),
    ('{"prompt_file": "nothere"}', "nothere` cannot be read: no such file"),
    ('{"prompt": "  "}', "its prompt is empty"),
    ('{"prompt": "a\\ud800"}', "lone surrogate"),
    ('{"prompt": 1}', "`prompt`: input should be text"),
    ('{"prompt": "a", "mode": "dangerously"}', "not for a batch"),
    ('{"prompt": "a", "mode": "quick"}', "`mode`"),
    ('{"prompt": "a", "max_turns": 0}', "`max_turns`"),
    ('{"prompt": "a", "max_turns": true}', "`max_turns`"),
    ('{"prompt": "a", "max_cost": NaN}', "`NaN` is not a JSON number"),
    ('{"prompt": "a", "timeout": "soon"}', "`soon` is not an amount"),
    ('{"prompt": "a", "timeout": -1}', "`timeout`"),
    ('{"prompt": "a", "workspace": "nothere"}', "there is no folder"),
    ('{"prompt": "a", "id": "a\\u001b[2J"}', "one line of printable text"),
    ('{"prompt": "a", "id": ""}', "`id`"),
    ('{"prompt": "a", "metadata": []}', "`metadata`"),
    ('{"prompt": "a", "metadata": ' + "[" * 100_000, "nested too deeply"),
    ("\xff", "not UTF-8"),
]


@pytest.mark.parametrize(("line", "said"), WRONG, ids=[said for _, said in WRONG])
def test_a_line_that_cannot_be_used_is_named_with_what_is_wrong(line: str, said: str, tmp_path: Path) -> None:
    data = b'{"prompt": "fine"}\n\n' + line.encode("latin-1") + b"\n"
    with pytest.raises(Stopped) as error:
        parse(data, "`tasks`", Defaults(tmp_path, tmp_path))
    assert error.value.code == Exit.USAGE
    assert "line 3: " in error.value.problem.why
    assert said in error.value.problem.why


def test_every_wrong_line_is_named_at_once(tmp_path: Path) -> None:
    data = b'{"id": "a", "prompt": "x"}\n{"id": "a", "prompt": "y"}\n{}\n' + b"{}\n" * 30
    with pytest.raises(Stopped) as error:
        parse(data, "`tasks`", Defaults(tmp_path, tmp_path))
    assert "line 2: line 1 has the id `a` too" in error.value.problem.why
    assert "line 3: it has no prompt" in error.value.problem.why
    assert "and 12 more" in error.value.problem.why


def test_what_a_line_leaves_out_comes_from_the_command(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("from a file")
    data = b'{"prompt_file": "p.txt", "timeout": 5}\n{"id": "b", "prompt": "x", "model": "m", "timeout": "2m"}\n'
    first, second = parse(data, "`tasks`", Defaults(tmp_path, tmp_path, "default", "plan"))
    assert (first.id, first.prompt, first.model, first.mode, first.budget.seconds) == (
        "line-1",
        "from a file",
        "default",
        "plan",
        5.0,
    )
    assert (second.model, second.budget.seconds) == ("m", 120.0)


# id, the name of its files or None where it is to be hashed
NAMES = [
    ("plain-1.x", "plain-1.x"),
    ("Big", None),
    ("../../etc/passwd", None),
    ("..", None),
    (".hidden", None),
    ("-rf", None),
    ("a/b", None),
    ("a\\b", None),
    ("x" * 200, None),
    ("日本", None),
    ("a-0123456789abcdef", None),
]


@pytest.mark.threat("T96")
@pytest.mark.parametrize(("id", "name"), NAMES)
def test_no_id_leads_out_of_the_folder(id: str, name: str | None) -> None:
    found = file_name(id)
    assert name is None or found == name
    assert "/" not in found
    assert found[0] not in ".-"
    assert len(found) <= 80
    assert found == found.lower()
    if name is None:
        assert found.rpartition("-")[2] != id


def test_what_a_task_asks_for_makes_its_fingerprint() -> None:
    task = Task("a", 1, "do it", "/w")
    assert Task("b", 9, "do it", "/w", metadata={"x": 1}).fingerprint == task.fingerprint
    for other in (Task("a", 1, "do", "/w"), Task("a", 1, "do it", "/v"), Task("a", 1, "do it", "/w", "m")):
        assert other.fingerprint != task.fingerprint


# ---- the folder ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", range(0, 60, 7))
def test_a_line_that_was_cut_off_never_counted(tmp_path: Path, cut: int) -> None:
    out = tmp_path / "out"
    store = BatchFolder.open(out)
    task = Task("a", 1, "do it", "/w")
    store.begin(task, "now")
    store.end({"id": "a", "status": "done", "attempt": 1, "task": task.fingerprint})
    store.close()
    whole = (out / "results.jsonl").read_bytes()
    (out / "results.jsonl").write_bytes(whole + whole[:cut])
    store = BatchFolder.open(out)
    assert (out / "results.jsonl").read_bytes() == whole
    assert not store.past["a"].interrupted
    assert store.begin(task, "now") == 2
    store.close()
    assert history(out)["a"].interrupted


@pytest.mark.parametrize("name", ["-", "tasks.jsonl"])
def test_a_list_that_is_too_long_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = b'{"prompt": "a"}\n' * 3
    (tmp_path / "tasks.jsonl").write_bytes(lines)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines)))
    monkeypatch.setattr("runner.frontends.batch.command.LARGEST", 2 * len(lines) // 3)
    with pytest.raises(Stopped) as found:
        listed(BatchArgs(name, None, BatchLimits(1)))
    shown = "standard input" if name == "-" else "`tasks.jsonl`"
    assert found.value.problem.what == f"{shown} is too long"


@pytest.mark.parametrize("name", ["journal.jsonl", "results.jsonl"])
def test_a_record_of_a_batch_that_is_too_long_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    BatchFolder.open(tmp_path / "out").close()
    (tmp_path / "out" / name).open("a").write('{"type":"result","id":"a","status":"done"}\n' * 100)
    monkeypatch.setattr("runner.frontends.batch.store._LARGEST", 1000)
    with pytest.raises(Stopped) as found:
        history(tmp_path / "out")
    assert found.value.problem.what == f"`{tmp_path / 'out' / name}` cannot be used"
    assert "it has more than" in found.value.problem.why


def test_a_notice_before_the_bar_begins_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    Bar(3).notice("1 of 3 tasks are already done")
    assert capsys.readouterr().err == "1 of 3 tasks are already done\n"


def test_a_folder_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(Stopped, match="cannot hold the results"):
        BatchFolder.open(tmp_path)
    assert (tmp_path / "mine").read_text() == "x"
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    with pytest.raises(Stopped, match="cannot hold the results"):
        BatchFolder.open(link)


def test_a_folder_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    BatchFolder.open(tmp_path / "out").close()
    (tmp_path / "out" / "journal.jsonl").write_text('{"type":"batch","version":2}\n')
    with pytest.raises(Stopped, match="cannot be used"):
        BatchFolder.open(tmp_path / "out")


def test_the_worst_of_all_is_the_exit_code() -> None:
    assert Past() == Past()
    assert worst([]) == Exit.DONE
    assert worst([Exit.DONE, Exit.DENIED]) == Exit.DENIED
    assert worst([Exit.LIMIT, Exit.DENIED, Exit.FAILED]) == Exit.FAILED
    assert worst([Exit.FAILED, Exit.SANDBOX]) == Exit.SANDBOX
    assert worst([Exit.SANDBOX, Exit.INTERRUPTED]) == Exit.INTERRUPTED


# ---- what travels --------------------------------------------------------------------------------------------------------


def archive(*items: tuple[str, bytes, str]) -> bytes:
    """Names, types and link targets of a hand-made archive."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as made:
        for name, kind, link in items:
            item = tarfile.TarInfo(name)
            item.type, item.linkname = kind, link
            made.addfile(item)
    return target.getvalue()


# fmt: off
STRANGE = [
    ((("workspace/../../x", tarfile.REGTYPE, ""),), "a way up"),
    ((("/etc/x", tarfile.REGTYPE, ""),), "an absolute name"),
    ((("other/x", tarfile.REGTYPE, ""),), "another folder"),
    ((("workspace/l", tarfile.SYMTYPE, "/etc"), ("workspace/l/x", tarfile.REGTYPE, "")), "through a link"),
    ((("workspace", tarfile.SYMTYPE, "/etc"), ("workspace/x", tarfile.REGTYPE, "")), "the folder itself a link"),
    ((("workspace/h", tarfile.LNKTYPE, "/etc/passwd"),), "a hard link"),
    ((("workspace/d", tarfile.CHRTYPE, ""),), "a device"),
    ((("workspace/l", tarfile.SYMTYPE, "/etc/x"), ("workspace/l", tarfile.REGTYPE, "")), "through a link of its name"),
    ((("workspace/l", tarfile.SYMTYPE, "/etc"), ("workspace/./l/x", tarfile.REGTYPE, "")), "through a link, by a dot"),
    ((("workspace/l", tarfile.SYMTYPE, "/etc"), ("workspace//l/x", tarfile.REGTYPE, "")), "through a link, by a slash"),
]
# fmt: on


@pytest.mark.threat("T97")
@pytest.mark.parametrize(("items", "why"), STRANGE, ids=[why for _, why in STRANGE])
def test_an_archive_lands_in_its_folder_or_not_at_all(
    items: tuple[tuple[str, bytes, str], ...], why: str, tmp_path: Path
) -> None:
    data = archive(*items)
    with pytest.raises(ValueError, match="the archive of the workspace is invalid"):
        unpack(data, hashlib.sha256(data).hexdigest(), str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def _large(name: str, kind: bytes) -> bytes:
    """An archive with one member of 4 MB. Of a PAX head the library would hold all at once."""
    head = tarfile.TarInfo(name)
    head.type, head.size = kind, 4 << 20
    return gzip.compress(head.tobuf(tarfile.USTAR_FORMAT) + bytes(4 << 20) + bytes(1024))


BOMBS = [
    ("_LARGEST_HEAD", 1 << 20, _large("x", tarfile.XHDTYPE), "a head that the library would hold at once"),
    ("_LARGEST_TREE", 1 << 20, _large("workspace/x", tarfile.REGTYPE), "much when unpacked"),
    ("_MOST_MEMBERS", 2, archive(*((f"workspace/{n}", tarfile.REGTYPE, "") for n in range(4))), "many members"),
]  # fmt: skip


@pytest.mark.threat("T119")
@pytest.mark.parametrize(("name", "bound", "data", "why"), BOMBS, ids=[why for *_, why in BOMBS])
def test_an_archive_is_counted_while_it_is_unpacked(
    name: str, bound: int, data: bytes, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"runner.frontends.batch.archive.{name}", bound)
    with pytest.raises(ValueError, match="the archive of the workspace is invalid"):
        unpack(data, hashlib.sha256(data).hexdigest(), str(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.threat("T119")
def test_events_of_another_machine_are_counted_while_they_are_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.frontends.batch.archive._LARGEST_UNPACKED", 1000)
    events = b"".join(b'{"n":%d}\n' % number for number in range(500))
    kept = unpacked(packed(events))
    assert events.endswith(kept)
    assert kept.startswith(b'{"n":')
    assert 900 < len(kept) <= 1000
    for data in (gzip.compress(bytes(1001)), gzip.compress(b"a") * 2, gzip.compress(b"a" * 99)[:-1], b"{}"):
        with pytest.raises(PackedError):
            unpacked(data)


def test_a_workspace_comes_out_as_it_went_in(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "deep/er").mkdir(parents=True)
    (work / "deep/er/file").write_bytes(b"\0\xff")
    (work / "run.sh").write_text("#!/bin/sh\n")
    (work / "run.sh").chmod(0o755)
    (work / "away").symlink_to("/nowhere")
    (work / "empty").mkdir()
    data, digest = pack(str(work))
    (tmp_path / "there").mkdir()
    found = Path(unpack(data, digest, str(tmp_path / "there")))
    assert sorted(str(path.relative_to(found)) for path in found.rglob("*")) == sorted(
        str(path.relative_to(work)) for path in work.rglob("*")
    )
    assert (found / "deep/er/file").read_bytes() == b"\0\xff"
    assert (found / "run.sh").stat().st_mode & 0o777 == 0o755
    assert os.readlink(found / "away") == "/nowhere"
    with pytest.raises(ValueError, match="not the one that was sent"):
        unpack(data + b"x", digest, str(tmp_path / "there"))


@pytest.mark.threat("T97")
def test_no_key_of_ours_is_in_what_travels(monkeypatch: pytest.MonkeyPatch) -> None:
    key = "sk-ant-canary-0123456789abcdefghij"
    monkeypatch.setenv("ANTHROPIC_API_KEY", key)
    task = Task("a", 1, f"use {key}", "/w", metadata={"note": [f"x{key}x"], key: 1})
    for data in (pickle.dumps(remote_task(task, 1, "0", ".", "d")), repr(remote_task(task, 1, "0", ".", "d")).encode()):
        assert key.encode() not in data
    assert key.encode() in pickle.dumps(task), "the search would find it"
    _registered.clear()


def test_a_folder_that_another_batch_sweeps_up_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, others = fcntl.flock, []

    def late(handle: int, how: int) -> None:
        if not others:  # between our opening of the lock and our taking it
            others.append(next(tmp_path.iterdir()))
            lock = stack.enter_context((others[0] / "lock").open("r+"))
            real(lock, how)
        real(handle, how)

    with ExitStack() as stack:
        monkeypatch.setattr(fcntl, "flock", late)
        made = CopiesFolder(str(tmp_path))
        monkeypatch.undo()
        assert Path(made.path) not in others
    made.remove()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_owner_left_is_swept_and_nothing_else(tmp_path: Path) -> None:
    where = str(tmp_path)
    gone, held, young = (tmp_path / f"ringfence-batch-{name}" for name in ("gone", "held", "young"))
    for each in (gone, held, young):
        (each / "copy").mkdir(parents=True)
    (gone / "lock").touch()
    (gone / "copy").chmod(0)
    (tmp_path / "ringfence-batch-file").touch()
    (tmp_path / "ringfence-batch-link").symlink_to(young)
    (tmp_path / "mine").mkdir()
    with (held / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = CopiesFolder(where)
        assert sorted(path.name for path in tmp_path.iterdir() if path != Path(made.path)) == [
            "mine", "ringfence-batch-file", "ringfence-batch-held", "ringfence-batch-link", "ringfence-batch-young",
        ]  # fmt: skip
        made.remove()
        assert (held / "copy").exists()
    os.utime(young, (0, 0))
    sweep(where)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "ringfence-batch-file", "ringfence-batch-link"]


def test_a_machine_without_a_working_sandbox_or_of_another_version_does_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(tmp_path / "state"))
    assert remote_worker.probe().why is None
    monkeypatch.setenv("RINGFENCE_STATE_DIR", "nowhere/to/record")
    assert "RINGFENCE_STATE_DIR" in str(remote_worker.probe().why)
    sent = remote_task(Task("a", 1, "x", "/"), 1, "0.0.0", ".", "d")
    with pytest.raises(ValueError, match=r"0\.0\.0 is required"):
        remote_worker.perform(sent, b"")
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
    monkeypatch.setenv("RAY_AUTH_TOKEN", "a way into the cluster")
    assert not [name for name in remote_worker.own_environment() if name.startswith("RAY_")]


_LOST = """Request can't be sent because the Ray client has already been disconnected due to an error. Last exception: \
<_MultiThreadedRendezvous of RPC that terminated with:
	status = StatusCode.NOT_FOUND
	details = "Attempted to reconnect a session that has already been cleaned up"
	debug_error_string = "UNKNOWN:Error received from peer"
>"""
CONNECTING: tuple[tuple[list[Exception], int, str | None, str], ...] = (
    # errors of the attempts,                       attempts, the reason that is reported, why
    ([],                                                   1, None, "the head answers"),
    ([ConnectionError("ray client connection timeout")],   1, "ray client connection timeout", "no head answers"),
    ([ConnectionAbortedError("Initialization failure")],   2, None, "the process of the session did not start"),
    ([ConnectionError(_LOST)],                             2, None, "the process of the session ended"),
    ([ConnectionError(_LOST)] * 3,                         3, "a session that has already been cleaned up", "each time"),
    ([RuntimeError("odd")] * 3,                            3, "odd", "Ray raises what it likes"),
)  # fmt: skip


@pytest.mark.parametrize(("errors", "attempts", "reason", "why"), CONNECTING, ids=[row[3] for row in CONNECTING])
def test_a_session_that_a_ray_cluster_loses_at_its_start_is_begun_again(
    monkeypatch: pytest.MonkeyPatch, errors: list[Exception], attempts: int, reason: str | None, why: str
) -> None:
    begun: list[str] = []

    def init(address: str, **_: object) -> None:
        begun.append(address)
        if len(begun) <= len(errors):
            raise errors[len(begun) - 1]

    monkeypatch.setenv("GRPC_ENABLE_FORK_SUPPORT", "0")
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=init, shutdown=lambda: None))
    monkeypatch.setattr(ray_engine, "_PAUSES", (0.0, 0.0))
    if reason is None:
        ray_engine._connected("ray://head:1")
    else:
        with pytest.raises(Stopped) as stopped:
            ray_engine._connected("ray://head:1")
        assert reason in stopped.value.problem.why
    assert len(begun) == attempts, why
