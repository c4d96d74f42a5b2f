"""Misspelled names of packages: names that differ by one letter from the name of a package that many users install.

The tables are facts of November 2026, and no list is complete. A name of `NEIGHBOURS` belongs to a package of its own
that many users install, so it is not reported. Imported only when an install is judged.
"""

from functools import cache

from policy.handlers.package_tables import NEIGHBOURS, POPULAR

# Characters. Of shorter names, too many real ones differ by one letter. Names shorter than `ANY_EDIT` are only reported
# for two swapped letters and for a repeated letter.
SHORTEST = 5
ANY_EDIT = 6
SWAPPED, REPEATED = "two swapped letters", "one repeated letter"


def misspelling(ecosystem: str, name: str) -> tuple[str, str] | None:
    """Return how the normalized `name` differs from a popular name of `ecosystem`, and that name. Return None if the
    name is itself popular, a known neighbour of a popular name, too short, or too different.
    """
    popular, neighbours = _names(ecosystem)
    if len(name) < SHORTEST or name in popular or name in neighbours:
        return None
    # One edit leaves the first or the last letter.
    first, last, shortest, longest = name[0], name[-1], len(name) - 1, len(name) + 1
    for other in popular:
        if (other[0] != first and other[-1] != last) or not shortest <= len(other) <= longest:
            continue
        if len(other) < SHORTEST or not (how := difference(name, other)):
            continue
        if min(len(name), len(other)) >= ANY_EDIT or how in (SWAPPED, REPEATED):
            return how, other
    return None


@cache
def _names(ecosystem: str) -> tuple[dict[str, None], frozenset[str]]:
    """Return the popular names of an ecosystem in a fixed order, and their neighbours."""
    return dict.fromkeys(POPULAR[ecosystem].split()), frozenset(NEIGHBOURS[ecosystem].split())


def difference(name: str, other: str) -> str:
    """Return in words how `name` differs from `other`, if by one edit; otherwise the empty text."""
    start = 0
    while start < min(len(name), len(other)) and name[start] == other[start]:
        start += 1
    mine, its = name[start:], other[start:]
    if mine == its:
        return ""
    if len(mine) == len(its):
        if mine[2:] == its[2:] and mine[:2] == its[1::-1]:
            return SWAPPED
        mark = _mark(mine[:1]) or _mark(its[:1])
        return (mark or "one letter") if mine[1:] == its[1:] else ""
    if start and mine[:1] == name[start - 1] and mine[1:] == its:
        return REPEATED
    longer, shorter = (mine, its) if len(mine) > len(its) else (its, mine)
    return (_mark(longer[:1]) or "one letter") if longer[1:] == shorter else ""


def _mark(letter: str) -> str:
    return {"-": "one hyphen", "_": "one underscore", ".": "one dot"}.get(letter, "")
