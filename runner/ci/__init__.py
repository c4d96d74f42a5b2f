"""`agent ci`: a run that nobody watches, in a pipeline, on a prompt that nobody checked."""
