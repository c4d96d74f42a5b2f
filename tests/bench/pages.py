"""`make bench`: the time from a fetch of a page of 1 MB to its Markdown, with the confined conversion."""

import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path

from policy.model.action import FetchAddress
from policy.model.verdict import Allow
from runner.agent.open_session import SessionOptions, open_session
from runner.approval.approver import Unattended
from runner.config import load
from runner.engine.judge import evaluate_action
from runner.providers import OpenModel
from runner.providers.scripted import ScriptedProvider
from runner.web.session_web import SessionWeb
from tests.support.http_script import answer, scripted_server

RUNS = 9
SECTION = (
    '<section><h2 id="s{0}">Section {0}</h2><p>Some <b>text</b> with <a href="/pages/{0}">a link</a> and more words to '
    "read, as pages of a manual have them, in several sentences of ordinary length.</p><ul><li>one<li>two</ul></section>"
)
PAGE = f"<!doctype html><title>Manual</title><body>{''.join(map(SECTION.format, range(4340)))}</body>".encode()


async def measure(place: Path) -> float:
    """Return the median of the seconds of one fetch."""
    work, spent = place / "w", []
    work.mkdir()

    async def script(_) -> bytes:
        return answer(200, PAGE, "text/html; charset=utf-8")

    async with scripted_server(script) as server:
        config = place / "config.toml"
        config.write_text(f'[[rule]]\nverdict = "allow"\nhost = ["127.0.0.1:{server.port} private"]\n')
        environ = {"HOME": str(place), "PATH": os.environ["PATH"]}
        settings = load(work, environ, config=config)
        options, model = SessionOptions(work, True, web=True), OpenModel(ScriptedProvider(()), "none")
        async with open_session(
            options, settings, environ, model=model, approver=Unattended(lambda event: None), emit=lambda event: None
        ) as ctx:
            for number in range(RUNS):
                verdict = evaluate_action(FetchAddress(f"{server.url}/{number}"), ctx).verdict
                assert isinstance(verdict, Allow)
                assert isinstance(ctx.web, SessionWeb)
                began = time.perf_counter()
                outcome = await ctx.web.perform(verdict.permit, ctx.sandbox)
                spent.append(time.perf_counter() - began)
                assert outcome.problem is None, outcome.problem
    return statistics.median(spent)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="bench-pages-", dir="/var/tmp") as folder:
        print(f"pages: fetched from loopback and converted in the sandbox ({len(PAGE) / 1e6:.2f} MB of HTML)")
        value = f"{asyncio.run(measure(Path(os.path.realpath(folder)))):.2f} s"
        print(f"  {'a page of 1 MB as Markdown':<58} {value:>18}   goal 0.5 s")


if __name__ == "__main__":
    main()
