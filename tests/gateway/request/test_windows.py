"""Workers with different windows: an answer gets what it was promised when it came, wherever it goes on."""

from proto.worker import Role
from tests.gateway.fleet import expected, fleet, intent, prompt
from tests.gateway.request.sending import Sending, outcomes, settings

SMALL, LARGE, PROMPT = 256, 1024, 40


async def test_an_answer_that_moves_to_a_larger_window_ends_where_it_would_have() -> None:
    """The larger worker came later. It gave a token more than the answer could have, which was called its fault."""
    async with fleet((("d0", Role.DECODE),), profile="toy", max_model_len=SMALL, settings=settings()) as one:
        wanted = intent(prompt(PROMPT), max_tokens=4096, ignore_eos=True, declared=False)
        sending = Sending(one, wanted)
        await sending.begun()
        await one.add("d1", Role.DECODE, profile="toy", max_model_len=LARGE)
        await one.ready()
        await sending.sent()
        answer = await sending.answer()
        assert answer.tokens() == expected(wanted.prompts[0], wanted.sampling)[: SMALL - PROMPT]
        assert len(answer.tokens()) == SMALL - PROMPT
        assert sum(outcomes(one).values()) == 1
        seen = one.seen("d1")
        assert seen is not None
        assert seen.consecutive_faults == 0
        await one.settled(10.0)
