"""`agent mcp serve`: the tools of a session for any client of the Model Context Protocol (MCP).

May import `agent` and everything below it. Each call passes the gate like a call of a model. `server.py` and the
transports import the protocol library, so they are loaded only while a server starts. Start reading at `calls.py`.
"""
