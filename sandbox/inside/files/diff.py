"""Bounded differences between the lines of two texts, for every diff that the program shows or records.

Lines that occur once on both sides are matched first; between them the shortest edit is searched (E. Myers, 1986, "An
O(ND) difference algorithm"). A stretch that would take too long counts as replaced, which is still correct.

The module uses the standard library only, because it also runs confined.
"""

from bisect import bisect_left

TYPE_CHECKING = False  # the name that type checkers know; typing and collections would double the import
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

CONTEXT = 3  # lines around a change
DIFF_LINES = 120  # lines of a diff that `unified` returns
LINE_CAP = 300  # characters of one line of a diff that `unified` returns
_MOST_EDITS = 1000  # of one stretch: the work grows with the square
_QUICK = 200_000  # steps for a diff to show: some tenths of a second

_NO_END = "\n\\ no newline at the end of the file"

# First and end of the old lines, then first and end of the new lines, from 0.
Stretch = tuple[int, int, int, int]


class Effort:
    """A budget of comparison steps, which several texts may share.

    Attributes:
        left: number of steps that are left.
        over: returns True when the time for comparing is over.

    THREAT T95: the texts may have been written so that comparing them takes as long as possible.
    """

    def __init__(self, steps: int, over: "Callable[[], bool]" = lambda: False) -> None:
        self.left = steps
        self.over = over

    @property
    def spent(self) -> bool:
        return self.left <= 0 or self.over()


def unified(before: str, after: str, name: str) -> tuple[list[str], int]:
    """Return at most DIFF_LINES lines of the unified diff of two texts, and the number of lines left out.

    The diff of equal texts is empty.
    """
    if before == after:
        return [], 0
    rows = [f"--- {name}", f"+++ {name}", *unified_rows(_lines(before), _lines(after))]
    visible = [row if len(row) <= LINE_CAP else row[:LINE_CAP] + " [...]" for row in rows[:DIFF_LINES]]
    return visible, len(rows) - len(visible)


def _lines(text: str) -> list[str]:
    """Split `text` at newlines only. A last line without a newline contains a marker on a line of its own."""
    lines = text.split("\n")
    last = lines.pop()
    return [*lines, last + _NO_END] if last else lines


def unified_rows(old: "Sequence[str]", new: "Sequence[str]") -> list[str]:
    """Return the hunks of a unified diff without the two lines that name the files."""
    rows: list[str] = []
    for group in grouped(changes(old, new, Effort(_QUICK))):
        start, end, first, last = around(group, len(old))
        rows.append(f"@@ -{_range(start, end)} +{_range(first, last)} @@")
        at = start
        for old_start, old_end, new_start, new_end in group:
            rows += [f" {line}" for line in old[at:old_start]]
            rows += [f"-{line}" for line in old[old_start:old_end]]
            rows += [f"+{line}" for line in new[new_start:new_end]]
            at = old_end
        rows += [f" {line}" for line in old[at:end]]
    return [part for row in rows for part in row.split("\n")]


def grouped(stretches: "Sequence[Stretch]") -> list[list[Stretch]]:
    """Return the stretches in hunks: two stretches share a hunk if at most 2 * CONTEXT equal lines are between them."""
    groups: list[list[Stretch]] = []
    for stretch in stretches:
        if groups and stretch[0] - groups[-1][-1][1] <= 2 * CONTEXT:
            groups[-1].append(stretch)
        else:
            groups.append([stretch])
    return groups


def around(group: "Sequence[Stretch]", old_count: int) -> Stretch:
    """Return the lines that the hunk of `group` covers: the stretches and up to CONTEXT equal lines at both ends."""
    start, end = max(group[0][0] - CONTEXT, 0), min(group[-1][1] + CONTEXT, old_count)
    return start, end, group[0][2] - (group[0][0] - start), group[-1][3] + end - group[-1][1]


def _range(start: int, stop: int) -> str:
    """Return the range of a hunk as in `diff -u`: from 1, without a count of 1."""
    count = stop - start
    if count == 1:
        return str(start + 1)
    return f"{start + 1 if count else start},{count}"


def changes(old: "Sequence[Hashable]", new: "Sequence[Hashable]", effort: Effort) -> list[Stretch]:
    """Return the stretches that differ, in order. A stretch that would need too much effort counts as replaced."""
    numbers: dict[Hashable, int] = {}
    a = [numbers.setdefault(line, len(numbers)) for line in old]
    b = [numbers.setdefault(line, len(numbers)) for line in new]
    stretches: list[Stretch] = []
    todo = [(0, len(a), 0, len(b))]
    while todo:
        first, last, start, end = todo.pop()
        while first < last and start < end and a[first] == b[start]:
            first, start = first + 1, start + 1
        while first < last and start < end and a[last - 1] == b[end - 1]:
            last, end = last - 1, end - 1
        if first == last or start == end:
            if first < last or start < end:
                stretches.append((first, last, start, end))
            continue
        effort.left -= last - first + end - start
        if effort.spent:
            stretches.append((first, last, start, end))
            continue
        anchors = _anchors(a, b, first, last, start, end)
        if not anchors:
            stretches += _shortest(a, b, first, last, start, end, effort)
            continue
        for one, other in anchors:
            todo.append((first, one, start, other))
            first, start = one + 1, other + 1
        todo.append((first, last, start, end))
    whole: list[Stretch] = []
    for each in sorted(stretches):
        if whole and whole[-1][1] == each[0] and whole[-1][3] == each[2]:
            whole[-1] = (whole[-1][0], each[1], whole[-1][2], each[3])
        else:
            whole.append(each)
    return whole


def _anchors(a: list[int], b: list[int], first: int, last: int, start: int, end: int) -> list[tuple[int, int]]:
    """Return the longest common subsequence of the lines that occur exactly once on both sides, as pairs of places."""
    places = _once(b, start, end)
    pairs = [(one, places[line]) for line, one in _once(a, first, last).items() if line in places]
    ends: list[int] = []  # the smallest last place in `b` of a subsequence of each length
    rows: list[tuple[int, int, int]] = []  # for each pair: both places, and the index of the pair before it
    tops: list[int] = []
    for one, other in sorted(pairs):
        length = bisect_left(ends, other)
        rows.append((one, other, tops[length - 1] if length else -1))
        ends[length : length + 1] = [other]
        tops[length : length + 1] = [len(rows) - 1]
    anchors: list[tuple[int, int]] = []
    at = tops[-1] if tops else -1
    while at >= 0:
        one, other, at = rows[at]
        anchors.append((one, other))
    return anchors[::-1]


def _once(lines: list[int], first: int, last: int) -> dict[int, int]:
    places: dict[int, int] = {}
    twice = set()
    for place in range(first, last):
        line = lines[place]
        if line in places:
            twice.add(line)
        places[line] = place
    return {line: place for line, place in places.items() if line not in twice}


def _shortest(a: list[int], b: list[int], first: int, last: int, start: int, end: int, effort: Effort) -> list[Stretch]:
    """Return the shortest edit of one stretch, or one replacement of the whole if that edit needs too much effort."""
    m, n = last - first, end - start
    reach = {1: 0}
    steps: list[dict[int, int]] = []
    for edits in range(min(m + n, _MOST_EDITS) + 1):
        effort.left -= edits + 1
        if effort.spent:
            break
        steps.append(reach)
        reach = dict(reach)
        for k in range(-edits, edits + 1, 2):
            down = k == -edits or (k != edits and steps[-1].get(k - 1, -1) < steps[-1].get(k + 1, -1))
            x = reach[k + 1] if down else reach[k - 1] + 1
            y = x - k
            while x < m and y < n and a[first + x] == b[start + y]:
                x, y = x + 1, y + 1
            reach[k] = x
            if x >= m and y >= n:
                return _traced(steps, first, start, m, n)
    return [(first, last, start, end)]


def _traced(steps: list[dict[int, int]], first: int, start: int, x: int, y: int) -> list[Stretch]:
    stretches = []
    for edits in range(len(steps) - 1, 0, -1):
        reach, k = steps[edits], x - y
        down = k == -edits or (k != edits and reach.get(k - 1, -1) < reach.get(k + 1, -1))
        before = k + 1 if down else k - 1
        x, y = reach[before], reach[before] - before
        stretches.append((first + x, first + x + (not down), start + y, start + y + down))
    return stretches
