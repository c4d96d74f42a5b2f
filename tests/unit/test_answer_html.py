"""Tests of the HTML of an answer in Markdown: what is rendered, and that hostile text has no effect."""

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.sessions.answer_html import answer_html

# fmt: off
RENDERED = [
    ("# One",                      "<h2>One</h2>",                                      "the page has a heading of its own"),
    ("a **b** *c* ~~d~~ `e<f`",    "<p>a <strong>b</strong> <em>c</em> <s>d</s> <code>e&lt;f</code></p>", "marks"),
    ("```py\na < b\n```",          "<pre><code>a &lt; b\n</code></pre>",                "a fence"),
    ("3. a\n4. b",                 '<ol start="3"><li>a\n</li><li>b\n</li></ol>',       "a list"),
    ("> a",                        "<blockquote><p>a</p></blockquote>",                 "a quote"),
    ("| a |\n|---:|\n| 1 |",       '<table><thead><tr><th class="right">a</th></tr></thead>'
                                   '<tbody><tr><td class="right">1</td></tr></tbody></table>', "a table"),
    ("[a](https://a.example/?x&y)", '<p><a href="https://a.example/?x&amp;y" rel="noopener noreferrer">a</a>'
                                   ' <span class="target">(https://a.example/?x&amp;y)</span></p>', "a link shows its target"),
    ("<https://a.example>",        '<p><a href="https://a.example" rel="noopener noreferrer">https://a.example</a></p>', "only once"),
    ('[a](https://b "t")',         '<p><a href="https://b" rel="noopener noreferrer">a</a>'
                                   ' <span class="target">(https://b &quot;t&quot;)</span></p>', "and its title"),
    ("![a](https://b/c.png)",      '<p>[image: a] <span class="target">(https://b/c.png)</span></p>', "an image is not loaded"),
    ("<b>x</b>",                   "<p>&lt;b&gt;x&lt;/b&gt;</p>",                       "HTML is text"),
    ("&#8238;x&#27;",              "<p>",                                               "entities"),
]
HOSTILE = [
    "[x](javascript:alert(1))", "[x](JaVaScRiPt&colon;alert(1))", "[x](data:text/html,<script>alert(1)</script>)",
    "[x](vbscript:x)", "[x](file:///etc/passwd)", "[x](//a.example)", "[x](https://a\" onclick=\"alert(1))",
    "![x](javascript:alert(1))", "![\" onerror=alert(1)](x)", "<img src=x onerror=alert(1)>", "<script>alert(1)</script>",
    "```\"><script>alert(1)</script>\nx\n```", "<!-- ", "<a href='javascript:x'>", "[x]: javascript:alert(1)\n\n[x]",
    "\x1b]0;t\x07", "\u202e\u200b", "&#8238;&#27;&#0;", "> " * 200 + "x", "[" * 5000, "`" * 4999, "\ud800",
    "| a |\n|---|\n| <script>x</script> |", "https://a.example/<script>", "<https://a.example/\"onclick=alert(1)>", "**<b>**",
]
# fmt: on
TAGS = {
    *("p", "ul", "ol", "li", "blockquote", "table", "thead", "tbody", "tr", "th", "td", "pre", "hr", "br"),
    *("strong", "em", "s", "code", "a", "span", "h2", "h3", "h4", "h5", "h6"),
}
ATTRIBUTES = {"href", "rel", "class", "start"}


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, list[tuple[str, str | None]]]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, attrs))
        if tag not in ("hr", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check(text: str) -> None:
    page = Tags()
    made = answer_html(text)
    page.feed(made)
    page.close()
    assert page.open == [], "every tag is closed"
    for tag, attributes in page.tags:
        assert tag in TAGS
        assert {name for name, _ in attributes} <= ATTRIBUTES
        for name, value in attributes:
            assert name != "href" or re.fullmatch(r"https?://[!-~]+", value or "")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\ud800-\udfff]", made)


@pytest.mark.parametrize(("text", "made", "why"), RENDERED, ids=[row[2] for row in RENDERED])
def test_markdown_is_rendered(text: str, made: str, why: str) -> None:
    assert answer_html(text).startswith(made), why
    check(text)


@pytest.mark.threat("T74")
@pytest.mark.parametrize("text", HOSTILE, ids=[f"row {number}" for number in range(len(HOSTILE))])
def test_hostile_text_stays_text(text: str) -> None:
    check(text)
    check(f"a {text} b\n\n- {text}\n\n> {text}")


@pytest.mark.threat("T74")
@given(st.text("<>\"'&#;:/ax[]()!`*_~|-\n\\\x1b\u202e0", max_size=60))
def test_no_text_adds_a_tag(text: str) -> None:
    check(text)


def test_a_text_beyond_the_limits_is_shown_as_source() -> None:
    assert answer_html("*a* " * 40_000).startswith("<pre>*a* ")
    assert answer_html("> " * 40 + "x").startswith("<pre>&gt; ")
