"""A web server on loopback that notes its requests."""

from http.server import BaseHTTPRequestHandler

SECRET = "of-the-server-7c1"


class Site(BaseHTTPRequestHandler):
    """A page, and one that sends on to another host."""

    def do_GET(self) -> None:  # the name that the library calls
        self.send_response(302 if self.path == "/away" else 200)
        if self.path == "/away":
            self.send_header("Location", "http://elsewhere.test:9/")
        self.end_headers()
        self.wfile.write(f"{SECRET}\n".encode())

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on the terminal of the tests."""
