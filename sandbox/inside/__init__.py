"""The code that runs inside the sandbox. Imports the standard library only, nothing else from this project.

A started helper applies the plan it receives, then starts commands and does file operations. Start reading at
`helper.py`, then `command_server.py` and `confine.py`.
"""
