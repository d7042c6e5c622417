"""Mutual TLS as an operator configures it: the one model for gateways and workers."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict


class TlsConfig(BaseModel):
    """Mutual TLS between gateway and workers; all three files are PEM."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cert_file: str
    key_file: str
    ca_file: str

    def obstacle(self) -> str:
        """Which file cannot be read, and why; "" where all can. Not asked when a document is checked, maybe elsewhere."""
        for file in (self.cert_file, self.key_file, self.ca_file):
            try:
                with Path(file).open("rb"):
                    pass
            except OSError as error:
                return f"cannot read {file}: {error.strerror}"
        return ""
