"""Files that a repository or a user writes for agents: instructions, skills, and custom commands.

Their content is untrusted until the user trusts it. May import `config` and everything below it. Start reading at
`instructions.py`.
"""
