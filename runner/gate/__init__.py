"""The gate: one action is evaluated and explained, and nothing is run.

`grants/` keeps remembered permissions, `policy_tools/` checks and imports policies. May import `facts` and everything
below it. Start reading at `gate.py`.
"""
