"""Whether simulated engines could start, before anything is."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tandem.cli.failure import CliError, Exit

if TYPE_CHECKING:
    from engine.config import EngineConfig


def require_simulated(engines: Iterable["EngineConfig"]) -> None:
    """All that is checked of them here. Raises CliError."""
    for engine in engines:
        for require in (require_profiles, require_scripts, require_vocabularies):
            require([engine])


def require_profiles(engines: Iterable["EngineConfig"]) -> None:
    """What is wrong with a profile would otherwise be said by a worker that dies. Raises CliError."""
    from engine.simulated.setup import profile_of

    for engine in _simulated(engines):
        try:
            profile_of(engine)
        except (ValueError, OSError) as error:
            raise _wrong("engine.profile", error) from error


def require_scripts(engines: Iterable["EngineConfig"]) -> None:
    """So would what is wrong with a fault script. Raises CliError."""
    from engine.simulated.faults import FaultScriptError, read_script

    for engine in _simulated(engines):
        try:
            if engine.faults:
                read_script(engine.faults)
        except FaultScriptError as error:
            raise _wrong("engine.faults", error) from error


def require_vocabularies(engines: Iterable["EngineConfig"]) -> None:
    """And what is wrong with a model's files: the gateway's tokenizer is asked for the model of real engines alone. Raises
    CliError."""
    from engine.simulated.vocabulary import load_vocabulary

    for engine in _simulated(engines):
        try:
            load_vocabulary(engine.model, 0, ())
        except ValueError as error:
            raise _wrong("engine.model", error) from error


def _simulated(engines: Iterable["EngineConfig"]) -> Iterator["EngineConfig"]:
    from engine.config import Backend

    return (engine for engine in engines if engine.backend is Backend.SIMULATED)


def _wrong(key: str, error: Exception) -> CliError:
    return CliError(Exit.CONFIG, f"{key}: {' '.join(str(error).split())}")
