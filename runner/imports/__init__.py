"""The permissions of other agents as `[[rule]]`s: a reader for each, and what they share."""
