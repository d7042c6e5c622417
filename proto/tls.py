"""Mutual TLS as an operator configures it: the one model for gateways and workers."""

from pydantic import BaseModel, ConfigDict


class TlsConfig(BaseModel):
    """Mutual TLS between gateway and workers; all three files are PEM."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cert_file: str
    key_file: str
    ca_file: str
