"""Many prompts: every task of a list on its own copy of its workspace, as a process of its own, behind one gate."""
