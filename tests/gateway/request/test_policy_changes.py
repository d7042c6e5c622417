"""Changes of the policy under load: no request is lost, each ends under the version that it began with."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from gateway.policy.admission.overrun import Response
from gateway.policy_config import PolicyConfig
from gateway.policy_versions.document import policy_of
from gateway.policy_versions.outcomes import OutcomeWatch
from gateway.policy_versions.versions import Versions
from gateway.request.errors import Reason, RequestError
from gateway.request.intent import Intent
from gateway.request.phase import Phase
from tests.gateway.fleet import PAIR, SOLO, Fleet, config, expected, fleet, intent, prompt


def a(**settings: object) -> PolicyConfig:
    return policy_of(settings)


async def served(one: Fleet, wanted: Intent) -> None:
    answer = await one.ask(wanted)
    assert answer.tokens() == expected(wanted.prompts[0], wanted.sampling)


@pytest.mark.slow
async def test_changes_back_and_forth_under_load_drop_nothing() -> None:
    policies = [
        a(version="x", rule="declared", stretch=4, classes={"gold": {"weight": 3, "band": "high"}}),
        a(version="y", tenants={"": {"weight": 2}}, others={"concurrent": 500, "tokens_per_s": 1e9}),
        a(version="z", lengths={"half_life_s": 10}, long_above_tokens=60, output_weight=7),
    ]
    async with fleet(PAIR, kv_blocks=60, profile="toy", settings=config(policy={"version": "w"})) as one:
        wanted = [intent(prompt(40, at), max_tokens=20 + at % 30, ignore_eos=True) for at in range(60)]
        asked = [asyncio.ensure_future(served(one, each)) for each in wanted]
        turns = 0
        while not all(task.done() for task in asked):
            one.lifecycle.controller.adopt(policies[turns % 3])
            turns += 1
            await asyncio.sleep(0.01)
        await asyncio.gather(*asked)
        assert turns > 3
        desk = one.lifecycle._shared.desk
        assert desk._line.open_bills == 0  # type: ignore[attr-defined]  # the line is a fair queue here
        assert one.lifecycle.policy().admitted == 0
        assert len(one.lifecycle.controller.limiter) == 0


async def test_a_canary_decides_its_requests_and_outcomes_stand_side_by_side() -> None:
    async with fleet(SOLO, kv_blocks=200, profile="toy", settings=config(policy={"version": "old"})) as one:
        watch = OutcomeWatch()
        versions = Versions(one.lifecycle.config.policy, one.lifecycle.controller, watch=watch)
        versions.try_out({"version": "new", "classes": {"default": {"ttft_s": 1e-6}}}, 0.5, "", "")
        refused: Counter[tuple[str, Reason]] = Counter()
        records = []
        for at in range(30):
            try:
                answer = await one.ask(replace(intent(prompt(30, at), max_tokens=4), request_id=f"canary-{at}"))
                records.append(answer.record)
            except RequestError as error:
                refused[error.policy, error.reason] += 1
        assert {record.policy for record in records} == {"old"}
        assert all(record.phase is Phase.DONE for record in records)
        assert set(refused) == {("new", Reason.TTFT_UNREACHABLE)}
        assert 5 < refused.total() < 25
        for record in records:
            watch.ended(record)
        compared = versions.compared()
        assert compared["old"].completed == len(records)
        versions.abort("", "")
        await one.ask(intent(prompt(30, 99), max_tokens=4))


async def test_a_cap_that_comes_with_a_new_policy_is_looked_at() -> None:
    """The look at overruns goes by the classes in force, not by those of the start."""
    async with fleet(SOLO, profile="toy", settings=config()) as one:
        overruns = one.lifecycle._shared.desk.overruns
        assert all(Response.CAP not in policy.order for policy in overruns._policies.values())
        one.lifecycle.controller.adopt(a(classes={"default": {"on_overrun": ["cap"], "cap_tokens": 10}}))
        assert overruns._policies["default"].order == (Response.CAP,)
        await served(one, intent(prompt(30), max_tokens=4, ignore_eos=True))
