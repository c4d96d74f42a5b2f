"""Reading bash: text to a small tree, or Opaque."""
