"""Definitions of sub-agents: those of the program, of the user, and of a repository that the user trusts.

Reads the formats of this program, Claude Code, Codex, Gemini CLI and opencode. May import `runner.state`,
`runner.text`, `runner.config.agentfiles` and `runner.config.inventory`. Start reading at `definition.py`, then
`find.py`.
"""
