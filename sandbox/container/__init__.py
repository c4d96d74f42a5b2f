"""The container backend: the same terms, enforced by a Docker-compatible daemon around an image of the user's choice.

May import `linux`, for what both share, and everything below it. Start reading at `backend.py`.
"""
