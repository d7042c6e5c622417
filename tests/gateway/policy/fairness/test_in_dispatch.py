"""The fair queue where the plain one stands today."""

from gateway.policy.admission import Entry
from gateway.policy.bid import Ask, Bid, Line
from gateway.policy.fairness.claim import Claim
from gateway.policy.fairness.queue import FairQueue
from gateway.policy.need import Need
from gateway.policy.prefix import PrefixKey


def claim_of(ask: Ask[str]) -> Claim:
    need = ask.bid.need
    return Claim(tenant=ask.bid.tenant, prompt_tokens=need.prompt_tokens, expected_output_tokens=need.growth_tokens)


def test_it_fits_where_the_plain_queue_stands() -> None:
    queue = FairQueue(2, claim_of)
    line: Line[str] = queue
    for tenant in ("a", "a", "b"):
        arrival = line.arrive()
        bid = Bid(f"r{arrival}", Need(10, 20, 1), PrefixKey((), ""), arrival, tenant=tenant)
        line.push(Entry(arrival, Ask(bid, "")))
    assert line.over_limit
    assert line.last is not None
    assert line.last.item.bid.tenant == "a"
    order = []
    while entry := queue.head:
        assert queue.take(entry)
        order.append(entry.item.bid.tenant)
    assert order == ["a", "b", "a"]
