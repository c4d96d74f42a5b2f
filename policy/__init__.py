"""The shared vocabulary and the decision: pure functions over values, no I/O."""
