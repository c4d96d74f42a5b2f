"""Tests of named hosts in a container: those of the other sandboxes, where the network of a container may be entered."""

import asyncio
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Tests of `test_egress_sandbox`, collected again here with the `bench` below.
from tests.sandbox.test_egress_sandbox import (  # noqa: F401  # pytest finds them in this module
    test_a_command_reaches_the_host_that_it_was_given,
    test_nothing_else_is_reached,
    test_what_a_command_that_is_ended_did_is_known,
    test_without_a_host_there_is_no_proxy,
)
from tests.support.container_bench import Containers, Dock
from tests.support.egress_network import Server, certificate, serving

pytestmark = pytest.mark.thorough  # another backend than the default one


def test_a_container_is_lent_a_credential(bench: Containers, tmp_path: Path) -> None:
    """The proxy forwards a plain request of a command in a container over TLS, with the credential in the header."""
    pem = certificate(tmp_path / "server.key", "forge.test")
    authority = bench.base / "authority.crt"
    authority.write_text("-----BEGIN CERT" + pem.read_text().partition("-----BEGIN CERT")[2])

    async def scene() -> tuple[dict[str, Any], Server]:
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        async with serving(answer, address="127.0.0.3", tls=pem) as server:
            row = f'[[credential]]\nname = "forge"\nhosts = ["forge.test:{server.port}"]\nbasic = "me"\nenv = "A_TOKEN"'
            told = {"rows": row, "environ": {"A_TOKEN": "canary-7c1f9e-token"}, "trust": str(authority)}
            return await asyncio.to_thread(
                bench.run,
                f"curl -sS http://forge.test:{server.port}/x; env",
                hosts=[f"forge.test:{server.port} private"],
                names={"forge.test": ["127.0.0.3"]},
                credentials=["forge"],
                lend=told,
            ), server

    answer, server = asyncio.run(scene())
    assert answer["out"].startswith("ok"), answer
    assert b"Authorization: Basic bWU6Y2FuYXJ5LTdjMWY5ZS10b2tlbg==" in server.heard[0]
    assert "canary" not in answer["out"] + answer["err"]
    assert [made[-1] for made in answer["connections"]] == ["forge"]


@pytest.fixture(scope="module")
def bench(docked: Dock) -> Iterator[Containers]:
    if os.geteuid() != 0:
        pytest.skip("only root may enter the network of a container; test_container shows that others open none")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        made = Containers("root", Path(folder), docked)
        try:
            yield made
        finally:
            made.close()
