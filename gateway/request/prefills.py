"""The prefill leg of a prompt on the worker that suits it best, and what becomes of its tokens."""

import asyncio
from dataclasses import replace

from gateway.cluster.worker import Worker
from gateway.policy.prefill_choice import choose_prefill
from gateway.policy.prefix import PrefixKey
from gateway.request.errors import Reason
from gateway.request.failures import LegFailure, prefill_failure
from gateway.request.holds import ReservationHold
from gateway.request.job import Job
from gateway.request.legs import Carried, Leg, Mode, begin_leg, begun_tokens, judge_carried, prefill_leg, remote_mode
from gateway.request.merge import Merge, MergeError
from gateway.request.phase import Phase
from gateway.request.prefilling import Prefilled, begin, prefill, while_reserved
from proto.fault import Fault, FaultKind
from proto.work import FinishReason, PrefillDone, Work


class Prefills:
    """`avoid`: workers that come last, as it stands when one is chosen. `enough` is set when nobody wants more of the answers."""

    def __init__(self, job: Job, prompt: int, merge: Merge, prefix: PrefixKey, avoid: set[str]) -> None:
        self.enough: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._job = job
        self._prompt = prompt
        self._merge = merge
        self._prefix = prefix
        self._avoid = avoid

    async def run(self, hold: ReservationHold, leg: Leg, failed: set[str]) -> Prefilled | None:
        """One prefill leg and what becomes of its tokens; None when nobody wants more of the answer."""
        worker, job = self._worker(hold, failed), self._job
        job.record.prefill_worker = worker.worker_id
        job.enter(self._prompt, Phase.PREFILLING)
        size = worker.info.block_size_tokens
        if hold.trip is not None:
            hold.trip.computing(worker.worker_id)
        wanted = hold.placement.first_tokens or job.config.routing.handoff_after_tokens
        first = begun_tokens(leg, wanted, size, worker.info.max_model_len)
        if first > 1:
            return await self._begin(hold, worker, begin_leg(leg, first))
        mode = remote_mode(job.intent, len(leg.tokens), size)
        prefilled = await while_reserved(hold, prefill(job, worker, prefill_leg(leg, mode), mode), self.enough)
        if prefilled is None:
            return None
        if hold.trip is not None:
            hold.trip.prefilled()
        self._merge.origin.learn(prefilled.done.cached_tokens, prefilled.done.prompt_logprobs)
        if mode is Mode.REPLAY:
            if prefilled.held is None:
                raise self._missing(worker)
            return prefilled
        try:
            return self._carry(leg, prefilled, worker)
        except LegFailure:
            prefilled.release()
            raise

    async def _begin(self, hold: ReservationHold, worker: Worker, work: Work) -> Prefilled | None:
        """A prefill leg that gives the first tokens, which are shown as they come."""
        merge = self._merge

        def show(part: PrefillDone) -> None:
            if hold.trip is not None:
                hold.trip.prefilled()
            if (piece := merge.begin(part)) is not None:
                self._job.push(piece)

        prefilled = await while_reserved(hold, begin(self._job, worker, work, show), self.enough)
        if prefilled is not None and prefilled.held is None and not merge.ended:
            raise self._missing(worker)
        return prefilled

    def _carry(self, leg: Leg, prefilled: Prefilled, worker: Worker) -> Prefilled:
        """Shows the prefill leg's token, unless it turns out that it must be drawn again."""
        done, merge = prefilled.done, self._merge
        if len(done.tokens) != 1:
            error = MergeError(f"the prefill leg returned {len(done.tokens)} tokens instead of one")
            raise prefill_failure(error, worker.worker_id, 0.0)
        verdict = judge_carried(done.tokens[0], leg.sampling, worker.info.eos_token_ids)
        finish = {Carried.STOP: FinishReason.STOP, Carried.LENGTH: FinishReason.LENGTH}.get(verdict)
        if finish is None and prefilled.held is None:
            raise self._missing(worker)
        if verdict is Carried.REPLAY:
            return replace(prefilled, mode=Mode.REPLAY)
        try:
            piece = merge.carry(done, finish)
        except MergeError as error:
            worker.health.fault("prefill", FaultKind.INTERNAL, str(error))
            raise prefill_failure(error, worker.worker_id, 0.0) from error
        self._job.push(piece)
        return prefilled

    def _missing(self, worker: Worker) -> LegFailure:
        message = f"prefill on {worker.worker_id} ended without hand-off parameters"
        fault = Fault(FaultKind.HANDOFF_MISSING, message)
        worker.health.fault("prefill", fault.kind, message)
        return LegFailure(Phase.PREFILLING, Reason.HANDOFF_FAILED, message, worker.worker_id, fault)

    def _worker(self, hold: ReservationHold, failed: set[str]) -> Worker:
        fleet = self._job.cluster.fleet(self._prefix)
        decode = hold.worker
        partners = [one for one in fleet.partners(decode.worker_id) if one.worker_id not in failed]
        chosen: str | None = hold.placement.prefill_id
        if chosen in self._avoid or chosen not in {one.worker_id for one in partners}:
            chosen = choose_prefill(
                len(self._job.intent.prompts[self._prompt]),
                decode.info.kv_bytes_per_token,
                partners,
                fleet.links.get(decode.worker_id, {}),
                avoid=self._avoid,
            )
        worker = self._job.cluster.worker(chosen) if chosen else None
        if worker is None:
            message = f"no prefill worker with a usable pair to {decode.worker_id} is left"
            raise LegFailure(Phase.PREFILLING, Reason.NO_PREFILL_WORKER, message, "")
        pair = self._job.cluster.pairs.get(worker.worker_id, decode.worker_id)
        self._job.record.transport = pair.transport if pair else ""
        return worker
