"""Servers that change their offer after the approval: real server, real sandbox, real pins."""

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.mcp.package_digest import package_of
from runner.mcp.pinned_offers import PinnedOffers
from runner.mcp.pins import PinStore, pin_of
from tests.support.server_session import HOSTILE, hostile, server_session

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
    environ = {
        "HOME": str(base / "home"),
        "PATH": SEARCH,
        "RINGFENCE_STATE_DIR": str(state),
        "RINGFENCE_CONFIG_DIR": str(base / "config"),
        "RINGFENCE_CACHE_DIR": str(base / "cache"),
    }

    async def session() -> None:
        check = PinnedOffers(state, str(work), SEARCH)
        async with server_session(work, environ, config, check=check) as found:
            assert found.shelf.names["one"] == [], "nothing is approved yet"
            assert any("run `agent mcp pin one`" in text for text in found.notices)
            assert (await found.call("one", "echo", text="x")).problem is not None
            offer = found.servers.offer("one")
            assert offer is not None
            PinStore(state, str(work)).keep(config, pin_of(config, offer, package_of(config, SEARCH)))
            found.servers.recheck("one")
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
