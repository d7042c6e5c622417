"""Rebuilds the tables of one device: python -m engine.simulated.cost.tabulate [MODEL ...]. Takes a minute."""

import sys
import time
from importlib.metadata import version
from pathlib import Path

from engine.simulated.cost.models import SHAPES
from engine.simulated.cost.table import Table, write_table
from engine.simulated.cost.tabulate.layout import build_layout
from engine.simulated.cost.tabulate.recipes import RECIPES, source_of
from engine.simulated.cost.tabulate.source import BACKEND, DATABASE, SYSTEM
from engine.simulated.cost.validity import validity_of

DEFAULT_DIRECTORY = Path(__file__).parents[1] / "tables" / "h200-sxm"
_DEVICE = "h200_sxm"
_GPU_BYTES = 151_397_597_184
#: Bytes a second of one GPU and direction, and latency. TCP stands for a 100 Gbit/s host network.
_LINKS = {"nvlink": (450e9, 10e-6), "rdma": (50e9, 10e-6), "tcp": (12.5e9, 50e-6)}


def build(name: str) -> Table:
    shape = SHAPES[name]
    layouts = []
    for tp, ep in RECIPES[name].layouts:
        started = time.monotonic()
        layouts.append(build_layout(source_of(name, tp, ep), tp, ep, latent=bool(shape.kv_latent)))
        print(f"{name} tp={tp} ep={ep}: {time.monotonic() - started:.0f} s", flush=True)
    source = {
        "name": "aiconfigurator-core",
        "version": version("aiconfigurator-core"),
        "system": SYSTEM,
        "database": f"{BACKEND} {DATABASE}",
        "licence": "Apache-2.0",
    }
    valid_for = validity_of(shape, _DEVICE)
    return Table(_DEVICE, name, source, tuple(layouts), _LINKS, _GPU_BYTES, valid_for=valid_for)


def main(names: list[str]) -> None:
    DEFAULT_DIRECTORY.mkdir(parents=True, exist_ok=True)
    for name in names or list(RECIPES):
        write_table(build(name), DEFAULT_DIRECTORY / f"{name}.json.gz")


if __name__ == "__main__":
    main(sys.argv[1:])
