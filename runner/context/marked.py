"""Words of others, inside marks that they cannot close."""

from hashlib import sha256


def marked(name: str, text: str, *, mark: str = "", **said: str) -> str:
    """`text` between two tags of `name`; `said` stands in the first.

    THREAT T73: nobody can write the closing tag into the text: it holds the text's own hash, or `mark`, which is that
    of something which holds the text.
    """
    mark = mark or sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    words = "".join(f' {key}="{value}"' for key, value in said.items())
    return f'<{name}{words} number="{mark}">\n{text}\n</{name} {mark}>'
