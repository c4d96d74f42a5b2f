"""The HTML export of a session in a real browser: hostile text has no effect, and the page fits a narrow window."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from runner.events import Notice
from runner.messages import AssistantMessage, TextBlock
from runner.sessions.export import as_html, reading
from runner.sessions.open import SessionTarget
from runner.sessions.store import SessionStore
from tests.support.report_browser import Watched, in_browser
from tests.support.session_files import ID, run_of, user

# Resolves after the next two frames and a timer between them: by then the page has handled the pointer, the end of its
# loading, and what it does at once after that.
DRAWN_TWICE = """new Promise((done) => requestAnimationFrame(() =>
  setTimeout(() => requestAnimationFrame(() => setTimeout(done)))))"""
EVIL = """# <script>document.title='PWNED'</script>

[x](javascript:document.title='PWNED') [y](data:text/html,x) ![z](http://127.0.0.1:9/z.png) <img src=x onerror=alert(1)>
<https://127.0.0.1:9/"onmouseover="alert(1)> [z]: http://127.0.0.1:9 "t"

<meta http-equiv=refresh content="0;url=http://127.0.0.1:9/"><base href=http://127.0.0.1:9/><iframe src=//127.0.0.1:9>

```html"><script>alert(1)</script>
<style>@import url(http://127.0.0.1:9/)</style>
```

| a | a longer cell that is long |
|---|---:|
| `x<b>` | """ + " ".join(["words"] * 60) + """ |

1. """ + "w" * 400 + """

[safe](https://docs.example/a)
"""  # fmt: skip


@in_browser
@pytest.mark.threat("T74")
@pytest.mark.parametrize("width", [420, 1280])
def test_nothing_that_a_model_wrote_does_anything(browser: Browser, tmp_path: Path, width: int) -> None:
    store = SessionStore.of(tmp_path, "/w")
    journal = SessionTarget(store).journal(run_of(store), None)
    journal.message(user(EVIL))
    journal.message(AssistantMessage((TextBlock(EVIL),)))
    journal.watch(lambda event: None)(Notice("see `agent <b>undo</b>`, not `<img src=x onerror=alert(1)>"))
    assert journal.close() is None
    file = tmp_path / "session.html"
    with reading(tmp_path, ID) as session:
        file.write_text("\n".join(as_html(session)), "utf-8")
    seen = Watched(browser.new_page(viewport={"width": width, "height": 900}), file)
    page = seen.page
    page.mouse.move(100, 400)
    page.evaluate(DRAWN_TWICE)
    assert seen.bad == []
    assert page.title() == f"Session {ID[:8]}"
    assert page.evaluate(
        "[document.scripts.length, document.images.length, document.querySelectorAll('iframe,base').length]"
    ) == [0, 0, 0]
    links = page.eval_on_selector_all("a", "all => all.map((a) => [a.protocol, a.getAttributeNames().sort().join()])")
    assert {tuple(link) for link in links} == {("https:", "href,rel")}
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "only a table may scroll, inside its box"
    assert page.locator(".answer h2").inner_text().startswith("<script>")
    assert page.locator(".answer td.right").count() == 1
    assert page.locator(".note code").all_inner_texts() == ["agent <b>undo</b>"], "backticks are code, without markup"
    assert page.locator("time").count() == 1, "a time is shown only when the minute changes"
