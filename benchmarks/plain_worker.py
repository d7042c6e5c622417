"""Workers as a gateway would hear of them, for benchmarks that have no cluster."""

from proto.worker import Role, Topology, WorkerInfo, WorkerState


def plain_info(worker_id: str, *, blocks: int, block_size: int, slots: int, window: int) -> WorkerInfo:
    """One that does both phases."""
    return WorkerInfo(
        worker_id=worker_id,
        epoch="e",
        role=Role.BOTH,
        model="m",
        model_path="",
        model_hash="h",
        revision="r",
        dtype="bfloat16",
        kv_layout="NHD",
        block_size_tokens=block_size,
        blocks_total=blocks,
        kv_bytes_per_token=1,
        tp=1,
        pp=1,
        engine="none",
        engine_version="",
        max_model_len=window,
        max_num_seqs=slots,
        eos_token_ids=(),
        vocab_size=1,
        topology=Topology("here"),
        kv_lease_s=30.0,
    )


def plain_state(*, blocks: int, reserved: int, promised: float, pool: int) -> WorkerState:
    """What it says of its KV; nothing else is known of it."""
    return WorkerState(
        epoch="e",
        sequence=0,
        role=Role.BOTH,
        healthy=True,
        draining=False,
        detail="",
        blocks_total=blocks,
        blocks_used=0,
        blocks_reserved=reserved,
        reservations=0,
        running=0,
        waiting=0,
        tickets_held=0,
        attached_gateways=1,
        sequences=0,
        preemptions=0,
        recomputed_tokens=0,
        prompt_tokens=0,
        generated_tokens=0,
        cached_prompt_tokens=0,
        steps=0,
        step_time_s=0.0,
        tickets_issued=0,
        tickets_expired=0,
        tickets_released=0,
        failed_notifications=0,
        blocks_promised=promised,
        pool_blocks=pool,
    )
