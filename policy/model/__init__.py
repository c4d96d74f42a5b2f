"""The vocabulary of the policy engine: actions, effects, tiers, modes, verdicts, facts, profiles.

The values come with functions that match words, hosts and paths. Imports nothing else from `policy`. Start reading at
`action.py`, then `assessment.py` and `verdict.py`.
"""
