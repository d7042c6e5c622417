"""The flags of an engine, which `up`, `worker` and `profile` share."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from typing import Any, get_type_hints

from tandem.cli import options


@dataclass(frozen=True, slots=True)
class EngineFlags:
    """What was said about the engine; None is "not said"."""

    model: options.Model = None
    engine: options.EngineName = None
    served_name: options.ServedName = None
    profile: options.Profile = None
    speedup: options.Speedup = None
    dtype: options.Dtype = None
    max_model_len: options.MaxModelLen = None
    max_num_seqs: options.MaxNumSeqs = None
    block_size: options.BlockSize = None
    kv_cache_gib: options.KvCacheGib = None
    gpu_memory_utilization: options.GpuMemory = None
    prefix_caching: options.PrefixCaching = None
    link: options.Link = None

    def settings(self) -> dict[str, Any]:
        """Of the section `engine` of the configuration."""
        return {_SETTINGS.get(f.name, f.name): getattr(self, f.name) for f in fields(self)}


#: Settings that are called otherwise than their flags.
_SETTINGS = {"engine": "backend", "block_size": "block_size_tokens", "prefix_caching": "enable_prefix_caching"}


def with_engine_flags(*without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Turns the parameter `engine_flags` of a command into the flags, but for those it goes without."""
    names = [f.name for f in fields(EngineFlags) if f.name not in without]
    annotations = get_type_hints(EngineFlags, include_extras=True)
    flags = [
        inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotations[n]) for n in names
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own, hints = inspect.signature(command), get_type_hints(command, include_extras=True)
        parameters: list[inspect.Parameter] = []
        for each in own.parameters.values():
            parameters += flags if each.name == "engine_flags" else [each.replace(annotation=hints[each.name])]

        @wraps(command)
        def wrapper(**given: Any) -> None:
            command(engine_flags=EngineFlags(**{n: given.pop(n) for n in names}), **given)

        wrapper.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]  # typer reads it, the type of functions lacks it
        wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
        return wrapper

    return decorate
