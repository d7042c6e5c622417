"""Who insists on a worker that seems full gets the way that the roles policy thinks best with it."""

from dataclasses import replace

from gateway.policy.admission import Entry, FifoQueue
from gateway.policy.bid import Ask, Bid
from gateway.policy.dispatch import Dispatch
from gateway.policy.need import Need
from gateway.policy.prefix import BlockHashes, PrefixKey
from gateway.policy.roles import Aims, Fluid, Knobs
from gateway.policy.routing import DecodeCandidate, Fleet, Link, Path, Placement, PrefillCandidate, Rules
from proto.worker import Role

NAMES = ("w0", "w1", "w2")
RULES = Rules(local_below_tokens=0, prefill_here_if_none=True)
PROMPT = Need(1600, 16, 1)


class Full:
    """Three `both` workers without a free block. w1 leans, whoever looks may change that."""

    def __init__(self, role: Role = Role.BOTH) -> None:
        self.now_s = 0.0
        decodes = tuple(DecodeCandidate(name, role, 32_768, 16, 1000, 0, 256) for name in NAMES)
        prefills = tuple(PrefillCandidate(name, role, 0) for name in NAMES)
        links = {name: {other: Link("nvlink", 1e11) for other in NAMES if other != name} for name in NAMES}
        self.fleet = Fleet(decodes, prefills, links)
        self.fluid = Fluid(Aims(1.0, 0.05), lambda: self.now_s, Knobs(leans=False))
        self.fluid.leaning = {"w1"}
        self.line: FifoQueue[Ask[str]] = FifoQueue(10)
        self.dispatch: Dispatch[str] = Dispatch(
            self.line, RULES, self.view, lambda _: True, lambda: self.now_s, placing=self.fluid.place
        )

    def view(self, prefix: BlockHashes) -> Fleet:
        return self.fleet

    def busy(self, worker_id: str) -> None:
        """It has a long prompt in hand."""
        self.fluid.taken(f"of {worker_id}", Placement(worker_id, Path.COLOCATED, ""), Need(100_000, 1, 1))

    def wait(self, *needs: Need) -> None:
        bids = [Bid("r", need, PrefixKey((), ""), self.dispatch.arrive()) for need in needs]
        whole = bids[0] if len(bids) == 1 else replace(bids[0], parts=tuple(bids))
        assert isinstance(self.dispatch.enter(whole, "r"), Entry)

    def insist(self, worker_id: str) -> Placement:
        turn = self.dispatch.insist(worker_id)
        assert turn is not None
        return turn[1]


def test_a_prompt_that_insists_is_computed_by_whoever_has_the_time() -> None:
    full = Full()
    full.fluid.book("w0").backlog.add("load", 100_000)
    full.wait(PROMPT)
    placed = full.insist("w0")
    assert (placed.worker_id, placed.path, placed.prefill_id) == ("w0", Path.REMOTE, "w1")
    assert [way.computed_by for way in placed.ways] == ["w1", "w0"]


def test_a_prompt_that_insists_stays_where_that_is_better() -> None:
    full = Full()
    full.fluid.book("w1").backlog.add("load", 100_000)
    full.wait(PROMPT)
    assert full.insist("w0") == Placement("w0", Path.COLOCATED, "fluid")


def test_insistence_on_one_worker_does_not_change_who_leans() -> None:
    """A look at one worker alone would say that nobody can."""
    full = Full()
    full.fluid.knobs = Knobs()
    full.fluid.place(PROMPT, full.fleet, RULES)
    full.fluid.leaning = {"w1"}
    looked: list[int] = []
    full.wait(PROMPT)
    full.fluid._look = lambda fleet: looked.append(len(fleet.decodes))  # type: ignore[method-assign]  # replaced for the test
    full.insist("w0")
    assert set(looked) <= {len(NAMES)}


def test_prompts_of_one_request_insist_together() -> None:
    full = Full()
    full.fluid.book("w0").backlog.add("load", 100_000)
    full.wait(PROMPT, PROMPT)
    placed = full.insist("w0")
    assert [(each.worker_id, each.prefill_id) for each in (placed, *placed.also)] == [("w0", "w1")] * 2


def test_who_never_takes_it_is_not_insisted_on() -> None:
    full = Full()
    bid = Bid("r", PROMPT, PrefixKey((), ""), full.dispatch.arrive(), never={"w0"})
    full.dispatch.enter(bid, "r")
    assert full.dispatch.insist("w0") is None
    assert bid.never == {"w0"}
    assert full.dispatch.insist("w2") is not None
