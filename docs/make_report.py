"""Draws `docs/images/audit-report.png`: the report of ten thousand made-up decisions, as Chromium shows it."""

import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


def main() -> None:
    from playwright.sync_api import sync_playwright

    from runner.audit.export.page import About, document
    from tests.support.sample_decisions import ordinary_decisions

    about = About(
        "ringfence 0.1.0",
        "2026-03-11T08:00:00Z",
        "/home/ann/.local/state/ringfence/audit.db",
        "19396:9f31c0ffee" + "2b" * 27,
    )
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        file = Path(folder) / "report.html"
        file.write_text(document(ordinary_decisions(10_000), about))
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.goto(file.as_uri())
        page.evaluate(
            "[...document.querySelectorAll('.row')].find((row) => row.innerText.includes('cdn.example')).click()"
        )
        page.evaluate("scrollTo(0, 0)")
        page.screenshot(path=ROOT / "docs" / "images" / "audit-report.png")


if __name__ == "__main__":
    main()
