"""What tests see of a decode worker from within."""

from engine.simulated import SimulatedEngine
from engine.simulated.injector import Injector
from tests.tandem.worker.harness import Served, work


def simulated(served: Served) -> SimulatedEngine:
    engine = served.worker.dispatcher._engine
    assert isinstance(engine, SimulatedEngine)
    return engine


def injector(served: Served) -> Injector:
    return simulated(served).injector


async def answer_alone(served: Served, length: int, max_tokens: int, seed: int = 0) -> tuple[int, ...]:
    async with served.client.attached() as stream:
        reservation = await served.client.reserve(length, max_tokens)
        sequence = await stream.start(reservation, work("alone", length, max_tokens, seed))
        return (await stream.stories[sequence].end()).tokens
