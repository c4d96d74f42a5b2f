"""Sessions: what was said and decided, kept as an append-only tree of JSON lines, and gone on with later."""
