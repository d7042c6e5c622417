"""What few workloads reach."""

from engine.simulated.limits import Limits
from engine.simulated.scheduler import Scheduler
from engine.simulated.sequence import Sequence, Status, SyntheticKeys

SMALL = Limits(block_size=2, blocks=8, max_num_seqs=4, max_batched_tokens=64, max_model_len=64, watermark_blocks=2)


def test_a_prompt_of_one_token_that_was_fetched_and_finds_no_room_can_be_aborted() -> None:
    scheduler = Scheduler(SMALL)
    long = Sequence("long", 9, SyntheticKeys(1))
    fetched = Sequence("fetched", 1, SyntheticKeys(2), external=1)
    scheduler.add(long)
    scheduler.add(fetched)
    while scheduler.pool.free:
        scheduler.complete(scheduler.schedule())
    assert fetched.status is Status.LOADING
    scheduler.loaded(fetched)
    scheduler.complete(scheduler.schedule())
    assert (fetched.status, fetched.held) == (Status.WAITING, 1)
    scheduler.end(fetched)
    assert scheduler.waiting_count == 0
    assert not scheduler.holding
