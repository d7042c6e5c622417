"""A running sequence that goes on at another worker: its ticket comes with its last news, and nothing is held or charged twice."""

import pytest

from decode_pool.attachment import Attachment
from engine.dispatcher import News, Owner
from proto.ticket import Ticket
from proto.work import FinishReason, HandOver, Start
from proto.worker import Role
from tests.decode_pool.inside import answer_alone
from tests.tandem.worker.harness import Served, Story, Stream, serve, until, work
from transfer.leases import LeaseState


async def handed_over(served: Served, stream: Stream, name: str = "m") -> tuple[tuple[int, ...], Ticket]:
    """A sequence of 400 tokens that was asked for its ticket after the first; what came of it."""
    sequence = await stream.start(await served.client.reserve(20, 400), work(name, 20, 400))
    await stream.stories[sequence].begun.wait()
    await stream.send(HandOver(sequence))
    story = await stream.stories[sequence].end()
    ticket = story.deltas[-1].ticket
    assert story.finish is FinishReason.HANDED_OVER
    assert ticket is not None
    return story.tokens, ticket


async def test_another_worker_goes_on_and_the_first_is_rid_of_it() -> None:
    async with serve(Role.DECODE) as one, serve(Role.DECODE) as other:
        async with one.client.attached() as stream, other.client.attached() as target:
            begun, ticket = await handed_over(one, stream)
            assert 0 < len(begun) < 400
            assert ticket.worker_id == one.worker.info.worker_id
            assert one.remains(ticket_free=False) == {}  # the reservation has ended with the sequence
            left = 400 - len(begun)
            reservation = await other.client.reserve(20 + len(begun), left)
            sequence = await target.start(reservation, work("m", 20, left, carried=begun), ticket)
            story = await target.stories[sequence].end()
            assert begun + story.tokens == await answer_alone(other, 20, 400)
        await other.quiet()
        await one.quiet()
        one.worker.prefill.keep_house()
        assert one.worker.prefill.leases.issued == 1
        assert one.worker.state.drift == ()


async def test_a_worker_that_has_found_out_that_its_answers_stay_is_told_better_by_one_that_leaves() -> None:
    async with serve(Role.DECODE) as one, one.client.attached() as stream:
        caution = one.worker.decode.ledger.expected.caution
        caution.short_steps = caution.alone_after
        assert caution.accepted == caution.alone
        await handed_over(one, stream)
        assert caution.accepted == caution.shipped


async def test_a_ticket_that_nobody_wants_is_released_like_that_of_a_prefill() -> None:
    async with serve(Role.DECODE) as one, one.client.attached() as stream:
        _, ticket = await handed_over(one, stream)
        assert one.worker.dispatcher.stats().tickets_held == 1
        assert await one.client.release_ticket(ticket)
        assert not await one.client.release_ticket(ticket)
        await one.quiet()
        assert one.worker.prefill.leases.totals[LeaseState.RELEASED] == 1


async def test_a_ticket_whose_gateway_went_away_ends_with_its_lease() -> None:
    async with serve(Role.DECODE, kv_lease_s=0.2) as one:
        async with one.client.attached() as stream:
            await handed_over(one, stream)
        await one.quiet(60.0)
        assert one.worker.dispatcher.stats().tickets_expired == 1


async def test_whoever_is_asked_too_late_or_twice_goes_on_as_it_was() -> None:
    async with serve(Role.DECODE) as one, one.client.attached() as stream:
        sequence = await stream.start(await one.client.reserve(20, 8), work("m", 20, 8))
        assert (await stream.stories[sequence].end()).finish is FinishReason.LENGTH
        await stream.send(HandOver(sequence))
        await stream.send(HandOver(99))
        again = await stream.start(await one.client.reserve(20, 8), work("n", 20, 8))
        assert (await stream.stories[again].end()).finish is FinishReason.LENGTH
        await one.quiet()


async def test_one_that_its_engine_keeps_says_so_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the engine says it, or fails over the question, or does not have the sequence yet."""

    def breaks(name: str) -> None:
        raise RuntimeError(name)

    async with serve(Role.PREFILL) as writer, serve(Role.DECODE) as one, one.client.attached() as stream:

        async def asked(most: int) -> tuple[int, Story]:
            sequence = await stream.start(await one.client.reserve(20, most), work("m", 20, most))
            await stream.stories[sequence].begun.wait()
            await stream.send(HandOver(sequence))
            return sequence, stream.stories[sequence]

        monkeypatch.setattr(one.worker.dispatcher._engine, "hand_over", breaks)
        _, broken = await asked(400)
        await until(lambda: any(delta.stays for delta in broken.deltas))
        monkeypatch.undo()
        assert (await broken.end()).finish is FinishReason.LENGTH
        assert len(broken.tokens) == 400

        done = await writer.client.prefill(work("w", 20, 1))
        assert done.ticket is not None
        gate = one.worker.decode.gate
        monkeypatch.setattr(gate, "_limit", 0)
        reservation = await one.client.reserve(21, 8)
        sequence = await stream.start(reservation, work("w", 20, 8, carried=done.tokens), done.ticket)
        await until(lambda: gate.waiting)
        await stream.send(HandOver(sequence))
        await until(lambda: stream.stories[sequence].deltas)
        assert [(delta.tokens, delta.stays) for delta in stream.stories[sequence].deltas] == [((), True)]
        await stream.abort(sequence)
        await one.quiet()
        await writer.quiet()


async def test_a_ticket_that_comes_with_the_abort_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sequence was aborted, and the engine's last word on it is on its way already."""
    async with serve(Role.DECODE) as one:
        dispatcher, attachment = one.worker.dispatcher, Attachment("g1", one.worker.decode._pool)
        attachment.start(Start(1, await one.client.reserve(20, 400), work("m", 20, 400)))
        name, deliver, tickets = attachment.running[1].name, dispatcher._deliver, list[Ticket]()

        def aborted_as_it_ends(owner: Owner, news: News) -> None:
            if came := [output.ticket for _, output in news if output.ticket]:
                tickets.extend(came)
                attachment.abort(1)
            deliver(owner, news)

        monkeypatch.setattr(dispatcher, "_deliver", aborted_as_it_ends)
        await until(lambda: len(attachment.outbox) > 0)
        dispatcher.hand_over(name)
        await until(lambda: tickets)
        await attachment.close()
        await one.quiet()
        assert one.worker.prefill.leases.issued == 0


async def test_the_newest_ticket_survives_a_slow_gateway() -> None:
    """News of several steps travel as one: the ticket is of the last."""
    async with serve(Role.DECODE) as one, one.client.attached() as stream:
        await until(lambda: one.worker.decode.attached)
        one.worker.decode._attachments[0].outbox._depth = 0
        _, ticket = await handed_over(one, stream)
        assert await one.client.release_ticket(ticket)
        await one.quiet()
