"""Everyday work goes on inside: every row of the table, on every backend, as every user we may be."""

from collections.abc import Iterator

import pytest
from compat_rows import BACKENDS, Everyday, Row, rows
from sandbox_bench import USERS, make


@pytest.fixture(scope="module", params=USERS)
def everyday(request: pytest.FixtureRequest) -> Iterator[Everyday]:
    for bench in make(request.param):
        yield Everyday(bench)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("row", rows(), ids=lambda row: row.name)
def test_everyday_work_goes_on(everyday: Everyday, row: Row, backend: str) -> None:
    result = everyday.run(row, backend)
    if result.missing:
        pytest.skip(f"`{result.missing}` is not installed for this user")
    assert result.ok, result.answer
