"""A remote tool server and the issuer of its tokens, at one address on loopback."""

import base64
import json
from urllib.parse import parse_qs, urlencode, urlsplit

from tests.support.http_script import Asked, answer


def jwt(audience: object) -> str:
    parts = ({"alg": "ES256"}, {"aud": audience})
    return (
        ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + ".c2ln"
    )


class Issuer:
    """A tool server and its issuer at one address. `wrong` replaces parts of what they say."""

    def __init__(self, **wrong) -> None:
        self.wrong = wrong
        self.url = ""
        self.tokens: list[dict] = []
        self.revoked: list[dict] = []

    async def script(self, request: Asked) -> bytes:
        said = getattr(
            self,
            f"_{urlsplit(request.path).path.strip('/').replace('-', '_').replace('.', '').partition('/mcp')[0].replace('/', '_')}",
            None,
        )
        return said(request) if said else answer(404)

    def _mcp(self, request: Asked) -> bytes:
        if request.headers.get("authorization"):
            return answer(200, {"jsonrpc": "2.0", "id": 1, "result": {}})
        about = self.wrong.get("about", f"{self.url}/.well-known/oauth-protected-resource/mcp")
        return answer(401, WWW_Authenticate=f'Bearer resource_metadata="{about}", scope="read"')

    def _well_known_oauth_protected_resource(self, request: Asked) -> bytes:
        resource = self.wrong.get("resource", f"{self.url}/mcp")
        return answer(
            200, {"resource": resource, "authorization_servers": [self.wrong.get("server", f"{self.url}/as")]}
        )

    def _well_known_oauth_authorization_server_as(self, request: Asked) -> bytes:
        said = {
            "issuer": f"{self.url}/as",
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "revocation_endpoint": f"{self.url}/revoke",
            "registration_endpoint": f"{self.url}/register",
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
            "response_types_supported": ["code"],
        }
        return answer(
            200, {name: each for name, each in {**said, **self.wrong.get("metadata", {})}.items() if each is not None}
        )

    def _authorize(self, request: Asked) -> bytes:
        """Do what an issuer does after the user agreed: lead the browser back."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(request.path).query).items()}
        back = urlencode({"code": "code-canary-1", "state": asked["state"], "iss": f"{self.url}/as"})
        return answer(302, Location=f"{asked['redirect_uri']}?{back}")

    def _register(self, request: Asked) -> bytes:
        return answer(201, {**request.json(), "client_id": "made-by-the-issuer", "token_endpoint_auth_method": "none"})

    def _revoke(self, request: Asked) -> bytes:
        self.revoked.append({name: values[0] for name, values in parse_qs(request.body.decode()).items()})
        return self.wrong.get("revoked", answer(200))

    def _token(self, request: Asked) -> bytes:
        self.tokens.append({name: values[0] for name, values in parse_qs(request.body.decode()).items()})
        if "token_answer" in self.wrong:
            return self.wrong["token_answer"](self)
        given = {
            "access_token": "access-canary-1",
            "token_type": "Bearer",
            "expires_in": 3600,
            "refresh_token": "refresh-canary-1",
        }
        return answer(200, {**given, **self.wrong.get("tokens", {})})
