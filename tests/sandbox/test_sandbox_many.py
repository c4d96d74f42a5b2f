"""Tests of many permits at once and a thousand in a row: nothing is mixed up, lost, or left behind."""

import asyncio
import os
import random
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from policy.model.action import ReadFile, RunArgv, RunScript
from policy.model.verdict import _MINT, Permit, Rights, Terms
from sandbox.linux.backend import Linux
from tests.support.waiting import until_async

SYSTEM = ("/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache")


@pytest.fixture
def terms(tmp_path: Path) -> Terms:
    workspace = tmp_path / "w"
    workspace.mkdir()
    (workspace / "file.txt").write_text("hello\n")
    return Terms(
        Rights.WORKSPACE_WRITE,
        str(workspace),
        "/nonexistent",
        system=SYSTEM,
        env=(("PATH", "/usr/bin:/bin"),),
    )


def left_behind() -> list[str]:
    listed = subprocess.run(
        ["ps", "-o", "pid=,args=", "--ppid", str(os.getpid())], capture_output=True, text=True, check=False
    )
    return [line for line in listed.stdout.splitlines() if "sandbox/inside/helper.py" in line]


@pytest.mark.threat("T15")
def test_concurrent_permits_keep_their_own_output(terms: Terms, tmp_path: Path) -> None:
    dice = random.Random(7)
    look = replace(terms, rights=Rights.READ_ONLY)

    async def one(backend: Linux, number: int) -> None:
        mine = terms if number % 2 else look
        chance = dice.random()
        if chance < 0.3:
            outcome = await backend.run(Permit(ReadFile(f"{terms.workspace}/file.txt"), mine, _MINT))
            assert outcome.problem is None
            assert "hello" in str(outcome.data)
        elif chance < 0.7:
            script = f"echo {number}; sleep 0.0{dice.randrange(9)}; echo {number} >&2"
            outcome = await backend.run(Permit(RunScript(script, terms.workspace), mine, _MINT))
            assert (outcome.stdout, outcome.stderr) == (f"{number}\n".encode(),) * 2
        elif chance < 0.8:
            short = replace(mine, limits=replace(mine.limits, wall=0.05))
            outcome = await backend.run(Permit(RunScript("sleep 5", terms.workspace), short, _MINT))
            assert outcome.ended_by == "wall"
        else:
            task = asyncio.create_task(backend.run(Permit(RunScript("sleep 5", terms.workspace), mine, _MINT)))
            await asyncio.sleep(0.03)
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled()

    async def main() -> None:
        backend = Linux("T1", cache=tmp_path)
        for _ in range(12):
            await asyncio.wait_for(asyncio.gather(*(one(backend, number) for number in range(9))), 60)
        await backend.close()

    asyncio.run(main())
    assert left_behind() == []


def state(backend: Linux) -> dict[str, object]:
    """All that could grow with every command: ours, the helper's, and the kernel's."""
    (slot,) = backend.pool.all
    inner = int(Path(f"/proc/{slot.process.pid}/task/{slot.process.pid}/children").read_text())
    assert backend.scratch is not None
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "helper": (slot.process.pid, inner),
        "its descriptors": len(os.listdir(f"/proc/{inner}/fd")) if os.geteuid() == 0 else 0,
        "its children": Path(f"/proc/{inner}/task/{inner}/children").read_text(),
        "its mounts": len(Path(f"/proc/{inner}/mountinfo").read_text().splitlines()) if os.geteuid() == 0 else 0,
        "mounts": [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if "ringfence" in line],
        "groups": sorted(path for _, path in slot.group._made),
        "scratch": os.listdir(backend.scratch.path),
        "gates": (len(backend.pool._gates), len(backend.pool._users)),
    }


async def rested(backend: Linux) -> dict[str, object]:
    """Return `state(backend)` once the helper waits for a request.

    The helper answers before it closes the descriptors with which it watched the command.
    """
    (slot,) = backend.pool.all
    inner = Path(f"/proc/{slot.process.pid}/task/{slot.process.pid}/children").read_text().strip()
    stat = Path(f"/proc/{inner}/stat")
    await until_async(
        lambda: stat.read_text().rpartition(")")[2].split()[0] == "S", of=slot.process, what="the rest of the helper"
    )
    return state(backend)


def resident(backend: Linux) -> int:
    """Bytes of this process and of the helper that serves."""
    (slot,) = backend.pool.all
    inner = Path(f"/proc/{slot.process.pid}/task/{slot.process.pid}/children").read_text().strip()
    return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in ("self", inner)) * 4096


@pytest.mark.thorough
def test_a_thousand_in_a_row_grow_nothing(terms: Terms, tmp_path: Path) -> None:
    async def main() -> None:
        backend = Linux("T1", cache=tmp_path, files=False)
        true = Permit(RunArgv(("/bin/true",), terms.workspace), terms, _MINT)
        fails = Permit(RunArgv(("/bin/false",), terms.workspace), terms, _MINT)
        leaves = Permit(RunScript("sleep 99 & (sleep 98 &); echo x", terms.workspace), terms, _MINT)
        for number in range(60):
            await backend.run((true, fails, leaves)[number % 3])
        before, size = await rested(backend), resident(backend)
        for number in range(1000):
            if number % 20:
                assert (await backend.run(true)).status == 0
            else:
                assert (await backend.run(fails)).status == 1
                assert (await backend.run(leaves)).stdout == b"x\n"
        assert await rested(backend) == before
        assert resident(backend) - size < 2 << 20, "less than 2 kB a command"
        scratch, groups = backend.scratch, [path for (slot,) in [backend.pool.all] for _, path in slot.group._made]
        assert scratch is not None
        await backend.close()
        assert not os.path.exists(scratch.path)
        assert [path for path in groups if os.path.exists(path)] == []

    asyncio.run(main())
    assert left_behind() == []


@pytest.mark.threat("T29")
def test_nothing_but_a_permit_is_run(terms: Terms, tmp_path: Path) -> None:
    backend = Linux("T1", cache=tmp_path)
    with pytest.raises(TypeError, match="Permits"):
        asyncio.run(backend.run("rm -rf /"))  # type: ignore[arg-type]  # what must not work


@pytest.mark.parametrize("script", ["echo now", "sleep 0.1; echo later"])
def test_a_listener_that_fails_is_told_so_and_leaves_nothing_running(terms: Terms, tmp_path: Path, script: str) -> None:
    def listen(stream: int, chunk: bytes) -> None:
        raise OSError(28, "No space left on device")

    async def main() -> None:
        backend = Linux("T1", cache=tmp_path)
        with pytest.raises(OSError, match="No space left"):
            await backend.run(Permit(RunScript(script, terms.workspace), terms, _MINT), listen=listen)
        assert (await backend.run(Permit(RunScript("echo on", terms.workspace), terms, _MINT))).stdout == b"on\n"
        await backend.close()

    asyncio.run(main())
    assert left_behind() == []


def test_the_folder_for_temporary_files_can_be_a_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    here = Terms(
        Rights.WORKSPACE_WRITE,
        str(tmp_path),
        "/nonexistent",
        system=SYSTEM,
        env=(("PATH", "/usr/bin:/bin"),),
    )

    async def main() -> None:
        backend = Linux("T1", cache=tmp_path)
        outcome = await backend.run(Permit(RunScript("echo made > new", str(tmp_path)), here, _MINT))
        assert (outcome.status, outcome.enforcement and outcome.enforcement.level.value) == (0, "FULL")
        await backend.close()

    asyncio.run(main())
    assert (tmp_path / "new").read_text() == "made\n"
