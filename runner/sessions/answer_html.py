"""The HTML of an answer that a model wrote in Markdown.

THREAT T74: the model chooses every byte. Markup is read, HTML is not. Only the tags of this module are written, with no
attributes except the address of a link, the first number of a list and a fixed class. A link leads to an `http` or
`https` address only, which is shown beside other words. An image is shown as its description and its address, and is
never loaded. Every text passes `visible` and is escaped after the markup was read, so that entities change nothing.
"""

import html
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

from runner.text.sanitize import visible

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_DEEPEST = 20  # levels of nested blocks
_LONGEST = 100_000  # characters of a text that is read as Markdown
_ADDRESS = re.compile(r"https?://[!-~]{1,2000}")
# fmt: off
_BLOCKS = {  # type of a token: tag
    "paragraph": "p", "bullet_list": "ul", "ordered_list": "ol", "list_item": "li", "blockquote": "blockquote",
    "table": "table", "thead": "thead", "tbody": "tbody", "tr": "tr", "th": "th", "td": "td",
}
_MARKS = {"strong": "strong", "em": "em", "s": "s"}
# fmt: on

STYLE = """.answer { overflow-wrap: anywhere }
.answer > :first-child { margin-top: .3rem } .answer > :last-child { margin-bottom: 0 }
.answer h2, .answer h3, .answer h4, .answer h5, .answer h6 { margin: 1.1rem 0 .4rem; line-height: 1.3; font-size: 1rem }
.answer h2 { font-size: 1.2rem } .answer h3 { font-size: 1.08rem }
.answer p { margin: .6rem 0 } .answer ul, .answer ol { margin: .6rem 0; padding-left: 1.6rem }
.answer code { font-size: .9em; background: var(--soft); padding: .1em .3em; border-radius: 4px }
.answer pre { background: var(--soft); padding: .6rem .8rem; border-radius: 4px }
.answer pre code { background: none; padding: 0; font-size: 1em }
.answer blockquote { margin: .6rem 0; padding-left: .9rem; border-left: 3px solid var(--line); color: var(--dim) }
.answer table { display: block; overflow-x: auto; max-width: 100%; margin: .6rem 0 }
.answer th, .answer td { border: 1px solid var(--line); padding: .25rem .6rem; overflow-wrap: normal; color: inherit }
.answer th { font-weight: 600; background: var(--soft) } .answer .right { text-align: right }
.answer a { color: var(--you) }
.answer hr { border: 0; border-top: 1px solid var(--line) }
@media (prefers-color-scheme: dark) { .answer a { color: #8ab4f8 } }
.answer .target { color: var(--dim); font-size: .9em }"""


def answer_html(text: str) -> str:
    """Return `text` as HTML. A text that is too long, or nested too deeply, is preformatted source text."""
    if len(text) <= _LONGEST:
        try:
            tokens = _parser().parse(text)
        except Exception:  # SEAM: foreign code reads untrusted text; on failure, the text is shown as source
            tokens = []
        # The parser drops deeper levels, so a text with too many levels is shown as source.
        if tokens and max(token.level for token in tokens) < _DEEPEST - 1:
            return "".join(_blocks(tokens))
    return f"<pre>{_safe(visible(text, prose=True))}</pre>"


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt  # slow to import

    # Definitions of link references are not rendered, so their content would be invisible.
    options = {"html": False, "maxNesting": _DEEPEST}
    return MarkdownIt("commonmark", options).enable(["table", "strikethrough"]).disable("reference")


def _blocks(tokens: "Sequence[Token]") -> Iterator[str]:
    for token in tokens:
        name, _, end = token.type.rpartition("_")
        if token.type == "inline":
            yield "".join(_inline(token.children or ()))
        elif token.type in ("fence", "code_block"):
            yield f"<pre><code>{_safe(visible(token.content, prose=True))}</code></pre>"
        elif token.type == "hr":
            yield "<hr>"
        elif name == "heading" and end in ("open", "close"):
            tag = f"h{min(int(token.tag[1:]) + 1, 6)}"  # the page has a heading of its own
            yield f"<{tag}>" if end == "open" else f"</{tag}>"
        elif name in _BLOCKS and end in ("open", "close"):
            if not token.hidden:  # a paragraph of a tight list
                yield f"<{_BLOCKS[name]}{_attribute(name, token)}>" if end == "open" else f"</{_BLOCKS[name]}>"
            elif end == "close":
                yield "\n"
        elif token.content:
            yield _safe(visible(token.content, prose=True))


def _attribute(name: str, token: "Token") -> str:
    if name == "ordered_list" and str(token.attrGet("start") or "").isdecimal():
        return f' start="{int(token.attrGet("start") or 1)}"'
    if name in ("th", "td") and token.attrGet("style") == "text-align:right":
        return ' class="right"'
    return ""


def _inline(tokens: "Sequence[Token]") -> Iterator[str]:
    """Yield the content of a line, with its marks."""
    links: list[tuple[str, str, list[str]]] = []  # open links: the address, the title, the text so far
    for token in tokens:
        name, _, end = token.type.rpartition("_")
        piece, words = "", ""
        if token.type == "link_open":
            address = str(token.attrGet("href") or "")
            links.append((address, _title(token), []))
            piece = f'<a href="{_safe(address)}" rel="noopener noreferrer">' if _ADDRESS.fullmatch(address) else ""
        elif token.type == "link_close":
            address, title, texts = links.pop()
            piece = "</a>" if _ADDRESS.fullmatch(address) else ""
            if title or "".join(texts) != address:
                piece += _target(f"{address}{title}")
        elif name in _MARKS and end in ("open", "close"):
            piece = f"<{_MARKS[name]}>" if end == "open" else f"</{_MARKS[name]}>"
        elif token.type == "hardbreak":
            piece = "<br>"
        elif token.type == "softbreak":
            piece = words = "\n"
        elif token.type == "code_inline":
            words = visible(token.content, lines=False)
            piece = f"<code>{_safe(words)}</code>"
        elif token.type == "image":
            words = visible(f"[image: {token.content}]" if token.content else "[image]", lines=False, prose=True)
            piece = _safe(words) + _target(f"{token.attrGet('src') or ''}{_title(token)}")
        else:
            words = visible(token.content, lines=False, prose=True)
            piece = _safe(words)
        for *_, texts in links:
            texts.append(words)
        yield piece


def _title(token: "Token") -> str:
    title = token.attrGet("title")
    return f' "{title}"' if title else ""


def _target(address: str) -> str:
    return f' <span class="target">({_safe(visible(address, lines=False))})</span>' if address else ""


def _safe(text: str) -> str:
    return html.escape(text, quote=True)
