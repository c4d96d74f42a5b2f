"""Standard input that is passed on to a confined command as it arrives."""

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from policy.model.action import RunScript
from policy.model.verdict import _MINT, Permit, Rights, Terms
from sandbox.backend import Outcome
from sandbox.linux.backend import Linux
from tests.support.sandbox_bench import SYSTEM


def run(tmp_path: Path, script: str, source: int, listen: object = None) -> Outcome:
    """Run `script` in T1 with the descriptor `source` as its standard input."""
    env = (("HOME", "/nonexistent-home"), ("PATH", "/usr/bin:/bin"))
    terms = Terms(Rights.WORKSPACE_WRITE, str(tmp_path), "/nonexistent-home", system=tuple(SYSTEM), env=env)

    async def once() -> Outcome:
        backend = Linux("T1", files=False)
        try:
            permit = Permit(RunScript(script, str(tmp_path)), terms, _MINT)
            return await backend.run(permit, stdin=source, listen=listen)  # type: ignore[arg-type]  # None or a listener
        finally:
            await backend.close()

    return asyncio.run(once())


def test_an_answer_arrives_before_the_next_question(tmp_path: Path) -> None:
    source, writer = os.pipe()
    answers: list[bytes] = []

    def listen(_stream: int, chunk: bytes) -> None:
        answers.append(chunk)
        if len(answers) < 3:
            os.write(writer, b"%d\n" % len(answers))
        elif len(answers) == 3:
            os.close(writer)

    os.write(writer, b"0\n")
    outcome = run(tmp_path, "while read line; do echo $((line + 1)); done; echo end", source, listen)
    os.close(source)
    assert outcome.stdout == b"1\n2\n3\nend\n"


def test_all_of_a_large_input_arrives(tmp_path: Path) -> None:
    file = tmp_path / "data"
    data = os.urandom(3_000_001)
    file.write_bytes(data)
    with file.open("rb") as source:
        outcome = run(tmp_path, "cmp - data && echo same", source.fileno())
    assert outcome.stdout == b"same\n", outcome


def test_a_command_that_reads_nothing_ends_at_once(tmp_path: Path) -> None:
    source, writer = os.pipe()
    assert run(tmp_path, "echo done", source).stdout == b"done\n"
    os.close(writer)
    os.close(source)


def test_a_writer_without_reader_is_told(tmp_path: Path) -> None:
    source, writer = os.pipe()
    stopped = threading.Event()

    def write() -> None:
        try:
            while True:
                os.write(writer, bytes(1 << 16))
        except BrokenPipeError:
            stopped.set()

    thread = threading.Thread(target=write)
    thread.start()
    assert run(tmp_path, "head -c 100000 | wc -c", source).stdout == b"100000\n"
    os.close(source)  # the last reader, as at the end of this program
    thread.join(30)
    os.close(writer)
    assert stopped.is_set()


@pytest.mark.threat("T125")
def test_a_command_cannot_write_into_the_pipe_of_its_input(tmp_path: Path) -> None:
    source, writer = os.pipe()
    os.write(writer, b"first\n")
    script = "read line; echo $line; echo injected > /proc/self/fd/0; :"
    assert run(tmp_path, script, source).stdout == b"first\n"
    os.write(writer, b"second\n")
    os.close(writer)
    assert os.read(source, 100) == b"second\n"
    os.close(source)


@pytest.mark.threat("T125")
def test_a_command_cannot_write_to_the_file_of_its_input(tmp_path: Path) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.write_text("kept\n")
    with outside.open("r+b") as source:
        run(tmp_path, "echo changed >&0; echo changed > /proc/self/fd/0", source.fileno())
    assert outside.read_text() == "kept\n"


def test_the_flags_of_the_descriptor_stay(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(0.1); print('x')"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        run(tmp_path, "cat", process.stdout.fileno())
        assert os.get_blocking(process.stdout.fileno())
