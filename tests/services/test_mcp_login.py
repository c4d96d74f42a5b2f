"""Tests of `agent mcp login` and `logout` with a real Secret Service and an issuer on loopback."""

import asyncio
import http.client
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from tests.support.http_script import scripted_server
from tests.support.sandbox_bench import USERS
from tests.support.secret_service import KeyringHarness, harness
from tests.support.tool_issuer import Issuer

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

LISTED = """
import secretstorage
kept = secretstorage.get_default_collection(secretstorage.dbus_init())
print(sorted((each.get_attributes()['username'].partition(':')[0], each.get_secret().decode()) for each in
    kept.search_items({'service': 'ringfence'}) if not each.get_attributes()['username'].startswith('mcp-client')))
"""


@contextmanager
def served(issuer: Issuer) -> Iterator[None]:
    """Serve the issuer in a thread of its own."""
    loop = asyncio.new_event_loop()
    ready, ended = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with scripted_server(issuer.script) as server:
            issuer.url = server.url
            ready.set()
            await ended.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    ready.wait()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()


def browse(address: str) -> str:
    """Do what a browser does: get the address and follow its redirect. Return the page at the end."""
    for _ in range(2):
        parts = urlsplit(address)
        connection = http.client.HTTPConnection(parts.hostname, parts.port)
        connection.request("GET", f"{parts.path}?{parts.query}")
        answered = connection.getresponse()
        page = answered.read().decode()
        if "location" not in answered.headers:
            return page
        address = answered.headers["location"]
    raise AssertionError("too many redirects")


def login(place: KeyringHarness, *words: str) -> tuple[int, str]:
    """Run `agent mcp login`, act as the browser for the address that it shows, and return its code and output."""
    process = subprocess.Popen(
        [*place.command, "mcp", "login", "demo", "--no-browser", *words],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=place.environ, cwd=place.work, **place.who,
    )  # fmt: skip
    shown = ""
    for line in process.stdout:
        shown += line
        if line.startswith("http://"):
            assert "sign-in is complete" in browse(line.strip())
    return process.wait(), shown


@pytest.mark.threat("T191")
@pytest.mark.parametrize("user", USERS)
def test_a_login_stores_tokens_in_the_keyring_only_and_a_logout_removes_them(user: str) -> None:
    issuer = Issuer()
    with harness(user) as place, place.secret_service(), served(issuer):
        port = urlsplit(issuer.url).port
        place.configure(f'[mcp.demo]\nurl = "{issuer.url}/mcp"\nhosts = ["127.0.0.1:{port} private"]\n')
        code, shown = login(place, "--scope", "write")
        assert code == 0, shown
        assert (
            f"demo asks you to sign in at 127.0.0.1; open this address in your browser:\n{issuer.url}/authorize?"
            in shown
        )
        assert (
            f"signed in to demo at {issuer.url}/as, with the rights read write; the tokens are in the Secret Service"
            in shown
        )
        assert "canary" not in shown
        assert place.python(LISTED).strip() == str(
            [("mcp-access", "access-canary-1"), ("mcp-refresh", "refresh-canary-1")]
        )
        assert [path for path in place.files() if b"canary" in path.read_bytes()] == []
        done = place.agent("mcp", "logout", "demo")
        said = f"the tokens are removed: {issuer.url}/mcp\nthe issuer {issuer.url}/as revoked them\n"
        assert (done.returncode, done.stdout) == (0, said), done.stderr
        assert [each["token"] for each in issuer.revoked] == ["refresh-canary-1", "access-canary-1"]
        assert place.python(LISTED).strip() == "[]"
        assert place.agent("mcp", "logout", "demo").returncode == 1
        assert "no tokens of tool servers" in place.agent("mcp", "logout", "--all").stdout
