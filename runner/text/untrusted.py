"""Untrusted text inside tags that the text cannot close."""

from hashlib import sha256

from runner.text.sanitize import one_line


def marked(tag: str, text: str, /, *, mark: str = "", **said: str) -> str:
    """Return `text` between two tags of that name; `said` are the attributes of the first.

    THREAT T73: the text cannot contain the closing tag, which contains the hash of the text, or `mark`, the hash of a
    text that contains this one.
    """
    mark = mark or sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    words = "".join(f' {key}="{_attribute(value)}"' for key, value in said.items())
    return f'<{tag}{words} number="{mark}">\n{text}\n</{tag} {mark}>'


def _attribute(value: str) -> str:
    return one_line(value, 4096).replace('"', "'")
