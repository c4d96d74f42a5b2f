"""Longer deadlines for the program in the process of a test. Import it before any module of the program.

No test waits for a deadline to pass, except one that sets a short time for it.
"""

from policy.model.deadline import stretch

FACTOR = 10.0

stretch(FACTOR)
