"""Commands with an argument language of their own: small allowlist grammars."""
