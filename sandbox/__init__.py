"""Enforcement: takes a Permit, returns an Outcome, grants exactly what the Terms say."""
