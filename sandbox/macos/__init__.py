"""The macOS sandbox: generated Seatbelt profiles (SBPL).

May import `linux` for what both share. Start reading at `backend.py`.
"""
