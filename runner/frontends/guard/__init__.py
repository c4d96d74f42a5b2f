"""The guard of other agents: their hooks ask the gate of this program, and allowed commands run in its sandbox.

Start reading at `hook.py`. May import everything below `frontends`.
"""
