"""Servers that change their offer after the approval: real server, real sandbox, real pins."""

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.mcp.package_digest import package_of
from runner.mcp.pinned_offers import PinnedOffers
from runner.mcp.pins import PinStore, pin_of
from runner.mcp.server_config import ServerConfig
from runner.mcp.servers import ApprovedOffer, ServerState
from tests.support.server_session import HOSTILE, environ, hostile, server_session
from tests.support.waiting import until_async
from tools.server_offer import ServerOffer

PATIENCE = 60.0  # seconds, only to end a test that hangs
SEARCH = "/usr/local/bin:/usr/bin:/bin"


@pytest.fixture
def base() -> Iterator[Path]:
    found = Path(tempfile.mkdtemp(prefix="pinned-", dir="/var/tmp")).resolve()
    for name in ("home/work", "state", "signs"):
        (found / name).mkdir(parents=True, mode=0o700)
    yield found
    shutil.rmtree(found)


ROWS = [
    ("changing", "echo", "its definition changed", "1 changed (echo)", "another description under the same name"),
    ("renaming", "echo2", "under another name", "1 renamed, 1 removed (echo2, echo)", "another name"),
]


@pytest.mark.threat("T183")
@pytest.mark.threat("T185")
@pytest.mark.parametrize(("kind", "tool", "why", "told", "reason"), ROWS, ids=[row[-1] for row in ROWS])
def test_a_session_loses_exactly_what_changed(
    kind: str, tool: str, why: str, told: str, reason: str, base: Path
) -> None:
    sign, work, state = base / "signs" / "changed", base / "home/work", base / "state"
    config = hostile("one", kind, str(sign), read=(str(HOSTILE.parent), str(sign.parent)))

    async def session() -> None:
        check = PinnedOffers(state, str(work), SEARCH)
        async with server_session(work, environ(base), config, check=check) as found:
            assert found.shelf.names["one"] == [], "nothing is approved yet"
            assert any("run `agent mcp pin one`" in text for text in found.notices)
            assert (await found.call("one", "echo", text="x")).problem is not None
            offer = found.servers.offer("one")
            assert offer is not None
            PinStore(state, str(work)).keep(config, pin_of(config, offer, package_of(config, SEARCH)))
            await found.servers.recheck("one")
            assert (await found.call("one", "echo", text="x")).problem is None
            sign.touch()
            await found.servers.restart("one")
            assert set(found.shelf.names["one"]) == {"read", "connect", "slow", "ask"}
            refused = (await found.call("one", tool, text="x")).problem
            assert refused is not None
            assert why in refused.why
            assert any(told in text for text in found.notices), found.notices

    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE):
            await session()

    asyncio.run(bounded())


@pytest.mark.threat("T202")
def test_a_comparison_counts_only_for_the_process_that_it_was_about(base: Path) -> None:
    """Restart the server while its offer is compared in a thread: the old result is dropped, and a call waits."""
    work, entered, let_go = base / "home/work", threading.Event(), threading.Event()
    config = hostile("one", "plain")
    seen: list[str] = []

    def check(config: ServerConfig, offer: ServerOffer) -> ApprovedOffer:
        seen.append(threading.current_thread().name)
        if len(seen) == 2:
            entered.set()
            assert let_go.wait(PATIENCE)
            return ApprovedOffer(offer.tools, notice="approved too late")
        return ApprovedOffer(offer.tools[:1])

    async def session() -> None:
        async with asyncio.timeout(PATIENCE), server_session(work, environ(base), config, check=check) as found:
            assert found.shelf.names["one"] == ["echo"]
            again = asyncio.create_task(found.servers.recheck("one"))
            assert await asyncio.to_thread(entered.wait, PATIENCE)
            call = asyncio.create_task(found.call("one", "echo", text="x"))
            restart = asyncio.create_task(found.servers.restart("one"))
            await until_async(lambda: found.row("one").state is not ServerState.READY)
            let_go.set()
            await asyncio.gather(again, restart)
            assert found.shelf.names["one"] == ["echo"]
            assert "approved too late" not in found.notices
            await call  # in the old process or the new one, but not before the comparison
            assert (await found.call("one", "read", path="/etc/hostname")).problem is not None
        assert threading.current_thread().name not in seen, "the event loop reads no file of a package"

    asyncio.run(session())
