"""Commands typed into a conversation, such as `/undo`: built-in ones and those from Markdown files.

May import `terminal/` and the packages below `frontends`. Start reading at `registry.py`.
"""
