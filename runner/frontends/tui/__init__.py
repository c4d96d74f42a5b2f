"""The terminal application: input, menus, questions and a status line below the terminal's own scrollback.

May import `plain/` and everything below it. Start reading at `app.py`.
"""
