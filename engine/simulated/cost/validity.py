"""What a table of step times holds for, and whether that is what is asked of it."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from engine.simulated.cost.models import SAME_TIMES, ModelShape

#: No compression of the cache, no speculative decoding: no table here has either.
NONE = "none"


class StaleTableError(ValueError):
    """A table that is not of what is asked; the message names the field, and how to take it as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Validity:
    """Precision of weights and KV, form of attention (`gqa-8x128`, `mla-576`), compression of the cache, speculative decoding,
    hardware. What a table does not say is empty."""

    model: str
    device: str
    weights: str
    kv: str
    attention: str = ""
    compression: str = ""
    speculation: str = ""


def validity_of(shape: ModelShape, device: str) -> Validity:
    """Of a table that is made for that shape. Models that differ in weights alone share one."""
    attention = f"mla-{shape.kv_latent}" if shape.latent else f"gqa-{shape.kv_heads}x{shape.head_dim}"
    return Validity(
        model=SAME_TIMES.get(shape.name, shape.name),
        device=device,
        weights=shape.dtype,
        kv=shape.kv_dtype,
        attention=attention,
        compression=NONE,
        speculation=NONE,
    )


def check(
    name: str, holds_for: Mapping[str, str], asked: Mapping[str, str], accepted: frozenset[str] = frozenset()
) -> None:
    """Every field that is asked must be the table's. Raises StaleTableError."""
    wrong = [key for key, value in asked.items() if key not in accepted and not _same(key, value, holds_for[key])]
    if not wrong:
        return
    held = ", ".join(f"{key}={holds_for[key] or 'nothing said'}" for key in wrong)
    wanted = ", ".join(f"{key}={asked[key]}" for key in wrong)
    raise StaleTableError(
        f"{name}: the table holds for {held}, not for {wanted}; make one that does, or take it as it is with "
        f"accept={','.join(wrong)} in its name"
    )


def _same(key: str, asked: str, held: str) -> bool:
    if key == "model":
        asked = SAME_TIMES.get(asked, asked)
    return asked == held


def digest_of(document: object) -> str:
    """Of a table's whole content: another one was measured, corrected or edited."""
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:12]
