"""The client scenarios of the protocol's own conformance suite, with the transport and the sign-in of the product."""

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PEERS = ROOT / ".venv/peers/node_modules"
NODE, SUITE = PEERS / "node/bin/node", PEERS / "@modelcontextprotocol/conformance/dist/index.js"
AT_ONCE = 3  # scenarios that run at one time
OLDEST = 22  # version of Node

# Every client scenario of version 0.1.16 of the suite.
SCENARIOS = (
    "initialize",
    "tools_call",
    "elicitation-sep1034-client-defaults",
    "sse-retry",
    "auth/metadata-default",
    "auth/metadata-var1",
    "auth/metadata-var2",
    "auth/metadata-var3",
    "auth/basic-cimd",
    "auth/scope-from-www-authenticate",
    "auth/scope-from-scopes-supported",
    "auth/scope-omitted-when-undefined",
    "auth/scope-step-up",
    "auth/scope-retry-limit",
    "auth/token-endpoint-auth-basic",
    "auth/token-endpoint-auth-post",
    "auth/token-endpoint-auth-none",
    "auth/pre-registration",
    "auth/2025-03-26-oauth-metadata-backcompat",
    "auth/2025-03-26-oauth-endpoint-fallback",
    "auth/resource-mismatch",
    "auth/offline-access-scope",
    "auth/offline-access-not-supported",
    "auth/client-credentials-jwt",
    "auth/client-credentials-basic",
    "auth/cross-app-access-complete-flow",
)


def node() -> str:
    """Return a Node that the suite runs with, or skip the test."""
    for path in (str(NODE), shutil.which("node")):
        if path and os.access(path, os.X_OK):
            version = subprocess.run((path, "--version"), capture_output=True, text=True).stdout
            if int((re.findall(r"\d+", version) or ["0"])[0]) >= OLDEST:
                return path
    pytest.skip(f"Node {OLDEST} or newer is not installed in .venv/peers")


def run(program: str, folder: Path, scenario: str) -> str:
    """Run one scenario, and return `passed` or the end of what the suite printed."""
    client = f"{sys.executable} {Path(__file__).parent / 'conformance_client.py'}"
    words = (program, str(SUITE), "client", "--command", client, "--scenario", scenario, "--timeout", "500000")
    environ = {**os.environ, "PATH": f"{Path(program).parent}:{os.environ.get('PATH', '')}"}
    done = subprocess.run(words, cwd=folder, env=environ, capture_output=True, text=True)
    passed = done.returncode == 0 and re.search(r"Passed: ([1-9]\d*)/\1, 0 failed", done.stdout + done.stderr)
    return "passed" if passed else (done.stdout + done.stderr)[-1500:]


@pytest.mark.thorough
def test_every_client_scenario_passes(tmp_path: Path) -> None:
    if not SUITE.exists():
        pytest.skip("@modelcontextprotocol/conformance is not installed in .venv/peers")
    pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
    program = node()
    listed = subprocess.run((program, str(SUITE), "list"), capture_output=True, text=True).stdout
    known = re.findall(r"^  - (\S+)", listed.partition("Client scenarios")[2], re.MULTILINE)
    assert set(known) <= set(SCENARIOS), "a scenario of this version of the suite is not in the table"
    folders = [tmp_path / name.replace("/", "_") for name in SCENARIOS]
    for folder in folders:
        folder.mkdir()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = dict(
            zip(SCENARIOS, pool.map(lambda name, at: run(program, at, name), SCENARIOS, folders), strict=True)
        )
    for name, result in results.items():
        print(f"{name}: {'passed' if result == 'passed' else 'FAILED'}")
    failed = {name: result for name, result in results.items() if result != "passed"}
    assert not failed, failed
