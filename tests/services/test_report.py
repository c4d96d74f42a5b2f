"""Tests of the HTML report in a real browser: filters, counts, use without a mouse, and hostile records."""

import base64
import hashlib
import json
import os
import re
from importlib.resources import files
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from policy.model.action import RunScript
from policy.model.assessment import Effect, EffectKind
from policy.model.tier import Tier
from policy.model.verdict import Problem
from runner.audit.export.page import About, document
from runner.audit.log import AuditLog
from runner.audit.verify import verify
from tests.support import forked_agent
from tests.support.agent_program import AGENT
from tests.support.audit_records import fill
from tests.support.report_browser import ABOUT, Watched, in_browser, opened
from tests.support.sample_decisions import HOSTILE, SampleLog, hostile_log, ordinary_decisions, reason, sample_log


def test_the_page_asks_for_nothing_and_runs_its_own_script_only() -> None:
    text = document([], ABOUT)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    for name, held in (("script-src", script), ("style-src", style)):
        assert rules[name] == f"'sha256-{base64.b64encode(hashlib.sha256(held.encode()).digest()).decode()}'"
    assert {"base-uri", "form-action", "require-trusted-types-for", "trusted-types"} <= set(rules)
    assert not re.search(
        r"(src|href)=|url\(|@import|//(?!www\.w3\.org/2000/svg)[a-z]+\.",
        text.replace('href="#list"', "").replace("// ", ""),
    )
    for sink in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "fetch(", "XMLHttp", "import("):
        assert sink not in script, sink


@in_browser
@pytest.mark.parametrize("width", [420, 1280])
def test_every_text_has_room(browser: Browser, tmp_path: Path, width: int) -> None:
    """Nothing runs out of its box, and the button that clears the filters is in a row with others."""
    page = opened(browser, tmp_path, sample_log().deeds).page
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"{page.url.partition('#')[0]}#id=9")
    page.reload()
    page.evaluate("document.body.classList.add('reading')")
    box = page.locator("#clear").bounding_box()
    order = page.locator("#f-order").bounding_box()
    assert box is not None
    assert order is not None
    assert abs(box["y"] - order["y"]) < 2
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    out = page.evaluate("""() => [...document.querySelectorAll(".key span, .script .caret, .plots svg, .toggle")].filter((each) => {
        const inner = each.getBoundingClientRect(), outer = each.closest(".card, .script, form").getBoundingClientRect();
        return inner.right > outer.right + 1 || inner.left < outer.left - 1;
    }).map((each) => each.outerHTML.slice(0, 80))""")
    assert out == []
    assert page.evaluate(
        "[...document.querySelectorAll('.key span')].every((each) => each.getClientRects().length === 1)"
    )
    cut = page.evaluate("""() => { const pen = document.createElement("canvas").getContext("2d");
        return [...document.querySelectorAll("#filters input, #filters select")].filter((each) => {
            pen.font = getComputedStyle(each).font;
            const said = each.placeholder || each.selectedOptions[0].text, inside = each.clientWidth - (each.placeholder ? 12 : 26);
            return pen.measureText(said).width > inside;
        }).map((each) => each.id); }""")
    assert cut == []
    # The longest target beside the shortest words: a word such as `workspace` is not broken inside.
    assert page.evaluate("""() => { const table = document.querySelector("#detail table.effects");
        const row = table.tBodies[0].rows[0], range = document.createRange();
        row.cells[1].textContent = "/long".repeat(60);
        return [["writes", 0], ["workspace", 2]].map(([word, cell]) => {
            row.cells[cell].textContent = word;
            range.selectNodeContents(row.cells[cell]);
            return range.getClientRects().length;
        }); }""") == [1, 1]
    assert page.inner_text("#detail h2") == "sh runs what was just downloaded", "backticks are code"
    assert page.inner_text("#detail h2 code") == "sh"


@in_browser
def test_a_single_further_bar_is_shown_instead_of_a_line_about_it(browser: Browser, tmp_path: Path) -> None:
    for count, shown, more in ((9, 9, ""), (10, 8, "and 2 others; the filter below has all of them")):
        log = SampleLog()
        log.session("aaaa000011112222")
        for number in range(count):
            told = (reason(Tier.NETWORK, "connects", "command:network", 31),)
            effects = (Effect(EffectKind.CONNECTS, f"h{number}.example:443"),)
            log.decided("aaaa000011112222", RunScript("curl", "/w"), told, effects)
        page = opened(browser, tmp_path, log.deeds).page
        assert page.locator("#plot-hosts .bar").count() == shown
        assert page.locator("#plot-hosts .none").all_inner_texts() == ([more] if more else [])


def test_the_page_is_shipped() -> None:
    """`test_wheel` finds every file of the packages in the wheel."""
    folder = files("runner.audit.export").joinpath("report")
    assert sorted(each.name for each in folder.iterdir() if each.name.startswith("report.")) == [
        "report.css",
        "report.html",
        "report.js",
    ]


@pytest.mark.threat("T88")
def test_no_character_of_the_file_itself_is_a_models() -> None:
    """Without a browser: between the marks of the data is ASCII JSON in which no markup can begin."""
    text = document(hostile_log().deeds, ABOUT)
    assert text.isascii() or not re.search(
        r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069]", text
    )
    (data,) = re.findall(r'id="data">(.*?)</script>', text, re.DOTALL)
    assert not set("<>&") & set(data)
    assert json.loads(data)["rows"]
    assert text.count("</script>") == 2


@in_browser
@pytest.mark.threat("T88")
def test_nothing_that_a_model_wrote_does_anything(browser: Browser, tmp_path: Path) -> None:
    seen = opened(browser, tmp_path, hostile_log().deeds)
    page = seen.page
    marks = page.evaluate(
        "[document.scripts.length, document.images.length, document.querySelectorAll('a, iframe, object, embed, link, base').length]"
    )
    assert marks == [2, 0, 1], "the page's own two scripts, and its own link"
    assert seen.found() == 3 * len(HOSTILE)
    told = page.evaluate("""() => [...document.querySelectorAll(".row")].map((row) => {
        row.click();
        for (const reason of document.querySelectorAll("#detail button.reason")) reason.click();
        return document.getElementById("detail").innerText;
    }).join("\\n")""")
    for name in ("#f-host", "#f-tool", "#f-rule", "#f-session"):
        page.select_option(name, index=3)
        page.select_option(name, index=0)
    page.fill("#f-text", HOSTILE[2])
    expect(page.locator("#found strong")).to_have_text("3")
    assert page.title() == "Audit report - ringfence"
    assert page.evaluate("[document.scripts.length, document.images.length]") == [2, 0]
    for text in HOSTILE:
        if text.isascii() and text.isprintable():
            assert text.strip() in told, text
    shown = page.evaluate("document.body.innerText")
    for text in (shown, told):
        odd = re.findall(
            r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u202a-\u202e\u2028\u2029\u2060-\u206f\ufeff]",
            text,
        )
        assert odd == []
    assert "U+202E" in told
    assert "\\x1b" in told
    assert seen.bad == []
    page.close()


@pytest.fixture(scope="module")
def shared(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Watched:
    """A page that all rows of a table share; each of them reads it again."""
    return opened(browser, tmp_path_factory.mktemp("shared"), sample_log().deeds)


@in_browser
@pytest.mark.threat("T88")
@pytest.mark.parametrize("text", HOSTILE[:8])
def test_an_address_that_was_made_up_does_nothing(shared: Watched, text: str) -> None:
    seen = shared
    seen.bad.clear()  # what an earlier row did was judged there
    seen.page.goto(seen.page.url.partition("#")[0])
    seen.page.evaluate(
        "text => { for (const name of ['text', 'tier', 'rule', 'host', 'session', 'order', 'from', 'id', 'page', 'verdict', '__proto__']) location.hash += '&' + name + '=' + encodeURIComponent(text.replace(/[\\ud800-\\udfff]/g, '')); }",
        text,
    )
    expect(seen.page.locator("#found strong")).to_have_text("0")
    seen.page.click("#clear")
    assert seen.found() == 8
    assert seen.page.title() == "Audit report - ringfence"
    assert seen.bad == []


# field, value, decisions that stay
# fmt: off
FILTERS = [
    ("#f-tier",    "secret",                       [7, 6]),
    ("#f-tool",    "write",                        [10, 4]),
    ("#f-host",    "metrics.example",              [11]),
    ("#f-host",    "evil.example",                 [9]),
    ("#f-rule",    "command:shell:210", [9]),
    ("#f-session", "aaaa000011112222",             [7, 6, 4, 2]),
    ("#f-text",    "ssh id_RSA",                   [7, 6]),
    ("#f-text",    ".git/hooks",                   [10]),
    ("#f-text",    "netrc",                        [11]),
    ("#f-text",    "#9",                           [9]),
    ("#f-text",    "no such words",                []),
    ("#f-from",    "2026-03-04 05:06:10",          [13]),
    ("#f-until",   "2026-03-04 05:06:08",          [2]),
    ("#f-from",    "nonsense",                     [13, 10, 9, 7, 6, 11, 4, 2]),
    ("denied",     "",                             [13, 10, 9, 7, 6]),
    ("asked",      "",                             [11]),
    ("allowed",    "",                             [4, 2]),
]
# fmt: on


@pytest.mark.thorough
@in_browser
def test_filters_filter(browser: Browser, tmp_path: Path) -> None:
    seen = opened(browser, tmp_path, sample_log().deeds)
    page = seen.page
    everything = [13, 10, 9, 7, 6, 11, 4, 2]
    assert seen.ids() == everything, "denials first, newest first among them"
    for field, value, wanted in FILTERS:
        if not field.startswith("#"):
            page.click(f"button.toggle.{field}")
            assert page.get_attribute(f"button.toggle.{field}", "aria-pressed") == "true"
        elif field in ("#f-text", "#f-from", "#f-until"):
            page.fill(field, value)
            page.press(field, "Enter")
            page.locator(field).blur()
        else:
            page.select_option(field, value)
        expect(page.locator("#found strong")).to_have_text(str(len(wanted)))
        assert seen.ids() == wanted, (field, value)
        bars = seen.bars("#plot-time")
        if field != "#f-from" and field != "#f-until" and field not in ("denied", "asked", "allowed"):
            assert sum(map(sum, bars.values())) == len(wanted), (field, value)
        if wanted != everything:
            page.click("#clear")
        assert seen.ids() == everything
    page.select_option("#f-order", "oldest")
    assert seen.ids() == sorted(everything)
    assert seen.bad == []
    page.close()


@in_browser
def test_filters_hold_together_and_in_the_address(browser: Browser, tmp_path: Path) -> None:
    seen = opened(browser, tmp_path, sample_log().deeds)
    page = seen.page
    page.click("button.toggle.denied")
    page.click("#plot-tiers [data-name=secret]")
    page.click(".row >> nth=1")
    assert seen.ids() == [7, 6]
    assert seen.bars("#plot-tiers") == {
        "malformed": [1, 0, 0], "secret": [2, 0, 0], "dangerous": [1, 0, 0], "write-outside": [1, 0, 0],
    }, "a plot is not narrowed by its own filter, only by the others"  # fmt: skip
    assert page.get_attribute("#plot-tiers [data-name=secret]", "aria-pressed") == "true"
    address = page.url
    page.goto("about:blank")
    seen.bad.clear()
    page.goto(address)
    assert seen.ids() == [7, 6]
    assert "cat ~/.ssh/id_rsa" in page.inner_text("#detail .script")
    page.click("#plot-tiers [data-name=secret]")
    assert seen.found() == 5
    assert seen.bad == []
    page.close()


@in_browser
def test_plots_have_the_numbers_of_the_record(browser: Browser, tmp_path: Path) -> None:
    seen = opened(browser, tmp_path, sample_log().deeds)
    assert seen.bars("#plot-tiers") == {
        "secret": [2, 0, 0], "malformed": [1, 0, 0], "write-outside": [1, 0, 0], "dangerous": [1, 0, 0],
        "network": [0, 1, 0], "write": [0, 0, 1], "read": [0, 0, 1],
    }  # fmt: skip
    assert seen.bars("#plot-hosts") == {
        "evil.example": [1, 0, 0],
        "pypi.example": [0, 1, 0],
        "metrics.example": [0, 1, 0],
    }
    assert seen.bars("#plot-time") == {
        "2026-03-04T05:06:07.000Z": [0, 0, 1], "2026-03-04T05:06:08.000Z": [2, 0, 1],
        "2026-03-04T05:06:09.000Z": [2, 1, 0], "2026-03-04T05:06:10.000Z": [1, 0, 0],
    }  # fmt: skip
    tiles = dict(
        seen.page.eval_on_selector_all(
            "[data-tile]", "tiles => tiles.map((t) => [t.dataset.tile, t.firstChild.textContent])"
        )
    )
    assert tiles == {
        "decisions": "8",
        "denied": "5",
        "asked, then allowed": "1",
        "allowed by policy": "2",
        "stopped by sandbox": "1",
        "hosts": "3",
    }
    page = seen.page
    page.click("#plot-time svg", position={"x": 80, "y": 100})
    assert seen.found() == 1, "a click chooses the time of a bar"
    assert page.input_value("#f-from") == "2026-03-04 05:06:07"
    assert len(seen.bars("#plot-time")) == 4
    page.click("#plot-time svg", position={"x": 80, "y": 100})
    assert seen.found() == 8
    box = page.locator("#plot-time svg").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 80, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 60, steps=3)
    page.mouse.up()
    assert seen.found() == 4, "a drag that of several"
    assert seen.bad == []
    page.close()


@in_browser
def test_a_decision_is_shown_whole(browser: Browser, tmp_path: Path) -> None:
    seen = opened(browser, tmp_path, sample_log().deeds)
    page = seen.page
    page.click("#r9")
    assert page.inner_text("#detail .script mark") == "sh"
    assert page.inner_text("#detail .caret >> nth=1").strip() == "dangerous: `sh` runs what was just downloaded"
    assert page.inner_text("#detail .caret >> nth=0").index("^") == 39, "below the words"
    page.click("#detail .reason >> nth=1")
    assert page.inner_text("#detail .script mark") == "https://evil.example/x.sh"
    page.click("#r11")
    told = page.inner_text("#detail")
    for part in ("reads /home/ann/.netrc", "landlock", "pypi.example:443", "20 KiB received", "not on the list", "yes, by terminal",
                 "g12", "workspace-write: the workspace is writable", "2.500 s", "/home/ann/shop"):  # fmt: skip
        assert part in told, part
    page.click("#r10")
    assert "no, never" in page.inner_text("#detail")
    assert "#!/bin/sh" in page.inner_text("#detail")
    page.click("#r13")
    assert '{"script": 1}' in page.inner_text("#detail .script")
    assert seen.bad == []
    page.close()


@in_browser
def test_it_is_used_without_a_mouse_and_by_a_screen_reader(browser: Browser, tmp_path: Path) -> None:
    seen = opened(browser, tmp_path, sample_log().deeds)
    page = seen.page
    page.keyboard.press("/")
    page.keyboard.type("ssh")
    expect(page.locator("#found strong")).to_have_text("2")
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.dataset.id") == "6"
    assert page.get_attribute("#r6", "aria-current") == "true"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "detail"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") == "r6"
    nameless = page.eval_on_selector_all(
        "button, input, select",
        "all => all.filter((e) => !(e.innerText.trim() || e.ariaLabel || (e.labels && e.labels.length))).map((e) => e.id)",
    )
    assert nameless == []
    assert page.get_attribute("#found", "aria-live") == "polite"
    assert "5 denied" in str(
        opened(browser, tmp_path, sample_log().deeds).page.get_attribute("#plot-time svg", "aria-label")
    )
    assert seen.bad == []
    page.close()


@in_browser
def test_a_small_screen_paper_and_the_dark(browser: Browser, tmp_path: Path) -> None:
    seen = opened(browser, tmp_path, sample_log().deeds, color_scheme="dark")
    page = seen.page
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    page.click("#theme")
    assert page.evaluate(ground) != dark
    page.set_viewport_size({"width": 420, "height": 800})
    assert not page.is_visible("#detail")
    page.click("#r9")
    assert page.is_visible("#detail")
    page.wait_for_function("document.documentElement.scrollWidth <= 420")  # when the width is applied
    page.click("#detail .close")
    assert not page.is_visible("#detail")
    page.emulate_media(media="print")
    assert not page.is_visible("#filters")
    assert page.is_visible("#r9")
    assert len(page.pdf()) > 10_000
    assert seen.bad == []
    page.close()


@in_browser
def test_a_log_that_was_changed_is_said_first(browser: Browser, tmp_path: Path) -> None:
    about = About(
        "ringfence 0.1.0", "2026-03-11T08:00:00Z", "/log/audit.db", broken="Record 4: <b>changed</b>.", left=True
    )
    seen = opened(browser, tmp_path, sample_log().deeds, about)
    first, second = seen.page.locator(".alert").all_inner_texts()
    assert first.startswith("The verification of the log failed. Record 4: <b>changed</b>.")
    assert "older ones were left out" in second
    assert not seen.page.is_visible(".tile.seal")
    assert seen.bad == []
    seen.page.close()


def test_long_texts_are_cut_and_their_length_is_said(tmp_path: Path) -> None:
    told = sample_log()
    told.refused("aaaa000011112222", "bash", "x" * 100_000, Problem("a", "b", "c"))
    text = document(told.deeds, ABOUT)
    assert "x" * 4_000 in text
    assert "x" * 4_001 not in text
    assert ",100000]" in text


@pytest.mark.parametrize("length", [3_000, 20_000], ids=["long", "longer than what is recorded"])
def test_a_report_of_long_texts_stays_within_its_budget(length: int) -> None:
    told = SampleLog()
    told.session("aaaa000011112222")
    for number in range(400):
        told.refused(
            "aaaa000011112222", "bash", f"{number} " + "y" * length, Problem("a" * 900 + str(number), "b", "c")
        )
    assert len(document(told.deeds, ABOUT)) < 2_200_000


@pytest.mark.thorough
@in_browser
def test_ten_thousand_decisions_are_less_than_five_megabytes_and_usable(browser: Browser, tmp_path: Path) -> None:
    deeds = list(ordinary_decisions(10_000))
    seen = opened(browser, tmp_path, deeds)
    page = seen.page
    size = (tmp_path / "report.html").stat().st_size
    assert size < 5_000_000
    denied = [deed.record.id for deed in deeds if deed.record.body["verdict"] == "deny"]
    assert seen.found() == 10_000
    assert seen.ids() == denied[:100], "a page of them, denials first"
    assert sum(sums[0] for sums in seen.bars("#plot-time").values()) == len(denied)
    assert sum(map(sum, seen.bars("#plot-tiers").values())) == 10_000
    page.click("#pager button >> nth=1")
    assert seen.ids() == denied[100:200]
    page.fill("#f-text", "id_ed25519")
    expect(page.locator("#found strong")).not_to_have_text("10,000")
    wanted = sum("id_ed25519" in json.dumps(deed.record.body) for deed in deeds)
    assert seen.found() == wanted
    assert seen.bad == []
    page.close()


def test_the_command_makes_a_report_and_says_what_was_left_out(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    fill(tmp_path / "audit.db", 5)
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "RINGFENCE_STATE_DIR": str(tmp_path)}
    done = forked_agent.run(
        [AGENT, "audit", "export", "--format", "html", "--out", "r.html", "--limit", "3", "--tool", "exec"],
        env=environ, cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (data,) = re.findall(r'id="data">(.*?)</script>', (tmp_path / "r.html").read_text(), re.DOTALL)
    found = json.loads(data)
    assert len(found["rows"]) == 3
    assert found["chosen"] == "tools exec"
    with AuditLog.open_to_read(tmp_path / "audit.db") as log:
        assert found["sealed"] == verify(log.store).head  # type: ignore[union-attr]  # nobody touched it
