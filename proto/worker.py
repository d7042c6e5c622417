"""What a worker is (fixed for an epoch) and how it is doing (streamed)."""

from dataclasses import astuple, dataclass
from enum import StrEnum
from operator import add, sub


class Role(StrEnum):
    """A registry fact, not a launch-time one: any worker can take any role."""

    PREFILL = "prefill"
    DECODE = "decode"
    BOTH = "both"

    @property
    def prefills(self) -> bool:
        return self is not Role.DECODE

    @property
    def decodes(self) -> bool:
        return self is not Role.PREFILL


@dataclass(frozen=True, slots=True)
class RoleChange:
    """Asked: the role to take. Answered: the role before. (gRPC would send a bare StrEnum as bytes.)"""

    role: Role


@dataclass(frozen=True, slots=True)
class Topology:
    """Where a TP group sits; equal strings mean the same place, empty means unknown. `host` may be a container's own name;
    `node` is what the operator calls the machine."""

    host: str
    nvlink_domain: str = ""
    rack: str = ""
    numa: str = ""
    device: str = "cpu"
    transports: tuple[str, ...] = ("tcp",)
    node: str = ""


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """Identity, shape and capacity of one TP group, constant for one epoch."""

    worker_id: str
    epoch: str
    role: Role
    model: str
    model_path: str
    model_hash: str
    revision: str
    dtype: str
    kv_layout: str
    block_size_tokens: int
    blocks_total: int
    kv_bytes_per_token: int
    tp: int
    pp: int
    engine: str
    engine_version: str
    max_model_len: int
    max_num_seqs: int
    eos_token_ids: tuple[int, ...]
    vocab_size: int
    topology: Topology
    kv_lease_s: float
    peer_params: bytes = b""
    hands_over: bool = False  # a running sequence, whatever it was submitted for


@dataclass(frozen=True, slots=True)
class PeerTransfers:
    """KV pulled from one writer since the reader's epoch began."""

    worker_id: str
    transfers: int
    bytes: int
    seconds: float
    failures: int


@dataclass(frozen=True, slots=True)
class StepTotals:
    """Sums over an engine's steps since its epoch began; those that computed parts of prompts (`chunk_…`) are kept apart.

    `answers` and `context_tokens` add up how many answers decoded in each step, and how many tokens of KV they read.
    """

    decode_steps: int = 0
    decode_s: float = 0.0
    answers: int = 0
    context_tokens: int = 0
    chunk_steps: int = 0
    chunk_s: float = 0.0
    chunk_tokens: int = 0
    chunk_answers: int = 0
    chunk_context_tokens: int = 0

    def plus(self, more: "StepTotals") -> "StepTotals":
        return StepTotals(*map(add, astuple(self), astuple(more)))

    def since(self, before: "StepTotals") -> "StepTotals":
        """What came on top of what they were before, in the same epoch."""
        return StepTotals(*map(sub, astuple(self), astuple(before)))

    @property
    def count(self) -> int:
        return self.decode_steps + self.chunk_steps

    @property
    def seconds(self) -> float:
        return self.decode_s + self.chunk_s


@dataclass(frozen=True, slots=True)
class StepLimit:
    """What one gateway lets an engine compute in a step: tokens of all kinds, and of one prompt. It ends by itself after
    `lease_s`. No tokens: this gateway sets no limit, and only asks."""

    gateway_id: str
    step_tokens: int
    chunk_tokens: int
    lease_s: float


@dataclass(frozen=True, slots=True)
class StepReport:
    """Of an engine: the tokens of a step when nobody sets a limit, 0 where it takes none; and what its steps added up to."""

    most_step_tokens: int
    totals: StepTotals


@dataclass(frozen=True, slots=True)
class WorkerState:
    """One snapshot. Counters count since the epoch began; blocks that are cached but evictable are free."""

    epoch: str
    sequence: int
    role: Role
    healthy: bool
    draining: bool
    detail: str
    blocks_total: int
    blocks_used: int
    blocks_reserved: int
    reservations: int
    running: int
    waiting: int
    tickets_held: int
    attached_gateways: int
    sequences: int
    preemptions: int
    recomputed_tokens: int
    prompt_tokens: int
    generated_tokens: int
    cached_prompt_tokens: int
    steps: int
    step_time_s: float
    tickets_issued: int
    tickets_expired: int
    tickets_released: int
    failed_notifications: int
    transfers: tuple[PeerTransfers, ...] = ()
    #: The most that may be held at any future step within the error budget, the chance of exceeding the limit then, and how
    #: much of that chance is accepted now: as declared or found out, less what overruns have cost. 0: not told.
    blocks_promised: float = 0.0
    overrun_risk: float = 0.0
    error_budget: float = 0.0
    #: The emergency pool, on which no promise is made.
    pool_blocks: int = 0
    pool_blocks_used: int = 0
    totals: StepTotals = StepTotals()


@dataclass(frozen=True, slots=True)
class WarmResult:
    """Outcome of a hand-shake with a peer. `bytes_per_s` 0 means not measured."""

    ok: bool
    transport: str
    handshake_s: float
    bytes_per_s: float
    detail: str = ""
