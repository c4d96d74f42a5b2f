"""A scripted model starts, reads, waits for, feeds, signals and ends background processes, through the whole program.

The program runs as root and as another user, in the real sandbox.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import forked_agent
from tests.support.agent_program import AGENT
from tests.support.sandbox_bench import NOBODY, USERS

SECRET = "sk-proj-4f2a914f2a914f2a914f2a914f2a91"  # a text with the form of a key


def call(name: str, **arguments: object) -> dict[str, object]:
    return {"name": name, "arguments": arguments}


def start(command: str, **more: object) -> dict[str, object]:
    return call("bash", command=command, background=True, **more)


def read(process: str = "p1", pattern: str | None = None) -> dict[str, object]:
    """A read that waits for longer than any test may take."""
    return call("bash_output", id=process, wait=60, **({"pattern": pattern} if pattern else {}))


def write(text: str, process: str = "p1", **more: object) -> dict[str, object]:
    return call("bash_input", id=process, text=text, **more)


class Machine:
    """A home, a workspace and a state folder of one user.

    Attributes:
        events: The events of the last run.
    """

    def __init__(self, base: Path, user: str) -> None:
        self.base, self.work, self.state, self._user = base, base / "work", base / "state", user
        self.work.mkdir()
        self.events: list[dict[str, Any]] = []

    def play(
        self,
        *turns: list[dict[str, object]] | dict[str, object],
        mode: str = "trust-project",
        more: tuple[str, ...] = (),
    ) -> list[str]:
        """Let the model make the calls of each turn, and return the results for the model in their order."""
        lines = [{"calls": each if isinstance(each, list) else [each]} for each in turns]
        (self.base / "model.json").write_text(json.dumps({"turn": [*lines, {"text": "done"}]}))
        other = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if self._user == "nobody" else {}
        if other:
            for path in (self.base, *self.base.rglob("*")):
                os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
        done = forked_agent.run(
            [AGENT, "run", "--json", "--mode", mode, "--model", f"scripted:{self.base}/model.json", *more, "go"],
            env={"PATH": os.environ["PATH"], "HOME": str(self.base), "RINGFENCE_STATE_DIR": str(self.state)},
            cwd=self.work, capture_output=True, text=True, timeout=120, **other,
        )  # fmt: skip
        self.events = [json.loads(line) for line in done.stdout.splitlines()]
        assert self.of("run_ended"), done.stderr
        return [
            each.get("text") or f"{each['problem']['what']}: {each['problem']['why']}"
            for each in self.events
            if each["type"] in ("finished", "denied", "malformed_call")
        ]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [each for each in self.events if each["type"] == kind]


@pytest.fixture(params=USERS)
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    base = Path(tempfile.mkdtemp(dir="/var/tmp"))  # pytest's own folder is for one user
    base.chmod(0o755)
    try:
        yield Machine(base, request.param)
    finally:
        shutil.rmtree(base)


def test_a_process_is_started_read_fed_and_ended(machine: Machine) -> None:
    told = machine.play(
        start("echo ready; while read line; do echo got $line; done; echo end; sleep 600"),
        [read(pattern="ready"), write("one\ntwo\n"), read(pattern="two")],
        [write("", close=True), read(pattern="end"), call("bash_kill", id="p1")],
        [read(pattern="never"), write("late\n"), read("p7")],
    )
    assert told[0].startswith("[p1 runs in the background.")
    assert told[1].startswith("ready\n[p1 is running")
    assert told[2] == "[written to p1: 8 bytes]"
    assert told[3].startswith("got two\n[p1 is running"), "only the line that matches"
    assert told[4] == "[written to p1: 0 bytes, and its input is closed]"
    assert told[5].startswith("end\n[p1 is running")
    assert told[6].startswith("[TERM was sent to p1; p1 has ended with exit status 143")
    assert told[7].startswith("(no new line matches)\n[p1 has ended with exit status 143"), "it waits for nothing more"
    assert "the text was not written to p1" in told[8]
    assert told[9] == "there is no process `p7`: the processes of this session are `p1`"
    assert [(each["process"], each["terminal"]) for each in machine.of("process_started")] == [("p1", False)]
    assert [each["status"] for each in machine.of("process_ended")] == [143]


def test_a_program_in_a_terminal_is_seen_and_typed_into(machine: Machine) -> None:
    told = machine.play(
        start("stty size; printf 'name? '; read x; printf '\\033[2J\\033[Hhello %s' $x; sleep 600", pty=True),
        [read(pattern="name"), write("Ada\n"), read(pattern="hello Ada")],
        [write("\u0003"), read(pattern="never")],
        call("bash", command="test -t 1 && seq 50", pty=True, timeout=60),
    )
    assert "[screen]\n40 120\nname?\n[end of the screen; the cursor is at row 2, column 7]" in told[1]
    assert "[screen]\nhello Ada\n[end of the screen" in told[3]
    assert "[p1 has ended with exit status 130" in told[5], "Ctrl-C reaches the program"
    assert told[6].startswith("".join(f"{number}\n" for number in range(1, 51))), "what scrolled away, too"
    assert [each["process"] for each in machine.of("process_started")] == ["p1"]


@pytest.mark.threat("T137")
def test_the_record_has_the_start_and_the_end_of_each_process(machine: Machine) -> None:
    machine.play(
        # The wait for a pattern that never comes ends with the process: the signal would change how it ends.
        [start("sleep 600"), start("echo x; exit 3"), read("p2", "never"), call("bash_kill", id="p2", signal="KILL")]
    )
    from runner.audit.log import AuditLog

    with AuditLog.open_to_read(machine.state / "audit.db") as log:
        rows = sorted(log.rows(), key=lambda row: row.id)
        decided = [row for row in rows if row.kind == "decided"]
        begun = [(row.body["process"], row.body["decision"]) for row in rows if row.kind == "started"]
        assert begun == [("p1", decided[0].id), ("p2", decided[1].id)]
        ends = [log.outcome_of(row.id) for row in decided]
        assert all(end is not None for end in ends)
        first, second = (end.body for end in ends[:2] if end is not None)
        assert (first["ended_by"], second["status"], second["ended_by"]) == ("session", 3, None)
        assert second["bytes"] == {"stdin": 0, "stdout": 2, "stderr": 0}
        assert max(row.id for row in rows if row.kind == "finished") < next(
            row.id for row in rows if row.kind == "ended"
        )


@pytest.mark.threat("T135")
def test_output_is_masked_for_the_model_and_in_the_stored_file(machine: Machine) -> None:
    half = len(SECRET) // 2
    script = f"printf {SECRET[:half]}; sleep 0.2; echo {SECRET[half:]}; sleep 600"
    told = machine.play([start(script), read(pattern="secret")])
    assert told[1].startswith("[secret]\n[p1 is running")
    (kept,) = (machine.state / "outputs").rglob("*-p1.txt")
    assert kept.read_text() == "[secret]\n"
    assert oct(kept.stat().st_mode & 0o777) == "0o600"


@pytest.mark.threat("T136")
def test_input_is_judged_and_recorded(machine: Machine) -> None:
    """A process that only reads gets input in mode plan; one that may write does not."""
    told = machine.play(start("cat"), write("x\n"), read(pattern="x"), start("python3 -i"), mode="plan")
    assert told[1] == "[written to p1: 2 bytes]"
    assert told[2].startswith("x\n[p1 is running")
    assert "python3 -i" in told[3]
    (denied,) = machine.of("denied")
    assert denied["tier"] == "execute"


@pytest.mark.threat("T132")
def test_a_session_has_a_limit_of_processes(machine: Machine) -> None:
    told = machine.play([start("sleep 600") for _ in range(17)])
    assert sum(text.startswith("[p") for text in told) == 16
    assert "the process was not started" in told[16]
    assert {each["ended_by"] for each in machine.of("process_ended")} == {"session"}


@pytest.mark.parametrize("flag", ["--continue", "--fork"])
def test_a_later_run_knows_what_ended_with_the_earlier_one(machine: Machine, flag: str) -> None:
    machine.play([start("sleep 600"), start("cat")])
    (first,) = machine.state.rglob("sessions/*/*.jsonl")
    told = machine.play(start("cat"), more=("--continue",) if flag == "--continue" else ("--fork", first.stem))
    assert told[0].startswith("[p3 runs in the background.")
    newest = max(machine.state.rglob("sessions/*/*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
    (said,) = [line for line in newest.read_text().splitlines() if "ended with it" in line]
    assert r"their ids are not used again:\np1: $ sleep 600  [background]\np2: $ cat  [background] [end" in said


def test_what_a_process_changes_between_actions_is_a_step_of_its_own(machine: Machine) -> None:
    script = "read x; echo 1 > made; echo first; read x; echo 2 > more; echo second; sleep 600"
    machine.play(
        [start(script), write("go\n"), read(pattern="first"), call("bash", command="touch own; cat made")],
        [write("go\n"), read(pattern="second")],
    )
    from runner.changes.undo.store import Store

    (place,) = machine.state.glob("snapshots/*")
    store = Store(place)
    steps = {
        tuple(sorted(change.path for change in store.changes(each.id))): each.words.strip() for each in store.steps()
    }
    store.close()
    # The process may have made a file before the action that woke it had ended: then the file belongs to that action.
    assert steps.pop(("own",)) == "$ touch own; cat made"
    assert steps.keys() == {("made",), ("more",)}
    assert set(steps.values()) <= {"process p1", "write to p1: go"}
