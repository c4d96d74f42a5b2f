"""Fixtures that several files of this folder use."""

from tests.support.loop_harness import stage

__all__ = ["stage"]
