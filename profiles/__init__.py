"""Packaged data: limits, path lists, seccomp tables."""
