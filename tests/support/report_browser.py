"""The HTML report, opened in Chromium."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from runner.audit.decisions import DecisionTrail
from runner.audit.export.page import About, document

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


LONGEST = 500_000  # milliseconds, only to end a wait for something that never happens
ABOUT = About("ringfence 0.1.0", "2026-03-11T08:00:00Z", "/log/audit.db", sealed="13:" + "ab" * 32)


expect.set_options(timeout=LONGEST)

in_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed here")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    arguments = ["--no-sandbox"]  # root has none, nor has a container; the pages are ours
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=arguments, timeout=LONGEST)
        yield browser
        browser.close()


class Watched:
    """A page, with everything that it must not do: ask for an address, complain, open a dialog or a window."""

    def __init__(self, page: Page, file: Path) -> None:
        self.page, self.bad = page, list[str]()
        address = file.as_uri()
        page.set_default_timeout(LONGEST)
        page.on("request", lambda it: None if it.url.partition("#")[0] == address else self.bad.append(it.url))
        page.on("console", lambda it: self.bad.append(f"{it.type}: {it.text}"))
        page.on("pageerror", lambda it: self.bad.append(str(it)))
        page.on("dialog", lambda it: (self.bad.append(it.message), it.dismiss()))
        page.on("popup", lambda it: self.bad.append(it.url))
        page.on("framenavigated", lambda it: None if it.url.partition("#")[0] == address else self.bad.append(it.url))
        page.goto(address)

    def found(self) -> int:
        return int(self.page.inner_text("#found strong").replace(",", ""))

    def ids(self) -> list[int]:
        return [int(each) for each in self.page.eval_on_selector_all(".row", "rows => rows.map((r) => r.dataset.id)")]

    def bars(self, where: str) -> dict[str, list[int]]:
        code = "bars => bars.map((b) => [b.dataset.name || b.dataset.time, b.dataset.denied, b.dataset.asked, b.dataset.allowed])"
        return {
            name: [int(each) for each in sums]
            for name, *sums in self.page.eval_on_selector_all(f"{where} [data-denied]", code)
        }

    def hidden(self, name: str) -> str:
        return str(self.page.get_attribute(name, "aria-hidden"))


def opened(
    browser: Browser, folder: Path, deeds: list[DecisionTrail], about: About = ABOUT, **options: object
) -> Watched:
    file = folder / "report.html"
    file.write_text(document(deeds, about), "ascii")
    return Watched(browser.new_page(viewport={"width": 1500, "height": 1000}, **options), file)  # type: ignore[arg-type]  # playwright's own
