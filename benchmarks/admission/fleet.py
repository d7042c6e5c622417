"""The fleet that everything is measured on: a decode pool whose KV is what binds."""

from dataclasses import dataclass

from loadgen.simulate import Declared, Layout, parse_layout

#: Clients declare the rest of the window as max_tokens, as those do that leave it to the server.
WINDOW_TOKENS = 40_960


@dataclass(frozen=True, slots=True)
class Service:
    """What a good answer is, and how long anybody waits for a place.

    `start_s`: from sending until decode goes on with the second token, so that nobody gains by showing one token and
    stalling. `tpot_s`: mean gap after the first token. `queue_s`: whoever has waited so long is turned away.
    """

    start_s: float = 10.0
    tpot_s: float = 0.06
    queue_s: float = 8.0


def layout(service: Service, *, profile: str = "h200-sxm/llama-3.1-70b", decode: int = 4, prefill: int = 16) -> Layout:
    """`decode` x TP2 beside prefill workers enough never to bind. 512 sequences at most, so that KV binds first."""
    words = (
        f"--profile {profile} --decode {decode} --decode-tp 2 --prefill {prefill} --prefill-tp 2"
        f" --set engine.max_model_len={WINDOW_TOKENS} --set engine.max_num_seqs=512"
        f" --set gateway.deadlines.queue_s={service.queue_s} --set gateway.admission.max_queued=100000"
        f" --set gateway.deadlines.first_token_s=600 --declared {Declared.EXACT.value}"
    )
    return parse_layout(words, client_timeout_s=float("inf"))
