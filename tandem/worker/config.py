"""Everything an operator can set on a worker. Unknown keys are errors."""

import logging
import os
import socket

from pydantic import BaseModel, ConfigDict, Field, field_validator

from engine.config import EngineConfig
from proto.tls import TlsConfig
from proto.worker import Role
from proto.worker_name import name_fault
from transfer.ports import listening

log = logging.getLogger(__name__)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AdmissionConfig(_Strict):
    """How far KV is promised to answers whose length is estimated (docs/admission.md). It is the worker's, whoever asks."""

    epsilon: float | None = Field(
        None,
        gt=0,
        lt=0.5,
        description=(
            "Accepted chance that answers outgrow the KV, less the pool, at the worst step. Unset: 0.12, and 0.04 once a worker"
            " has found out that its answers cannot move to another one."
        ),
    )
    pool_share: float = Field(0.02, ge=0, lt=1, description="Share of the KV held back for what goes wrong.")
    spread: float = Field(
        0.1, ge=0, description="Common error of all lengths where estimates are right: its deviation, as a share."
    )
    learn: bool = Field(
        True,
        description="Learn from answers that end and from overruns that came: more of that error, a bias, more caution.",
    )


class WorkerConfig(_Strict):
    worker_id: str = Field("", description="Unique name in the fleet; host and process id when empty.")
    role: Role = Field(Role.BOTH, description="The first role; it can change while the worker runs.")
    host: str = Field("127.0.0.1", description="Where the gRPC server listens.")
    port: int = Field(0, ge=0, le=65535, description="0 picks a free port.")
    advertise_host: str = Field("", description="Host that gateways dial; `host`, or this machine's name, when empty.")
    join: tuple[str, ...] = Field((), description="gRPC addresses (host:port) of the gateways to announce to.")
    nvlink_domain: str = Field("", description="Workers with the same value share an NVLink domain.")
    node: str = Field(
        "", description="Workers with the same value are on one machine. With it, or `rack`, near pairs come first."
    )
    rack: str = Field("", description="Workers with the same value share a rack.")
    numa: str = Field("", description="NUMA node of this worker.")
    drain_s: float = Field(30.0, ge=0, description="How long SIGTERM waits for work in flight and for held tickets.")
    max_pulls: int = Field(16, ge=1, description="KV pulls under way into this worker at once.")
    lease_margin_s: float = Field(0.5, ge=0, description="Tickets with less lease left than this are refused.")
    abandon_s: float = Field(10.0, ge=0, description="How long unused reservations outlive their gateway's stream.")
    admission: AdmissionConfig = AdmissionConfig()
    stall_s: float = Field(120.0, gt=0, description="Work but no engine step for this long makes the worker unhealthy.")
    tls: TlsConfig | None = None
    engine: EngineConfig = EngineConfig()

    @field_validator("worker_id")
    @classmethod
    def _plain(cls, worker_id: str) -> str:
        if worker_id and (fault := name_fault(worker_id)):
            raise ValueError(fault)
        return worker_id

    @property
    def name(self) -> str:
        return self.worker_id or f"{socket.gethostname()}-{os.getpid()}"

    @property
    def dialled_host(self) -> str:
        if self.advertise_host:
            return self.advertise_host
        return socket.gethostname() if self.host in ("0.0.0.0", "::", "[::]", "") else self.host

    def reachable_engine(self) -> EngineConfig:
        """The engine's settings, with its KV where the worker is, unless somebody has said where.

        Peers on other machines would look for it on their own at 127.0.0.1. Engines listen at the very address that they
        tell, so it must be this machine's; behind a translated address `engine.kv_host` has to be set.
        """
        if "kv_host" in self.engine.model_fields_set:
            return self.engine
        try:
            host = str(socket.getaddrinfo(self.dialled_host, None, type=socket.SOCK_STREAM)[0][4][0])
            listening(host, 0).close()
        except OSError as error:
            log.warning("KV is handed over on this machine alone, for want of engine.kv_host: %s", error)
            return self.engine
        return self.engine.model_copy(update={"kv_host": host})
