"""The vocabulary of the policy engine: actions, effects, tiers, modes, verdicts, facts, profiles.

The values come with functions that match words, hosts and paths. `deadline.py` has the factor of all short deadlines of
the program, which tests raise. Imports nothing else from `policy`. Start reading at `action.py`, then `assessment.py`
and `verdict.py`.
"""
