"""The record: what was decided, why, with which rights, and what came of it; sealed, read, and told."""
