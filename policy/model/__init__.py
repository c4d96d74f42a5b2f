"""The vocabulary of the policy engine: actions, effects, tiers, modes, verdicts, facts, profiles.

Values without behaviour beyond their own consistency. Imports nothing else from `policy`. Start reading at `action.py`,
then `assessment.py` and `verdict.py`.
"""
