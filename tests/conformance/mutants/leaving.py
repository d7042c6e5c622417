"""Cancellation and KV leases."""

from tests.conformance.mutations import Mutation

LEAVE = "tests/conformance/test_leaving.py::test_"

MUTATIONS = (
    Mutation(
        "B-27",
        "tickets are never released, their leases end by themselves",
        "gateway/request/holds.py",
        "        await client.release_ticket(ReleaseTicket(ticket.epoch, ticket_id=ticket.ticket_id), self._release_s)\n",
        "        del ticket\n",
        f"{LEAVE}b27_leaving_before_decode_accepts_gives_the_prefill_worker_its_blocks_back",
    ),
    Mutation(
        "B-29",
        "a worker that missed a deadline is trusted as before",
        "gateway/request/answering.py",
        "                health.deadline_missed(str(error))\n",
        "",
        f"{LEAVE}b29_a_pull_that_never_ends_costs_its_deadline_and_no_more",
    ),
    Mutation(
        "B-30",
        "an answer that is aborted keeps its reservation",
        "decode_pool/attachment.py",
        "                running.pull.end()\n            running.hold.end(finished=False)\n",
        "                running.pull.end()\n",
        f"{LEAVE}b30_two_hundred_leave_during_the_transfer",
    ),
    Mutation(
        "B-31",
        "tickets are dispatched however old they are",
        "transfer/ticket.py",
        "return self.remaining_s(now_s) > margin_s",
        "return True",
        f"{LEAVE}b31_a_ticket_that_aged_on_the_way_is_never_dispatched",
    ),
    Mutation(
        "B-32",
        "aborting a sequence that has ended is a KeyError",
        "decode_pool/attachment.py",
        "running = self.running.pop(sequence, None)\n",
        "running = self.running.pop(sequence)\n",
        "tests/decode_pool/test_service.py::test_b32_abort_of_anything_that_does_not_run_is_a_no_op",
    ),
    Mutation(
        "B-34",
        "a client that leaves is noticed and its work goes on",
        "gateway/http/connection.py",
        "            if not answered():\n                task.cancel()\n",
        "",
        f"{LEAVE}b34_b35_leaving_stops_the_work_in_every_phase_streaming_or_not[before the first decode token-chat]",
    ),
    Mutation(
        "B-35",
        "a middleware keeps the disconnect to itself",
        "gateway/http/edge.py",
        "        await self._app(scope, receive, marked)\n\n    def _marking",
        "        async def body_only() -> Message:\n"
        "            message = await receive()\n"
        '            if message["type"] == "http.disconnect":\n'
        '                await __import__("asyncio").sleep(3600)\n'
        "            return message\n\n"
        "        await self._app(scope, body_only, marked)\n\n    def _marking",
        f"{LEAVE}b34_b35_leaving_stops_the_work_in_every_phase_streaming_or_not[decoding-completion]",
    ),
    Mutation(
        "B-37",
        "the slot of a sequence is never given back",
        "gateway/request/running.py",
        "            self._worker.leases.give_back(lease)\n",
        "            del lease\n",
        f"{LEAVE}b37_nothing_is_left_of_many_that_came_and_went",
    ),
)
