"""Facts about the machine and the workspace, gathered before the policy engine is asked.

`git/` reads repositories without running Git. May import `providers` and everything below it. Start reading at
`gather.py`.
"""
