"""API keys: which tenant a request belongs to."""

import hashlib
import hmac

from starlette.types import Scope

from gateway.config import GatewayConfig
from gateway.request.errors import Reason, RequestError

OPEN_PATHS = frozenset({"/livez", "/health", "/readyz", "/metrics", "/openapi.json", "/docs"})


class Keys:
    """Compares digests of equal length, all of them every time, so that time tells nothing about any key."""

    def __init__(self, config: GatewayConfig) -> None:
        self._share = config.share_prefix_cache
        self._operators = frozenset(config.operators)
        self._digests = [
            (tenant, hashlib.sha256(key.get_secret_value().encode()).digest())
            for tenant, key in config.api_keys.items()
        ]

    def tenant(self, scope: Scope) -> str:
        """Raises INVALID_API_KEY; "" where no keys are configured."""
        if not self._digests:
            return ""
        found = self.known(scope)
        if found is None:
            raise RequestError(
                Reason.INVALID_API_KEY,
                "Missing or wrong API key. Send one the gateway knows as `Authorization: Bearer KEY`.",
            )
        return found

    def known(self, scope: Scope) -> str | None:
        """The tenant of the key that was sent, if it was a right one."""
        given = hashlib.sha256(_bearer(scope)).digest()
        found = None
        for tenant, digest in self._digests:
            if hmac.compare_digest(given, digest):
                found = tenant
        return found

    def cleared(self, tenant: str) -> bool:
        """Whether this tenant may see and change the cluster; everyone may where no keys are configured."""
        return not self._digests or tenant in self._operators

    def cache_salt(self, tenant: str, client_salt: str | None) -> str:
        """Prefixes are shared within a tenant and a client's salt only: timing tells nothing about other tenants'."""
        if self._share:
            return client_salt or ""
        if not tenant and not client_salt:
            return ""
        text = f"{len(tenant)}:{tenant}{client_salt or ''}"
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _bearer(scope: Scope) -> bytes:
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, key = bytes(value).partition(b" ")
            return key.strip() if scheme.lower() == b"bearer" else b""
    return b""
