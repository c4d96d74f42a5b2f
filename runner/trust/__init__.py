"""What a repository brings with it that would change or run something, and what a person said to exactly that."""
