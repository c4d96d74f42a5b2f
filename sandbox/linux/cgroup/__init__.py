"""Control groups: creation, limits and removal, in versions 1 and 2 (cgroups(7)).

Imports only `policy.model` from this project. Start reading at `group.py`.
"""
