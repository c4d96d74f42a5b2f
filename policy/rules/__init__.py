"""Facts about commands, loaded from the rule files in `policy/commands/`.

May import `bash` and everything below it. Start reading at `rulebook.py`.
"""
