"""Clients that leave in every phase, in every order: all counts return to zero, and who stays is answered right."""

import asyncio
import random

import pytest

from decode_pool.ledger import MAX_TTL_S
from engine.simulated import reader
from proto.fault import FaultKind
from proto.work import PrefillDone
from proto.worker import Role
from tandem.worker.integrity import drift
from tests.tandem.worker.harness import Served, Stream, prompt, serve, until, work
from tests.waiting import HANG_S

PHASES = ["reserved", "prefilling", "handed_off", "started", "decoding", "done"]


class Request:
    """One remote request of a gateway that may leave after any phase, giving back what it knows of."""

    def __init__(self, number: int, leaves: str, chance: random.Random) -> None:
        self.name = f"r{number}"
        self.seed = number
        self.length = chance.randint(1, 200)
        self.max_tokens = chance.randint(2, 40)
        self.leaves = leaves
        self.delay = chance.random() * 0.02
        self.tokens: tuple[int, ...] = ()

    async def run(self, prefill: Served, decode: Served, stream: Stream) -> None:
        reservation = await decode.client.reserve(self.length, self.max_tokens, ttl_s=MAX_TTL_S)
        try:
            if self.leaves == "reserved":
                return
            done = await self._prefill(prefill)
            if done is None:
                return
            assert done.ticket is not None
            if self.leaves == "handed_off":
                await prefill.client.release_ticket(done.ticket)
                return
            replay = work(self.name, self.length, self.max_tokens, self.seed)
            sequence = await stream.start(reservation, replay, done.ticket)
            await self._decode(stream, sequence)
        finally:
            await decode.client.release_reservation(reservation)
        await stream.heard()
        fault = stream.stories[sequence].fault
        if fault is not None:  # the release came before the start, and the ticket is its gateway's again
            assert fault.kind is FaultKind.RESERVATION_UNKNOWN
            await prefill.client.release_ticket(done.ticket)

    async def _prefill(self, prefill: Served) -> PrefillDone | None:
        call = prefill.client.prefill_stub(work(self.name, self.length, 1, self.seed))
        if self.leaves == "prefilling":
            await asyncio.sleep(self.delay)
            call.cancel()
            await prefill.client.release_work(self.name)
            return None
        reply = await call
        assert isinstance(reply, PrefillDone), reply
        return reply

    async def _decode(self, stream: Stream, sequence: int) -> None:
        story = stream.stories[sequence]
        if self.leaves == "started":
            await asyncio.sleep(self.delay / 4)
            await stream.abort(sequence)
        elif self.leaves == "decoding":
            await story.some()
            await asyncio.sleep(self.delay)
            await stream.abort(sequence)
        else:
            self.tokens = (await story.end()).tokens


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
async def test_b30_200_clients_leaving_in_every_phase_leave_nothing_and_the_next_is_served(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "CALL_TIMEOUT_S", HANG_S)  # what takes so long on a busy machine is not lost
    chance = random.Random(seed)
    requests = [Request(number, chance.choice(PHASES), chance) for number in range(200)]
    room = asyncio.Semaphore(40)
    async with (
        serve(Role.PREFILL, kv_lease_s=10 * HANG_S) as prefill,
        serve(Role.DECODE) as decode,
        decode.client.attached() as stream,
    ):

        async def one(request: Request) -> None:
            async with room:
                await request.run(prefill, decode, stream)

        async with asyncio.TaskGroup() as group:
            for request in requests:
                group.create_task(one(request))
        await decode.quiet(HANG_S)  # leases and reservations last for longer
        await prefill.quiet(HANG_S)
        assert decode.worker.state.counts().idle
        assert not drift(decode.worker.state.counts())
        stayed = [request for request in requests if request.leaves == "done"]
        assert len(stayed) > 20
        for request in stayed[:20]:
            sequence = await stream.start(
                await decode.client.reserve(request.length, request.max_tokens),
                work("alone", request.length, request.max_tokens, request.seed),
            )
            assert (await stream.stories[sequence].end()).tokens == request.tokens


@pytest.mark.slow
async def test_b37_streams_that_break_at_random_moments_leave_nothing() -> None:
    chance = random.Random(3)
    async with serve(Role.PREFILL) as prefill, serve(Role.DECODE, worker={"abandon_s": 0.05}) as decode:
        for _ in range(15):
            async with decode.client.attached() as stream:
                for number in range(6):
                    length = chance.randint(1, 100)
                    done = await prefill.client.prefill(work(f"p{number}", length, 1, number))
                    await stream.start(
                        await decode.client.reserve(length, 500), work(f"d{number}", length, 500, number), done.ticket
                    )
                await stream.heard()  # only their gateway could give back the tickets of starts that were never read
                await asyncio.sleep(chance.random() * 0.03)
        await decode.quiet()
        await prefill.quiet()
        assert decode.worker.decode.attached == 0


@pytest.mark.parametrize("leaves", PHASES)
async def test_b34_leaving_in_each_phase_alone_is_clean_within_a_second(leaves: str) -> None:
    async with serve(Role.PREFILL) as prefill, serve(Role.DECODE) as decode, decode.client.attached() as stream:
        await Request(1, leaves, random.Random(1)).run(prefill, decode, stream)
        await asyncio.gather(decode.quiet(1.0), prefill.quiet(1.0))


@pytest.mark.slow
async def test_a_both_worker_hands_off_to_itself() -> None:
    async with serve(Role.BOTH) as served, served.client.attached() as stream:
        request = Request(1, "done", random.Random(1))
        await request.run(served, served, stream)
        assert len(request.tokens) == request.max_tokens
        await served.quiet()
        await until(lambda: len(served.worker.prefill.leases) == 0)
        assert len(prompt(request.length)) == request.length
