"""Git revisions, resolved without Git: HEAD, a branch, a tag, an id, or an ancestor of one of these.

THREAT T117: this decides which trees a command prints, so whatever Git might read in another way raises Unreadable: two
references of one name, an id that begins like another, replaced objects, grafts and shallow copies. Formats:
gitrevisions(7), gitrepository-layout(5), git-pack-refs(1).
"""

import os
import re

from runner.facts.git.objects import Commit, Objects, Unreadable, whole

_REVISION = re.compile(r"(@|[A-Za-z0-9_][A-Za-z0-9_./+-]*)((?:[~^]\d{0,3})*)")
_STEP = re.compile(r"([~^])(\d*)")
_ABBREVIATED = re.compile(r"[0-9a-f]{4,40}")
_HEAD = re.compile(rb"ref: (refs/heads/[A-Za-z0-9_./+-]+)\n?")
_ID = re.compile(rb"([0-9a-f]{40})\n?")
_MOVED = re.compile(rb"^[^\t\n]*\tcheckout: moving from (\S+) to ", re.MULTILINE)
_LARGEST = 16 << 20  # bytes of packed-refs
_MOST_STEPS = 2000  # from a commit to a parent, or from a tag to what it marks
# The places where Git looks for a name, in its order; a name in two of these is ambiguous.
_PLACES = ("{}", "refs/{}", "refs/tags/{}", "refs/heads/{}", "refs/remotes/{}", "refs/remotes/{}/HEAD")
_FOLLOWED = ("refs/tags/", "refs/heads/", "refs/remotes/")


class Revisions:
    """Revisions of one repository. `own` is its Git folder, `common` the folder that linked worktrees share.

    The constructor and every method raise Unreadable for anything uncertain, and OSError.
    """

    def __init__(self, own: str, common: str, objects: Objects) -> None:
        self._own, self._common, self._objects = own, common, objects
        self._packed = whole(f"{common}/packed-refs", _LARGEST) or b""
        altering = ("info/grafts", "shallow", "refs/replace")
        if b" refs/replace/" in self._packed or any(os.path.lexists(f"{common}/{name}") for name in altering):
            raise Unreadable(common)

    def commit(self, text: str) -> Commit | None:
        """Return the commit that `text` names; None for a HEAD without a commit."""
        parts = _REVISION.fullmatch(self._left() if text == "@{-1}" else text)
        if parts is None or ".." in text:
            raise Unreadable(text)
        id = self._head() if parts[1] in ("HEAD", "@") else self._named(parts[1])
        if id is None and not parts[2]:
            return None
        self._steps = _MOST_STEPS
        commit = self._peeled(id)
        for sign, digits in _STEP.findall(parts[2]):
            count = int(digits) if digits else 1
            for number in [1] * count if sign == "~" else [count] * (count > 0):
                if number > len(commit.others):
                    raise Unreadable(text)
                commit = self._peeled(commit.others[number - 1])
        return commit

    def _left(self) -> str:
        """Return the branch or id that the last checkout moved away from, by HEAD's log."""
        moves = _MOVED.findall(whole(f"{self._own}/logs/HEAD", _LARGEST) or b"")
        if not moves:
            raise Unreadable("@{-1}")
        return os.fsdecode(moves[-1])

    def _peeled(self, id: bytes | None) -> Commit:
        """Return the commit `id`, or the one that the tag `id` marks."""
        while id is not None and self._steps > 0:
            self._steps -= 1
            found = self._objects.commit(id)
            if found is None:
                break
            if found.tree is not None:
                return found
            id = found.others[0]
        raise Unreadable("no commit")

    def _head(self) -> bytes | None:
        data = whole(f"{self._own}/HEAD", 4096) or b""
        if found := _ID.fullmatch(data):
            return bytes.fromhex(found[1].decode())
        link = _HEAD.fullmatch(data)
        if link is None or b".." in link[1]:
            raise Unreadable("HEAD")
        name = link[1].decode()
        return self._reference(name) if self._is_there(name) else None

    def _named(self, name: str) -> bytes:
        found = [full for place in _PLACES if self._is_there(full := place.format(name))]
        if len(found) == 1 and found[0].startswith(_FOLLOWED) and not found[0].endswith("/HEAD"):
            if len(name) < 40:  # an id in full comes before a reference
                return self._reference(found[0])
        elif not found and _ABBREVIATED.fullmatch(name):
            ids = self._objects.beginning(name)
            if len(ids) == 1:
                return next(iter(ids))
        raise Unreadable(name)

    def _is_there(self, name: str) -> bool:
        if re.search(rb" %s$" % re.escape(name.encode()), self._packed, re.MULTILINE):
            return True
        paths = [f"{folder}/{name}" for folder in dict.fromkeys((self._own, self._common))]
        return any(os.path.lexists(path) and not os.path.isdir(path) for path in paths)

    def _reference(self, name: str) -> bytes:
        """Return the id in the reference `name`; its own file comes before its line in `packed-refs`."""
        path = f"{self._common}/{name}"
        if os.path.lexists(path) and not os.path.isdir(path):
            found = _ID.fullmatch(whole(path, 4096) or b"")
            if found is None:
                raise Unreadable(name)
            return bytes.fromhex(found[1].decode())
        lines = re.findall(rb"^(.*) %s$" % re.escape(name.encode()), self._packed, re.MULTILINE)
        if len(lines) != 1 or not _ID.fullmatch(lines[0]):
            raise Unreadable(name)
        return bytes.fromhex(lines[0].decode())
