"""Fixtures that several files of this folder use."""

from tests.support.loop_stage import stage

__all__ = ["stage"]
