"""A throw-away certificate authority."""

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Files:
    cert_file: str
    key_file: str
    ca_file: str


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def make(directory: Path, name: str) -> Files:
    """An authority called `name` and one certificate that it signed for 127.0.0.1."""
    ca_key, ca = str(directory / f"{name}-ca.key"), str(directory / f"{name}-ca.pem")
    key, request, cert = (str(directory / f"{name}.{suffix}") for suffix in ("key", "csr", "pem"))
    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    _openssl("req", "-x509", *new_key, "-keyout", ca_key, "-out", ca, "-days", "2", "-subj", f"/CN={name} ca")
    _openssl("req", *new_key, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
    extensions = directory / f"{name}.ext"
    extensions.write_text("subjectAltName=IP:127.0.0.1\n")
    _openssl(
        "x509", "-req", "-in", request, "-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-out", cert, "-days", "2",
        "-extfile", str(extensions),
    )  # fmt: skip
    return Files(cert, key, ca)
