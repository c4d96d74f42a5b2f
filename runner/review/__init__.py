"""Work on a copy of the workspace: the copy, what changed in it as a patch, and applying that patch."""
