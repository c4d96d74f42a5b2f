"""The command line: one module for each group of commands, from argument vector to function call.

The only package that prints the final problem and exits. It may import everything in `runner`; nothing imports it, but
`frontends/batch` starts two of its modules as programs. Start reading at `main.py` (the entry point of the command
`agent`), then `app.py` (the list of commands).
"""
