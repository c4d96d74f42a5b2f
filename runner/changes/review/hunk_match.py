"""Application of one section of a patch to a file. A hunk fits only if the file contains exactly its old lines; there
is no fuzz.
"""

import itertools
from collections.abc import Iterable, Sequence

from runner.changes.review.patch_format import FILE, LINK, Hunk, Side, split
from runner.changes.review.patch_parser import LARGEST, Binary, Section, plain_blob
from runner.facts.git.delta import DeltaError, WrongBaseError, applied


class Unfit(Exception):
    """An error for a section that does not fit. The text states the reason."""


Moved = tuple[tuple[int, int, int], ...]  # hunks that fit at another line than stated: number, stated line, actual line


def fitted(section: Section, old: Side | None) -> tuple[Side | None, Moved]:
    """Return the file `old` after applying `section` to it, and the hunks that moved. Raise Unfit."""
    if section.old is not None:
        if old is None:
            raise Unfit("there is no such file")
        if section.old_mode is not None and (section.old_mode == LINK) != (old.mode == LINK):
            raise Unfit("it is a link" if old.mode == LINK else "it is not a link")
        if section.new_mode == LINK != old.mode:  # the content of the file would become the visible target of the link
            raise Unfit("a patch cannot turn a file into a link; it must delete the file and add a link")
    data = old.data if old is not None and section.old is not None else b""
    moved: Moved = ()
    if section.forth is not None:
        data = _binary(section, section.forth, data)
    elif section.hunks:
        data, moved = _text(section.hunks, data)
    if section.new is None:
        if data:
            if section.hunks:
                raise Unfit("it contains more than the patch deletes")
            if section.blobs[0] and Side(FILE, data).blob.startswith(section.blobs[0]):
                raise Unfit("the patch does not contain the content that it deletes")
            raise Unfit("it is not empty")
        return None, moved
    # A mode that the patch does not state stays unchanged.
    mode = old.mode if old is not None and section.old is not None else FILE
    if section.new_mode is not None and section.new_mode != section.old_mode:
        mode = section.new_mode
    if mode == LINK and (not data or b"\0" in data):
        raise Unfit("its target does not exist")
    return Side(mode, data), moved


def _binary(section: Section, forth: Binary, data: bytes) -> bytes:
    before, after = (plain_blob(name) for name in section.blobs)
    if section.old is not None and before and Side(FILE, data).blob != before:
        if after and Side(FILE, data).blob == after:
            raise Unfit("it already has the changes of the patch")
        raise Unfit("its content differs from the one that the patch was made from")
    if section.old is not None and not before:
        raise Unfit("the patch does not name the content that it was made from")
    try:
        made = applied(forth.data, data, LARGEST) if forth.delta else forth.data
    except WrongBaseError:
        raise Unfit("its content differs from the one that the patch was made from") from None
    except DeltaError:
        raise Unfit("the patch is damaged") from None
    if after and Side(FILE, made).blob != after:
        raise Unfit("the result of the patch is not the one that it names")
    return made


def _text(hunks: Sequence[Hunk], data: bytes) -> tuple[bytes, Moved]:
    lines = split(data)
    made: list[bytes] = []
    moved: list[tuple[int, int, int]] = []
    at = shift = 0  # number of processed old lines, and distance of the last hunk from its stated line
    for number, hunk in enumerate(hunks, 1):
        old = [line[1:] for line in hunk.lines if line[:1] != b"+"]
        new = [line[1:] for line in hunk.lines if line[:1] != b"-"]
        place = _place(lines, old, hunk, at, shift)
        if place is None:
            if _place(lines, new, hunk, at, shift) is not None:
                raise Unfit(f"hunk {number} of {len(hunks)} (line {hunk.old[0] + 1}) is applied already")
            raise Unfit(f"hunk {number} of {len(hunks)} (line {hunk.old[0] + 1}) does not fit: the lines differ")
        if place != hunk.old[0]:
            moved.append((number, hunk.old[0] + 1, place + 1))
        made += lines[at:place] + new
        at, shift = place + len(old), place - hunk.old[0]
    made += lines[at:]
    for line in made[:-1]:
        if not line.endswith(b"\n"):
            raise Unfit("a line without an end would not be the last one")
    return b"".join(made), tuple(moved)


def _place(lines: list[bytes], old: list[bytes], hunk: Hunk, least: int, shift: int) -> int | None:
    """Return the position of the old lines nearest to the stated one, or None. A hunk at the top or the end of a file
    must match there.
    """
    context = any(line[:1] == b" " for line in hunk.lines)
    wanted = hunk.old[0] + shift
    last = len(lines) - len(old)
    top = hunk.old[0] == 0
    bottom = context and hunk.lines[-1][:1] != b" "
    places: Iterable[int]
    if top and bottom:
        places = (0,) if last == 0 else ()
    elif top:
        places = (0,)
    elif bottom:
        places = (last,)
    elif not context:
        places = (wanted,)  # without context, only the stated line number is known
    else:
        far = max(wanted - least, last - wanted, 0)
        steps = range(1, far + 1)
        places = itertools.chain((wanted,), (each for step in steps for each in (wanted - step, wanted + step)))
    for place in places:
        if not least <= place <= last or (old and lines[place] != old[0]):
            continue
        if lines[place : place + len(old)] == old:
            return place
    return None
