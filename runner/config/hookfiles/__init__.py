"""Hooks of configuration files: of `[[hook]]` entries and of the files of Claude Code, Codex and Gemini CLI.

May import `config` and everything below it. Start reading at `hook.py`, then `read_hooks.py`.
"""
