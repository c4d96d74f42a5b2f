"""Words of others, inside marks that they cannot close."""

from hashlib import sha256

from runner.text.sanitize import one_line


def marked(tag: str, text: str, /, *, mark: str = "", **said: str) -> str:
    """`text` between two tags of that name; `said` stands in the first.

    THREAT T73: nobody can write the closing tag into the text: it holds the text's own hash, or `mark`, which is that
    of something which holds the text.
    """
    mark = mark or sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    words = "".join(f' {key}="{_attribute(value)}"' for key, value in said.items())
    return f'<{tag}{words} number="{mark}">\n{text}\n</{tag} {mark}>'


def _attribute(value: str) -> str:
    return one_line(value, 4096).replace('"', "'")
