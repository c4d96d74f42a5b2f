"""The text of a Git commit or tag before it is signed, read strictly: the form that Git writes, and nothing else.

Sources: Documentation/technical/signature-format and hash-object.c of Git (`fsck_commit`, `fsck_tag`).
"""

import re

LONGEST = 64 << 10  # bytes of an object; a signature over more than a user can read is refused
_HASH = r"(?:[0-9a-f]{40}|[0-9a-f]{64})"
_PERSON = r"[^<>\n]*<[^<>\n]*> [0-9]{1,12} [+-][0-9]{4}"
_COMMIT = re.compile(
    rf"tree {_HASH}\n(?:parent {_HASH}\n){{0,64}}author {_PERSON}\ncommitter {_PERSON}\n(?:encoding UTF-8\n)?\n.*",
    re.DOTALL,
)
_TAG = re.compile(
    rf"object {_HASH}\ntype (?:commit|tree|blob|tag)\ntag [^\n ]+\ntagger {_PERSON}\n\n.*",
    re.DOTALL,
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class GitObjectError(ValueError):
    """The error for a text that is no commit and no tag. The message is the reason, for use after "it"."""


def read_git_object(content: bytes) -> tuple[str, str]:
    """Return the kind of an object (`commit` or `tag`) and its text. Raises GitObjectError.

    THREAT T139: a signature of a text that only looks like a commit could be used for something else. So there is one
    form, without further headers, in UTF-8, without control characters, and short enough to be read.
    """
    if len(content) > LONGEST:
        raise GitObjectError(f"is longer than {LONGEST >> 10} KiB")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise GitObjectError("is not in UTF-8") from None
    if _CONTROL.search(text):
        raise GitObjectError("contains control characters")
    if _COMMIT.fullmatch(text):
        return "commit", text
    if _TAG.fullmatch(text):
        return "tag", text
    raise GitObjectError("is neither a commit nor a tag in the form that Git writes")
