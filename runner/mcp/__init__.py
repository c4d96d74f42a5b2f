"""Tool servers that speak the Model Context Protocol (MCP): their settings, their pins, and the clients of a session.

A server on this machine is a confined process with terms of its own; a remote server is reached through the code of the
egress proxy. Only `client` and the modules of the transports import the protocol library `mcp`, while a server starts.
May import `engine` and everything below it. SOURCE: the specification of MCP, revisions 2025-11-25 and 2026-07-28.
Start reading at `server_config.py`.
"""
