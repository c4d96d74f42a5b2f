"""Readers of small languages: awk, sed and jq programs in command lines, configuration files of Git, and settings.

May import `rules` and everything below it. Start reading at `language_result.py`.
"""
