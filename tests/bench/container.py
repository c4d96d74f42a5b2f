"""Benchmark of a command in a container against `docker exec` of the same daemon and image, in one run.

`make bench` runs it where a daemon can be started. To run it alone: `python tests/bench/container.py`.
"""

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from policy.model.action import RunArgv
from policy.model.verdict import _MINT, Permit, Rights, Terms
from sandbox.backend import ContainerOptions
from sandbox.container.backend import Container
from tests.support.container_bench import Dock, dock

ROUNDS = 40
Work = Callable[[], Awaitable[object]]


async def measured(given: Dock, folder: str) -> dict[str, float]:
    """Medians in milliseconds, interleaved so that noise hits all of them alike."""
    cli = ("docker", "-H", f"unix://{given.socket}")
    plain = given.ask("create_container_from_config", {"Image": given.image, "Entrypoint": ["/bin/sleep", "9999"], "HostConfig": {"NetworkMode": "none", "Init": True}})["Id"]  # fmt: skip
    given.ask("start", plain)
    backend = Container(ContainerOptions(given.image, "", given.socket))
    permits = {
        rights: Permit(RunArgv(("/bin/true",), folder), Terms(rights, folder, "/nonexistent", env=()), _MINT)
        for rights in Rights
    }

    async def exec_(*words: str) -> None:
        process = await asyncio.create_subprocess_exec(
            *cli, *words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        assert await process.wait() == 0

    works: dict[str, Work] = {
        "docker exec": lambda: exec_("exec", plain, "/bin/true"),
        "docker run": lambda: exec_("run", "--rm", "--network=none", "--entrypoint=/bin/true", given.image),
        **{
            f"container {rights.value}": lambda permit=permit: backend.run(permit) for rights, permit in permits.items()
        },
    }
    spent: dict[str, list[float]] = {name: [] for name in works}
    try:
        for name, work in works.items():
            started = time.perf_counter()
            await work()
            spent[f"{name}, the first"] = [time.perf_counter() - started]
        for turn in range(ROUNDS):
            for name, work in works.items():
                if name == "docker run" and turn % 8:
                    continue
                started = time.perf_counter()
                await work()
                spent[name].append(time.perf_counter() - started)
    finally:
        await backend.close()
        given.ask("remove_container", plain, force=True)
    return {name: statistics.median(times) * 1000 for name, times in spent.items()}


def main() -> None:
    try:
        with dock() as given, tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            found = asyncio.run(measured(given, os.path.realpath(folder)))
    except (pytest.skip.Exception, pytest.fail.Exception) as error:
        print(f"containers: not measured: {error}")
        return
    bare = found["docker exec"]
    print(f"containers (docker exec: {bare:.0f} ms; docker run: {found['docker run']:.0f} ms)")
    for rights in Rights:
        ours = found[f"container {rights.value}"]
        first = found[f"container {rights.value}, the first"]
        print(f"  {f'a command under `{rights.value}`, docker exec is 1':<58} {ours / bare:>17.2f}x   goal <= 1.2x")
        print(f"  {'its container, made and proven':<58} {first:>15.0f} ms")


if __name__ == "__main__":
    main()
