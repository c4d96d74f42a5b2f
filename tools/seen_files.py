"""What the model has seen of each file: an edit must not land on content that it does not know."""

from posixpath import normpath

MASKED = "[secret]"  # what is shown in the place of a secret


class Seen:
    """Path to the sha256 (hex) of the content that the model last read or wrote, for one session.

    Two spellings of a path are one entry when they differ only in `.`, `..` and doubled slashes; a symlink's entry
    is noted under the link and under its target by whoever knows both.
    """

    __slots__ = ("_digests", "_masked")

    def __init__(self) -> None:
        self._digests: dict[str, str] = {}
        self._masked: set[str] = set()

    def note(self, path: str, digest: str) -> None:
        """The model now knows the content of `path` that has this digest."""
        self._digests[normpath(path)] = digest

    def digest(self, path: str) -> str | None:
        """What the model last saw of `path`, or None when it never did."""
        return self._digests.get(normpath(path))

    def mask(self, path: str, masked: bool) -> None:
        """Whether the model saw a secret's mask in `path`, and so does not know all of it."""
        (self._masked.add if masked else self._masked.discard)(normpath(path))

    def masked(self, path: str) -> bool:
        return normpath(path) in self._masked
