"""Named hosts in a container: the tests of the other sandboxes, where the network of a container may be entered."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from container_bench import Containers, Dock

# The same promise, the same test: collected here once more, with the `bench` below.
from test_egress_sandbox import (  # noqa: F401  # pytest finds them in this module
    test_a_command_reaches_the_host_that_it_was_given,
    test_nothing_else_is_reached,
    test_what_a_command_that_is_ended_did_is_known,
    test_without_a_host_there_is_no_proxy,
)


@pytest.fixture(scope="module")
def bench(docked: Dock) -> Iterator[Containers]:
    if os.geteuid() != 0:
        pytest.skip("only root may enter the network of a container; test_container shows that others open none")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        made = Containers("root", Path(folder), docked)
        try:
            yield made
        finally:
            made.close()
