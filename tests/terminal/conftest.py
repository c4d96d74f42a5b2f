"""Fixtures that several files of this folder use."""

from tests.support.json_front import folder
from tests.support.screen_desk import desk

__all__ = ["desk", "folder"]
