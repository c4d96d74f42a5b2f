"""Files in which other clients configure tool servers (MCP), and their meaning as keys of `[mcp.NAME]`.

May import `config` and everything below it. Start reading at `read_servers.py`.
"""
