"""Fixtures that several files of this folder use."""

from tests.support.json_front import folder
from tests.support.screen_harness import harness

__all__ = ["folder", "harness"]
