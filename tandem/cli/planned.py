"""A layout that was planned for some model, and names none: the demo model, served in its place, was not meant."""

from typing import TYPE_CHECKING

from tandem.cli.failure import CliError, Exit

if TYPE_CHECKING:
    from tandem.config import TandemConfig


def require_model(config: "TandemConfig", fix: str = "add --model DIR, or --engine simulated to imitate it") -> None:
    """Raises CliError where a real engine is asked for by the profile of a simulated one alone."""
    from engine.config import Backend
    from proto.worker import Role

    for role in Role:
        engine = config.engine_of(role)
        if config.layout.workers(role) and engine.backend is Backend.VLLM and engine.profile and not engine.model:
            planned = engine.profile.partition("?")[0]
            raise CliError(Exit.CONFIG, f"the layout is for {planned} (engine.profile) and names no model; {fix}")
