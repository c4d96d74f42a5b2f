"""The container backend: the same Terms, kept by a Docker-compatible daemon around an image of the user's choice."""
