"""Tools as large as a body may be: whom they hold up, and how long they are kept."""

import asyncio
import gc
from collections.abc import AsyncIterator

import pytest

from gateway.http.grammar import MAX_SCHEMA_BYTES
from gateway.http.tools import FunctionTool
from gateway.request.intent import Intent
from proto.work import FinishReason
from tests.gateway.http.scripted import Batch, piece, says, site
from tests.gateway.http.test_tools import BOTH, HERMES, NAMED


async def test_a_schema_that_would_hold_up_an_engine_is_refused() -> None:
    """It is read before anything else is done there, for everybody: 14 MB took seconds."""
    large = {"type": "object", "properties": {"a": {"enum": ["x" * MAX_SCHEMA_BYTES]}}}
    tools = [{"type": "function", "function": {"name": "weather", "parameters": large}}]
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": large}}
    async with site(says("a"), settings=HERMES) as at:
        for body, param in (
            ({"tools": tools, "tool_choice": "required"}, "tools"),
            ({"tools": tools, "tool_choice": NAMED}, "tools"),
            ({"response_format": wanted}, "response_format"),
        ):
            error = (await at.chat(**body)).json()["error"]
            assert (error["code"], error["param"]) == ("invalid_request", param)
            assert error["numbers"]["max_schema_bytes"] == MAX_SCHEMA_BYTES < error["numbers"]["schema_bytes"]


@pytest.mark.parametrize("choice", ["auto", "required"])
async def test_tools_are_not_kept_while_their_request_is_answered(choice: str) -> None:
    """The share of the intake that their bytes took is given back by then."""
    left: list[int] = []

    async def script(intent: Intent) -> AsyncIterator[Batch]:
        await asyncio.sleep(0)  # the loop holds on to what it gave this step
        gc.collect()
        left.append(sum(isinstance(one, FunctionTool) and one.name == "kept_by_nobody" for one in gc.get_objects()))
        yield (piece(0, (97,), finish=FinishReason.STOP, first=True),)

    tool = {"type": "function", "function": {"name": "kept_by_nobody"}}
    async with site(script, settings=BOTH) as at:
        assert (await at.chat(tools=[tool], tool_choice=choice)).status_code == 200
    assert left == [0]
