"""The macOS sandbox: generated Seatbelt profiles (SBPL).

May import `linux`, for what both share, and everything below it. Start reading at `backend.py`.
"""
