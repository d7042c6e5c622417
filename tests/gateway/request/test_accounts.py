"""What the policy has learnt and counted of requests that real workers served."""

from pathlib import Path

from gateway.lengths_file import LengthsFile
from gateway.request.errors import Reason
from proto.reservation import Reservation, ReserveRequest
from tests.gateway.fleet import PAIR, SOLO, config, expected, fleet, intent, prompt, sampling, until


async def test_answers_are_counted_by_model_and_length() -> None:
    async with fleet(PAIR) as one:
        for length in (5, 300):
            await one.ask(intent(prompt(40, length), max_tokens=length, ignore_eos=True))
        rows = one.lifecycle.policy().buckets
        assert [(row.model, row.answer_tokens, row.answers, row.realised_tokens) for row in rows] == [
            ("toy", "1-256", 1, 5),
            ("toy", "257-1024", 1, 300),
        ]


async def test_a_gateway_that_starts_again_expects_what_it_had_seen(tmp_path: Path) -> None:
    """Thirty answers that stop of themselves within 12 tokens."""
    file = tmp_path / "lengths.json"
    estimates = []
    whole = expected(prompt(40), sampling(12, ignore_eos=True))
    async with fleet(SOLO) as before:
        for _ in range(30):
            await before.ask(intent(prompt(40), max_tokens=1000, stop_token_ids=(whole[-1],)))
        await LengthsFile(file, before.lifecycle.controller, 60.0).save()
    async with fleet(SOLO) as cold, fleet(SOLO) as warm:
        LengthsFile(file, warm.lifecycle.controller, 60.0).restore()
        for one in (cold, warm):
            answer = await one.ask(intent(prompt(40), max_tokens=1000, stop_token_ids=(whole[-1],)))
            estimates.append(answer.record.estimated_tokens)
    assert estimates[1] < 0.5 * estimates[0]


async def test_an_early_refusal_is_judged_when_its_moment_has_come() -> None:
    """Nobody else asks for anything then: the workers' own news are enough."""
    settings = config(policy={"rule": "declared", "early_rejection": {"decode": True}})
    async with fleet(SOLO, kv_blocks=8, settings=settings) as one:
        ledger = one.members["b0"].worker.decode
        foreign = await ledger.reserve(ReserveRequest("other-gateway", "r", 40, 80, 600.0))
        assert isinstance(foreign, Reservation)
        await until(lambda: (seen := one.seen("b0")) is not None and seen.blocks_reserved > 0)
        _, error = await one.outcome(intent(prompt(40, 1), max_tokens=80))
        assert error is not None
        assert error.reason is Reason.DECODE_OVERLOADED
        await until(lambda: all(row.open == 0 for row in one.lifecycle.policy().early))
        (row,) = one.lifecycle.policy().early
        assert (row.reason, row.right + row.wrong + row.unjudged) == ("decode_overloaded", 1)
        ledger.ledger.release(foreign.reservation_id)
