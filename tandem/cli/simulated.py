"""Whether simulated engines could start, before anything is."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tandem.cli.failure import CliError, Exit

if TYPE_CHECKING:
    from engine.config import EngineConfig


def require_profiles(engines: Iterable["EngineConfig"]) -> None:
    """What is wrong with a profile would otherwise be said by a worker that dies. Raises CliError."""
    from engine.config import Backend

    for engine in engines:
        if engine.backend is Backend.SIMULATED:
            _require_profile(engine)


def _require_profile(engine: "EngineConfig") -> None:
    from engine.simulated.setup import profile_of

    try:
        profile_of(engine)
    except (ValueError, OSError) as error:
        raise CliError(Exit.CONFIG, f"engine.profile: {' '.join(str(error).split())}") from error
