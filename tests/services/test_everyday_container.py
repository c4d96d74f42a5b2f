"""Tests of everyday work in a container: rows of the table of `compat_rows`, as each available user."""

from collections.abc import Iterator

import pytest

from tests.support.compat_rows import REFUSED, Everyday, Row, everyday, rows
from tests.support.container_bench import Dock
from tests.support.sandbox_bench import USERS

# Of what works in the small image of these tests, as much as shows every part of it; `make tables` runs it all.
IN_A_CONTAINER = (
    *("python from below the home", "python modules with libraries", "multiprocessing", "shared memory", "cp -p and cp -a"),
    *("sqlite with a write-ahead log", "threads and asyncio", "git init, commit, log, worktree, gc", "tar", "ps"),
    *("git clone and push in the workspace", "mktemp", "extended attributes and locks", "descriptors by name"),
    *("jobs, signals, trap, timeout", "a terminal of its own", "a server and a client", "AF_UNIX"),
)  # fmt: skip


@pytest.fixture(scope="module", params=USERS)
def contained(request: pytest.FixtureRequest, docked: Dock) -> Iterator[Everyday]:
    with everyday(request.param, docked) as made:
        yield made


@pytest.mark.thorough
@pytest.mark.parametrize("row", [row for row in rows() if row.name in IN_A_CONTAINER], ids=lambda row: row.name)
def test_in_a_container_exactly_what_is_written_down_does_not_go_on(contained: Everyday, row: Row) -> None:
    result = contained.run(row, "container")
    assert not result.missing, "the image lacks it"
    assert result.ok == (row.name not in REFUSED["container"]), result.answer


def test_only_what_is_in_the_table_is_named() -> None:
    assert {*IN_A_CONTAINER, *REFUSED["container"]} <= {row.name for row in rows()}
