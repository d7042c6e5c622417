"""The one configuration model: a versioned document of gateway, engine and layout.

Layers, weakest first: file (YAML or TOML), environment (TANDEM_SECTION__KEY), flags. Unknown keys are errors.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from engine.config import EngineConfig
from gateway.config import GatewayConfig
from proto.worker import Role
from tandem.config_error import ConfigError, Layer, explain, misspelt_variables
from tandem.document import read_document
from tandem.setting import Setting, applied, deep_update
from tandem.worker.config import WorkerConfig

ENV_PREFIX = "TANDEM_"
ENV_DELIMITER = "__"

#: Keys of the layout section, by what their workers do.
POOL_NAMES = {Role.PREFILL: "prefill", Role.DECODE: "decode", Role.BOTH: "colocated"}


#: Kubernetes: a DNS name and a slash, where there are both, and a name.
_LABEL = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PoolConfig(Section):
    workers: int = Field(0, ge=0, description="How many workers; each is one TP group.")
    tp: int | None = Field(None, ge=1, description="Tensor-parallel degree; `engine.tp` when unset.")
    engine: dict[str, Any] = Field(
        default_factory=dict, description="Keys of the engine section that differ in this pool."
    )


class LayoutConfig(Section):
    """Which workers run. With no worker named anywhere it is one prefill and one decode worker."""

    prefill: PoolConfig = PoolConfig()
    decode: PoolConfig = PoolConfig()
    colocated: PoolConfig = PoolConfig()
    gpus_per_node: int = Field(8, ge=1, description="GPUs of one machine, which exchange over NVLink.")
    tp_across_nodes: bool = Field(
        False,
        description="Allow a TP degree above `gpus_per_node`: ranks then exchange over the network in each layer.",
    )
    near: str = Field(
        "",
        description=(
            "Kubernetes: pools that hand KV to each other are put where nodes have the same value of this label, as far as"
            " there is room, e.g. topology.kubernetes.io/zone."
        ),
    )

    @field_validator("near")
    @classmethod
    def _a_label(cls, near: str) -> str:
        if near and not _LABEL.fullmatch(near):
            raise ValueError("is no key of a Kubernetes label, such as topology.kubernetes.io/zone")
        return near

    @model_validator(mode="after")
    def _someone_decodes(self) -> Self:
        if self.prefill.workers and not (self.decode.workers or self.colocated.workers):
            raise ValueError("a prefill pool needs at least one decode (or colocated) worker to hand over to")
        if self.decode.workers and not (self.prefill.workers or self.colocated.workers):
            raise ValueError("a decode pool needs at least one prefill (or colocated) worker; or use colocated alone")
        return self

    def pool(self, role: Role) -> PoolConfig:
        return {Role.PREFILL: self.prefill, Role.DECODE: self.decode, Role.BOTH: self.colocated}[role]

    def workers(self, role: Role) -> int:
        if self.prefill.workers or self.decode.workers or self.colocated.workers:
            return self.pool(role).workers
        return 0 if role is Role.BOTH else 1


class SupervisorConfig(Section):
    run_dir: str = Field(".run", description="Logs and the state file of `tandem up`, one folder a port.")
    start_timeout_s: float = Field(900.0, gt=0, description="Until /readyz says yes; loading a model takes long.")
    stop_timeout_s: float = Field(30.0, gt=0, description="After the drain, until a child is killed.")
    restart_backoff_s: float = Field(1.0, gt=0, description="Before a dead child is started again; doubles.")
    restart_backoff_max_s: float = Field(30.0, gt=0)
    restarts_max: int = Field(5, ge=0, description="Restarts of one child within the window; then it stays down.")
    restart_window_s: float = Field(600.0, gt=0)


class TandemConfig(BaseSettings):
    """Everything `tandem up` needs to know. Frozen; made by `load`, which also merges the layers."""

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, env_prefix=ENV_PREFIX, env_nested_delimiter=ENV_DELIMITER
    )

    version: Literal[1] = Field(1, description="Version of this document's format.")
    gateway: GatewayConfig = GatewayConfig()
    engine: EngineConfig = EngineConfig()
    worker: WorkerConfig = WorkerConfig()
    layout: LayoutConfig = LayoutConfig()
    supervisor: SupervisorConfig = SupervisorConfig()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # `load` reads the environment itself, so that an error can say which layer it came from
        return (init_settings,)

    @model_validator(mode="after")
    def _one_place_for_engines(self) -> Self:
        if self.worker.engine != EngineConfig():
            raise ValueError("worker.engine: set the engine section, or layout.POOL.engine")
        return self

    @model_validator(mode="after")
    def _pools_are_engines(self) -> Self:
        for name, pool in (
            ("prefill", self.layout.prefill),
            ("decode", self.layout.decode),
            ("colocated", self.layout.colocated),
        ):
            try:
                self._merged(pool)
            except ValidationError as e:
                raise ConfigError.nested(e, ("layout", name, "engine"), EngineConfig) from e
        return self

    @model_validator(mode="after")
    def _groups_stay_on_their_node(self) -> Self:
        layout = self.layout
        for role, name in POOL_NAMES.items():
            tp = self.engine_of(role).tp if layout.workers(role) else 1
            if tp > layout.gpus_per_node and not layout.tp_across_nodes:
                raise ValueError(
                    f"layout.{name}: TP{tp} does not fit a node of {layout.gpus_per_node} GPUs (layout.gpus_per_node): its "
                    "ranks would exchange over the network in each layer. Use more workers of a smaller degree, or say "
                    "layout.tp_across_nodes: true"
                )
        return self

    def engine_of(self, role: Role) -> EngineConfig:
        """The engine section with the overrides of the role's pool."""
        return self._merged(self.layout.pool(role))

    def worker_of(self, role: Role, **own: Any) -> WorkerConfig:
        """The worker section for one process: its role's engine, and what only that process has."""
        return self.worker.model_copy(update={"role": role, "engine": self.engine_of(role)} | own)

    def _merged(self, pool: PoolConfig) -> EngineConfig:
        keys = self.engine.model_dump(exclude_unset=True) | pool.engine
        if pool.tp is not None:
            keys["tp"] = pool.tp
        return EngineConfig.model_validate(keys)


def load(
    file: Path | None = None, flags: Mapping[str, Any] | None = None, settings: Sequence[Setting] = ()
) -> TandemConfig:
    """Merges file, environment, flags and settings, which are flags too. Raises ConfigError naming every bad key and where it
    was set."""
    layers: list[Layer] = []
    if file is not None:
        layers.append(Layer(str(file), read_document(file)))
    misspelt_variables(os.environ, ENV_PREFIX, ENV_DELIMITER, TandemConfig)
    try:
        layers.append(Layer("environment", EnvSettingsSource(TandemConfig)()))
    except SettingsError as e:
        raise ConfigError([f"environment: {e}"]) from e
    layers.append(Layer("flags", _without_none(flags or {})))
    merged: dict[str, Any] = {}
    for layer in layers:
        merged = deep_update(merged, layer.values)
    for setting in settings:
        merged = applied(merged, setting, TandemConfig)
        layers[-1] = Layer("flags", deep_update(layers[-1].values, setting.nested))
    try:
        return TandemConfig(**merged)
    except ValidationError as e:
        raise ConfigError(explain(e, TandemConfig, layers)) from e


def plain(config: BaseModel) -> dict[str, Any]:
    """What has been set as plain data, secrets included: for a child process, never for a screen.

    Defaults are left out, because an engine's own (a profile's, a model's) go before them.
    """
    revealed: dict[str, Any] = _reveal(config.model_dump(mode="python", exclude_unset=True))
    return revealed


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    """Flags that were not given are None and must not hide what a lower layer says."""
    kept: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            value = _without_none(value)
            if not value:
                continue
        if value is not None:
            kept[key] = value
    return kept


def _reveal(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, Mapping):
        return {key: _reveal(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_reveal(item) for item in value]
    return value
