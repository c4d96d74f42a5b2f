"""The users' own rules: what they allow, ask about and deny."""
