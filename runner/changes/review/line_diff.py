"""Which lines of two texts are the same: anchors that are unique in both first, then the shortest edit (E. Myers, 1986,
"An O(ND) difference algorithm"). Where that would take too long the rest counts as replaced, which is still true."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from policy.model.frozen import dataclass
from runner.changes.review.deadline import never

CONTEXT = 3  # lines around a change
_MOST_EDITS = 1000  # of one stretch: the work grows with the square
_USUAL = 4_000_000  # steps for one pair of texts: some seconds


@dataclass(frozen=True, slots=True)
class Hunk:
    """`old`, `new`: where it begins (from 0) and how many lines it takes; `lines`: each with ` `, `-` or `+` in front,
    and without a line break at its end when the file has none there."""

    old: tuple[int, int]
    new: tuple[int, int]
    lines: tuple[bytes, ...]


class Effort:
    """A budget of comparison steps that several texts share.

    Attributes:
        left: the steps that are left.
        over: returns True when the time for comparing is over.

    THREAT T95: the texts may have been written so that comparing them takes as long as possible.
    """

    __slots__ = ("left", "over")

    def __init__(self, steps: int, over: Callable[[], bool] = never) -> None:
        self.left = steps
        self.over = over

    @property
    def spent(self) -> bool:
        return self.left <= 0 or self.over()


def split(data: bytes) -> list[bytes]:
    """Lines with their line breaks, which are `\\n` alone; a last one may have none."""
    lines = data.split(b"\n")
    last = lines.pop()
    return [line + b"\n" for line in lines] + ([last] if last else [])


def hunks(old: Sequence[bytes], new: Sequence[bytes], effort: Effort | None = None) -> Iterator[Hunk]:
    """What turns `old` into `new`, in order, with CONTEXT lines around."""
    own = Effort(_USUAL) if effort is None else Effort(min(_USUAL, effort.left), effort.over)
    given = own.left
    changes = _changes(old, new, own)
    if effort is not None:
        effort.left -= given - own.left
    group: list[tuple[int, int, int, int]] = []
    for change in changes:
        if group and change[0] - group[-1][1] > 2 * CONTEXT:
            yield _hunk(old, new, group)
            group = []
        group.append(change)
    if group:
        yield _hunk(old, new, group)


def _hunk(old: Sequence[bytes], new: Sequence[bytes], group: list[tuple[int, int, int, int]]) -> Hunk:
    start, end = max(group[0][0] - CONTEXT, 0), min(group[-1][1] + CONTEXT, len(old))
    before = group[0][0] - start
    first = group[0][2] - before
    lines: list[bytes] = []
    at = start
    for old_start, old_end, new_start, new_end in group:
        lines += [b" " + line for line in old[at:old_start]]
        lines += [b"-" + line for line in old[old_start:old_end]]
        lines += [b"+" + line for line in new[new_start:new_end]]
        at = old_end
    lines += [b" " + line for line in old[at:end]]
    last = group[-1][3] + end - group[-1][1]
    return Hunk((start, end - start), (first, last - first), tuple(lines))


def _changes(old: Sequence[bytes], new: Sequence[bytes], effort: Effort) -> list[tuple[int, int, int, int]]:
    """Stretches that differ: from and to of the old lines, and of the new."""
    numbers: dict[bytes, int] = {}
    a = [numbers.setdefault(line, len(numbers)) for line in old]
    b = [numbers.setdefault(line, len(numbers)) for line in new]
    found: list[tuple[int, int, int, int]] = []
    todo = [(0, len(a), 0, len(b))]
    while todo:
        first, last, start, end = todo.pop()
        while first < last and start < end and a[first] == b[start]:
            first, start = first + 1, start + 1
        while first < last and start < end and a[last - 1] == b[end - 1]:
            last, end = last - 1, end - 1
        if first == last or start == end:
            if first < last or start < end:
                found.append((first, last, start, end))
            continue
        effort.left -= last - first + end - start
        if effort.spent:
            found.append((first, last, start, end))
            continue
        anchors = _anchors(a, b, first, last, start, end)
        if not anchors:
            found += _shortest(a, b, first, last, start, end, effort)
            continue
        for one, other in anchors:
            todo.append((first, one, start, other))
            first, start = one + 1, other + 1
        todo.append((first, last, start, end))
    found.sort()
    return _joined(found)


def _joined(found: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    whole: list[tuple[int, int, int, int]] = []
    for each in found:
        if whole and whole[-1][1] == each[0] and whole[-1][3] == each[2]:
            whole[-1] = (whole[-1][0], each[1], whole[-1][2], each[3])
        else:
            whole.append(each)
    return whole


def _anchors(a: list[int], b: list[int], first: int, last: int, start: int, end: int) -> list[tuple[int, int]]:
    """Lines that are there once in both, in the order of both: the longest such row of them."""
    places = _once(b, start, end)
    pairs = [(one, places[line]) for line, one in _once(a, first, last).items() if line in places]
    ends: list[int] = []  # the smallest last place in `b` of a row of each length
    rows: list[tuple[int, int, int]] = []  # of each pair: both places, and the pair before it
    tops: list[int] = []
    for one, other in sorted(pairs):
        length = bisect_left(ends, other)
        rows.append((one, other, tops[length - 1] if length else -1))
        ends[length : length + 1] = [other]
        tops[length : length + 1] = [len(rows) - 1]
    found: list[tuple[int, int]] = []
    at = tops[-1] if tops else -1
    while at >= 0:
        one, other, at = rows[at]
        found.append((one, other))
    return found[::-1]


def _once(lines: list[int], first: int, last: int) -> dict[int, int]:
    places: dict[int, int] = {}
    twice = set()
    for place in range(first, last):
        line = lines[place]
        if line in places:
            twice.add(line)
        places[line] = place
    return {line: place for line, place in places.items() if line not in twice}


def _shortest(
    a: list[int], b: list[int], first: int, last: int, start: int, end: int, effort: Effort
) -> list[tuple[int, int, int, int]]:
    """The shortest way from one stretch to the other; one whole replacement when it is too long."""
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


def _traced(steps: list[dict[int, int]], first: int, start: int, x: int, y: int) -> list[tuple[int, int, int, int]]:
    found = []
    for edits in range(len(steps) - 1, 0, -1):
        reach, k = steps[edits], x - y
        down = k == -edits or (k != edits and reach.get(k - 1, -1) < reach.get(k + 1, -1))
        before = k + 1 if down else k - 1
        from_x = reach[before]
        from_y = from_x - before
        one, other = (from_x, from_y)
        found.append((first + one, first + one + (not down), start + other, start + other + down))
        x, y = from_x, from_y
    return found
