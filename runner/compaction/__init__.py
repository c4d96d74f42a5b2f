"""How a conversation stays inside a model's window: what is sent gets shorter, and the session file keeps all of it."""
