"""tandem manifest"""

import re
from pathlib import Path
from typing import Annotated

import typer

from tandem.cli.failure import CliError, Exit, config_errors, warn
from tandem.cli.planned import require_model

#: With what is made of it, at most the 63 letters of a host's name.
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
MOST_GATEWAYS = 100


def manifest(
    document: Annotated[Path, typer.Argument(metavar="FILE", help="A layout document, such as tandem plan writes.")],
    image: Annotated[str, typer.Option(metavar="IMAGE", help="Has the tandem command and the model.")],
    name: Annotated[str, typer.Option(metavar="NAME", help="Of everything that is made.")] = "tandem",
    gateways: Annotated[
        int, typer.Option(metavar="N", min=1, max=MOST_GATEWAYS, help="Every worker joins each of them.")
    ] = 1,
) -> None:
    """
    Print a layout document as Kubernetes manifests.

    Example:

      tandem manifest plan/layout.yaml --image registry/tandem:1 |
        kubectl apply -f -
    """
    import yaml

    from tandem.config import load
    from tandem.document import is_toml, read_document
    from tandem.fleet import kubernetes

    if not image.strip():
        raise CliError(Exit.USAGE, "--image is empty; name an image that has the tandem command and the model")
    if not _NAME.fullmatch(name):
        raise CliError(
            Exit.USAGE,
            f"--name {name!r}: up to 40 small letters, digits and hyphens, a letter first and no hyphen last",
        )
    with config_errors():
        config = load(document)
    require_model(config, f"add to {document}: engine: {{model: DIR}}, or engine: {{backend: simulated}} to imitate it")
    if config.gateway.api_keys:
        warn(
            f"the API keys of {document} are in the config map as they are; TANDEM_GATEWAY__API_KEYS of a secret is safer"
        )
    with config_errors():
        text = yaml.safe_dump(read_document(document), sort_keys=False) if is_toml(document) else document.read_text()
    typer.echo(kubernetes(config, text, image, name, gateways), nl=False)
