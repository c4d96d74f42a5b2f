"""Readers of the small languages inside command lines: awk, sed, jq, and Git's configuration files.

May import `rules` and everything below it. Start reading at `language_result.py`.
"""
