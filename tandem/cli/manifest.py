"""tandem manifest"""

from pathlib import Path
from typing import Annotated

import typer

from tandem.cli.failure import config_errors
from tandem.cli.planned import require_model


def manifest(
    document: Annotated[Path, typer.Argument(metavar="FILE", help="A layout document, such as tandem plan writes.")],
    image: Annotated[str, typer.Option(metavar="IMAGE", help="Has the tandem command and the model.")],
    name: Annotated[str, typer.Option(metavar="NAME", help="Of everything that is made.")] = "tandem",
    gateways: Annotated[int, typer.Option(metavar="N", min=1, help="Every worker joins each of them.")] = 1,
) -> None:
    """
    Print a layout document as Kubernetes manifests.

    Example: tandem manifest plan/layout.yaml --image registry/tandem:1 | kubectl apply -f -
    """
    from tandem.config import load
    from tandem.fleet import kubernetes

    with config_errors():
        config = load(document)
    require_model(config, f"add to {document}: engine: {{model: DIR}}, or engine: {{backend: simulated}} to imitate it")
    typer.echo(kubernetes(config, document.read_text(), image, name, gateways), nl=False)
