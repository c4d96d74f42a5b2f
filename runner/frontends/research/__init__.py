"""`agent repo` and `agent web`: one question about a repository or the web, in a temporary workspace, with few rights.

May import all of `runner` below `frontends`, and `frontends.launch`. Start reading at `command.py`.
"""
