"""Fixtures that several files of this folder use."""

from tests.support.report_browser import browser

__all__ = ["browser"]
