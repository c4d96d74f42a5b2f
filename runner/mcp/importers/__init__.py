"""Import of tool servers from the settings of other clients into the user's configuration.

May import `mcp` and everything below it. Start reading at `plan.py`; `runner/config/serverfiles` reads the files.
"""
