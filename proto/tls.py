"""Mutual TLS as an operator configures it: the one model for gateways and workers."""

import ssl
from pathlib import Path

from pydantic import BaseModel, ConfigDict


class TlsConfig(BaseModel):
    """Mutual TLS between gateway and workers; all three files are PEM."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cert_file: str
    key_file: str
    ca_file: str

    def obstacle(self) -> str:
        """Which file cannot be used, and why; "" where all can. Not asked when a document is checked, maybe elsewhere."""
        for file in (self.cert_file, self.key_file, self.ca_file):
            try:
                with Path(file).open("rb"):
                    pass
            except (OSError, ValueError) as error:
                return f"cannot read {file}: {getattr(error, 'strerror', error)}"
        return _of_chain(self.cert_file, self.key_file) or _of_authority(self.ca_file)


def _of_chain(cert_file: str, key_file: str) -> str:
    """gRPC says of these only that it cannot listen."""
    try:
        # Of a key with a pass phrase: nobody could be asked for it.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert_file, key_file, password="")
    except OSError as error:
        return f"{cert_file} and {key_file} are no certificate and its key (PEM, no pass phrase){_reason(error)}"
    return ""


def _of_authority(ca_file: str) -> str:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(ca_file)
    except OSError as error:
        return f"{ca_file} has no certificate (PEM){_reason(error)}"
    return ""


def _reason(error: OSError) -> str:
    """OpenSSL's, where it names one."""
    reason = getattr(error, "reason", None)
    return f": {str(reason).replace('_', ' ').lower()}" if reason else ""
