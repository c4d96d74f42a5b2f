"""Real tool servers from the registries, each in its sandbox (`make peers` installs them)."""

import asyncio
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from policy.model.profile import Layer
from runner.mcp.server_config import ServerConfig
from runner.mcp.servers import ServerState
from tests.support.places import ROOT
from tests.support.server_session import environ, server_session

NODE = ROOT / ".venv/peers/node_modules/.bin"
PYTHON = ROOT / ".venv/peers/python/bin"


@pytest.fixture
def place() -> Iterator[Path]:
    base = Path(tempfile.mkdtemp(prefix="real-servers-", dir="/var/tmp")).resolve()
    work = base / "home/work"
    work.mkdir(parents=True)
    (base / "home/.ssh").mkdir()
    (base / "home/.ssh/id_rsa").write_text("walnut")
    (work / "notes.txt").write_text("noon")
    subprocess.run(("git", "init", "-q", str(work)), check=True)
    (work / ".env").write_text("WORD=walnut")
    yield base
    shutil.rmtree(base)


def server(name: str, program: Path, *args: str, **rights: Any) -> ServerConfig:
    if not program.exists():
        pytest.skip(f"`{program.name}` is not installed (make peers)")
    return ServerConfig(name, Layer.USER, "config.toml:1", str(program), args, timeout=500.0, **rights)


def text_of(outcome: Any) -> str:
    assert outcome.problem is None, outcome.problem
    return "".join(str(block.get("text", "")) for block in outcome.data["content"])


def use(place: Path, config: ServerConfig, work: Any) -> None:
    async def bounded() -> None:
        async with server_session(place / "home/work", environ(place), config) as session:
            await work(session)

    asyncio.run(bounded())


@pytest.mark.thorough
@pytest.mark.threat("T179")
def test_the_file_server_changes_its_folder_and_neither_secrets_nor_hooks(place: Path) -> None:
    work = place / "home/work"

    async def calls(session: Any) -> None:
        assert "notes.txt" in text_of(await session.call("files", "list_directory", path=str(work)))
        await session.call("files", "write_file", path=str(work / "new.txt"), content="new")
        for path in (work / ".env", place / "home/.ssh/id_rsa"):
            assert "walnut" not in text_of(await session.call("files", "read_text_file", path=str(path)))
        hook = await session.call("files", "write_file", path=str(work / ".git/hooks/pre-commit"), content="x")
        assert hook.data["failed"] is True

    use(place, server("files", NODE / "mcp-server-filesystem", str(work), read=(str(work),), write=(str(work),)), calls)
    assert (work / "new.txt").read_text() == "new"
    assert not (work / ".git/hooks/pre-commit").exists()


@pytest.mark.thorough
@pytest.mark.threat("T179")
def test_the_file_server_without_a_right_is_told_what_it_needs(place: Path) -> None:
    async def calls(session: Any) -> None:
        row = session.row("files")
        assert row.state is ServerState.FAILED
        assert row.wants == (f"--read {place / 'home/work'}",)

    use(place, server("files", NODE / "mcp-server-filesystem", str(place / "home/work")), calls)


@pytest.mark.thorough
@pytest.mark.threat("T179")
def test_a_read_only_hint_does_not_show_the_environment_of_the_user(place: Path) -> None:
    async def calls(session: Any) -> None:
        offer = session.servers.offer("everything")
        (tool,) = [each for each in offer.tools if each.name == "get-env"]
        assert tool.annotations["readOnlyHint"] is True
        shown = text_of(await session.call("everything", "get-env"))
        assert "PATH" in json.loads(shown)
        assert "walnut" not in shown
        assert "hi" in text_of(await session.call("everything", "echo", message="hi"))

    use(place, server("everything", NODE / "mcp-server-everything", "stdio"), calls)


@pytest.mark.thorough
def test_the_memory_server_keeps_its_file_in_a_folder_that_it_may_change(place: Path) -> None:
    notes = place / "notes"
    notes.mkdir()

    async def calls(session: Any) -> None:
        entity = {"name": "ann", "entityType": "person", "observations": ["likes tea"]}
        await session.call("memory", "create_entities", entities=[entity])
        assert "likes tea" in text_of(await session.call("memory", "read_graph"))

    env = (("MEMORY_FILE_PATH", str(notes / "memory.jsonl")),)
    use(place, server("memory", NODE / "mcp-server-memory", write=(str(notes),), env=env), calls)
    assert "likes tea" in (notes / "memory.jsonl").read_text()


@pytest.mark.thorough
def test_the_git_server_reads_the_repository(place: Path) -> None:
    work = place / "home/work"

    async def calls(session: Any) -> None:
        assert session.row("git").protocol == "2026-07-28"
        assert "notes.txt" in text_of(await session.call("git", "git_status", repo_path=str(work)))

    use(place, server("git", PYTHON / "mcp-server-git", read=(str(work),)), calls)


@pytest.mark.thorough
def test_the_time_server_needs_no_right(place: Path) -> None:
    async def calls(session: Any) -> None:
        assert "UTC" in text_of(await session.call("time", "get_current_time", timezone="UTC"))

    use(place, server("time", PYTHON / "mcp-server-time"), calls)


@pytest.mark.thorough
def test_the_fetch_server_reaches_no_host_without_a_right(place: Path) -> None:
    async def calls(session: Any) -> None:
        outcome = await session.call("fetch", "fetch", url="https://example.org/")
        assert outcome.data["failed"] is True

    use(place, server("fetch", PYTHON / "mcp-server-fetch"), calls)


@pytest.mark.thorough
def test_a_server_that_dies_at_its_start_is_told_with_its_last_words(place: Path) -> None:
    async def calls(session: Any) -> None:
        row = session.row("sqlite")
        assert row.state is ServerState.FAILED
        assert "ended with status" in row.error
        assert "Error" in row.error

    path = str(place / "home/work/data.db")
    use(place, server("sqlite", PYTHON / "mcp-server-sqlite", "--db-path", path), calls)
