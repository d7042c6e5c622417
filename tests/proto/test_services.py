"""Requests and replies of every RPC survive their own encoders."""

from typing import Any

import pytest

from proto import services
from proto.join import JoinReply, JoinRequest
from proto.method import Method
from proto.reservation import ReleaseReservation, RenewReservation
from proto.ticket import ReleaseTicket
from proto.worker import Role, RoleChange, StepLimit, StepReport, StepTotals, WarmResult
from tests.proto.servers import DONE, WORK

CASES: list[tuple[Method[Any, Any], object, object]] = [
    (services.DESCRIBE, None, ...),
    (services.WATCH, 0.5, ...),
    (services.WARM, ..., WarmResult(True, "shm", 0.2, 3e9)),
    (services.DRAIN, True, 7),
    (services.SET_ROLE, RoleChange(Role.DECODE), RoleChange(Role.BOTH)),
    (services.LIMIT_STEP, StepLimit("g", 1024, 1008, 3.0), StepReport(8192, StepTotals(*range(1, 10)))),
    (services.PREFILL, WORK, DONE),
    (services.RELEASE_TICKET, ReleaseTicket("e1", ticket_id="t1"), True),
    (services.RELEASE_TICKET, ReleaseTicket("e1", request_id="r1"), False),
    (services.RELEASE_RESERVATION, ReleaseReservation("v1"), True),
    (services.RENEW_RESERVATION, RenewReservation("v1", "g"), True),
    (services.RELEASE_RESERVATION, ReleaseReservation(gateway_id="g", request_id="r"), False),
    (services.JOIN, JoinRequest("w", "e", "127.0.0.1:1"), JoinReply(False, "why", 2.0)),
]


@pytest.mark.parametrize(("method", "request_noun", "reply_noun"), CASES, ids=lambda case: getattr(case, "name", ""))
def test_nouns_survive_the_encoders(method: Method[Any, Any], request_noun: object, reply_noun: object) -> None:
    if request_noun is not ...:
        assert method.decode_request(method.encode_request(request_noun)) == request_noun
    if reply_noun is not ...:
        assert method.decode_reply(method.encode_reply(reply_noun)) == reply_noun
