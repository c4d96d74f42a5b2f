"""Hooks: confined programs, addresses and questions of the configuration that are asked at events of a session.

May import `engine` and everything below it. Start reading at `session_hooks.py`.
"""
