"""Fixtures that several files of this folder use."""

from tests.support.json_front import folder
from tests.support.loop_harness import stage
from tests.support.reply_servers import serve

__all__ = ["folder", "serve", "stage"]
