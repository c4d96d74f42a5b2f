"""JSON Lines: the same objects as `agent audit --json`, one a line, for programs."""

from collections.abc import Iterable, Iterator

from runner.audit.decisions import Deed
from runner.audit.list_view import json_line


def lines(deeds: Iterable[Deed]) -> Iterator[str]:
    for deed in deeds:
        yield json_line(deed)
