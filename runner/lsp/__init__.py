"""Language servers that speak the Language Server Protocol (LSP): their settings, their processes, and their answers.

A server is a confined process that reads the workspace and changes nothing. Only `client` imports the protocol library
`pygls`, while a server starts. May import `engine` and everything below it, and `mcp.program`. SOURCE: the
specification of LSP 3.17. Start reading at `session_servers.py`.
"""
