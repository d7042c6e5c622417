"""Scripted workloads for a scheduler, and what was observed: shared by the simulated and the real one.

Plain JSON-able dictionaries, because the real scheduler runs in a process of its own.
"""

import random
from typing import Any

Scenario = dict[str, Any]
#: One step: [[id, tokens]] planned in order, ids preempted in order, running and waiting ids in order, free blocks.
StepTrace = dict[str, Any]


def request(name: str, step: int, prompt: int, answer: int, **more: Any) -> dict[str, Any]:
    """`prefix` names a prompt beginning shared with others, `external` tokens arrive `load_steps` steps later."""
    return {
        "id": name,
        "step": step,
        "prompt": prompt,
        "answer": answer,
        "prefix": "",
        "prefix_tokens": 0,
        "priority": 0,
        "external": 0,
        "load_steps": 1,
        "abort": -1,
        "salt": "",
        **more,
    }


def scenario(name: str, requests: list[dict[str, Any]], **limits: Any) -> Scenario:
    return {
        "name": name,
        "block_size": 16,
        "blocks": 32,
        "max_num_seqs": 8,
        "max_batched_tokens": 64,
        "max_model_len": 512,
        "long_prefill_threshold": 0,
        "watermark": 0.0,
        "policy": "fcfs",
        "caching": True,
        "requests": requests,
        **limits,
    }


def prompt_tokens(entry: dict[str, Any]) -> list[int]:
    """Deterministic over processes, so no use of hash()."""
    shared = random.Random(entry["prefix"])
    own = random.Random(entry["id"])
    prefix = [shared.randrange(1000) for _ in range(entry["prefix_tokens"])]
    return prefix + [own.randrange(1000) for _ in range(entry["prompt"] - len(prefix))]


def answer_token(entry: dict[str, Any], index: int) -> int:
    name: str = entry["id"]
    return (len(name) * 31 + sum(name.encode()) * 7 + index * 13) % 1000


def scripted() -> list[Scenario]:
    """Each about one rule."""
    r = request
    many = [r(f"r{i}", 0, 20, 10) for i in range(12)]
    return [
        scenario("one request", [r("a", 0, 40, 5)]),
        scenario("one prompt in chunks", [r("a", 0, 200, 3)]),
        scenario("prompt that ends on a block", [r("a", 0, 32, 40), r("b", 0, 31, 40), r("c", 0, 33, 40)]),
        scenario("decodes go before new prompts", [r("a", 0, 30, 20), r("b", 3, 150, 5), r("c", 4, 30, 5)]),
        scenario("more requests than slots", many, max_num_seqs=3),
        scenario("budget shared by several prompts", [r(f"p{i}", 0, 25, 4) for i in range(6)]),
        scenario(
            "long prompt threshold", [r("a", 0, 150, 4), r("b", 0, 30, 4), r("c", 1, 100, 4)], long_prefill_threshold=20
        ),
        scenario("long prompt alone is not cut", [r("a", 0, 150, 4), r("b", 8, 30, 4)], long_prefill_threshold=20),
        scenario("preempt from the tail", [r("a", 0, 40, 60), r("b", 0, 40, 60), r("c", 0, 40, 60)], blocks=12),
        scenario("preempt again and again", [r(f"q{i}", i, 30, 70) for i in range(6)], blocks=16),
        scenario("preempted request finds its own blocks", [r("a", 0, 64, 50), r("b", 0, 64, 50)], blocks=12),
        scenario("preemption without a cache", [r("a", 0, 64, 50), r("b", 0, 64, 50)], blocks=12, caching=False),
        scenario(
            "nobody is admitted in a step that preempts",
            [r("a", 0, 48, 40), r("b", 0, 48, 40), r("c", 2, 16, 8), r("d", 2, 16, 8)],
            blocks=9,
        ),
        scenario(
            "head of the queue waits for its whole prompt",
            [r("a", 0, 100, 40), r("big", 1, 200, 2), r("small", 1, 16, 2)],
            blocks=18,
        ),
        scenario("watermark", [r(f"w{i}", 0, 60, 30) for i in range(5)], blocks=20, watermark=0.2),
        scenario(
            "shared prefix",
            [
                r("a", 0, 80, 5, prefix="s", prefix_tokens=64),
                r("b", 6, 80, 5, prefix="s", prefix_tokens=64),
                r("c", 6, 64, 5, prefix="s", prefix_tokens=64),
            ],
        ),
        scenario("shared prefix in one step", [r(f"s{i}", 0, 48, 20, prefix="s", prefix_tokens=32) for i in range(4)]),
        scenario(
            "salt keeps prefixes apart",
            [
                r("a", 0, 64, 3, prefix="s", prefix_tokens=48, salt="x"),
                r("b", 5, 64, 3, prefix="s", prefix_tokens=48, salt="y"),
                r("c", 5, 64, 3, prefix="s", prefix_tokens=48, salt="x"),
            ],
        ),
        scenario(
            "least recently used blocks go first",
            [r(f"l{i}", 5 * i, 64, 3, prefix=f"g{i % 3}", prefix_tokens=48) for i in range(9)],
            blocks=9,
        ),
        scenario(
            "abort while running and waiting",
            [r("a", 0, 60, 30, abort=7), r("b", 0, 60, 30), r("c", 0, 60, 30, abort=2), r("d", 1, 60, 9)],
            max_num_seqs=2,
        ),
        scenario(
            "priority order",
            [
                r("a", 0, 60, 20, priority=5),
                r("b", 0, 60, 20, priority=1),
                r("c", 0, 60, 20, priority=3),
                r("d", 4, 60, 20, priority=0),
            ],
            policy="priority",
            max_num_seqs=2,
        ),
        scenario(
            "priority preemption",
            [
                r("a", 0, 40, 60, priority=1),
                r("b", 0, 40, 60, priority=9),
                r("c", 0, 40, 60, priority=5),
                r("d", 0, 40, 60, priority=9),
            ],
            policy="priority",
            blocks=14,
        ),
        scenario(
            "priority victim already planned",
            [r("v", 0, 47, 60, priority=9), r("x", 0, 40, 60, priority=1), r("y", 0, 42, 60, priority=1)],
            policy="priority",
            blocks=10,
        ),
        scenario("load from elsewhere", [r("a", 0, 40, 10), r("b", 1, 70, 10, external=70, load_steps=3)]),
        scenario("load all but the last token", [r("a", 0, 33, 10, external=32, load_steps=2)]),
        scenario("load ends on a block", [r("a", 0, 64, 10, external=64, load_steps=2), r("b", 1, 20, 5)]),
        scenario(
            "loads wait for room", [r(f"e{i}", 0, 90, 20, external=90, load_steps=2 + i) for i in range(6)], blocks=20
        ),
        scenario(
            "load beside a long prompt", [r("a", 0, 300, 5), r("b", 1, 100, 5, external=100, load_steps=2)], blocks=24
        ),
        scenario(
            "load with part in the cache",
            [
                r("a", 0, 80, 4, prefix="s", prefix_tokens=64),
                r("b", 8, 100, 4, prefix="s", prefix_tokens=64, external=100),
            ],
        ),
        scenario(
            "loaded request is preempted", [r("a", 0, 60, 60, external=60), r("b", 0, 60, 60, external=60)], blocks=11
        ),
        scenario("window ends the answer", [r("a", 0, 50, 100), r("b", 0, 20, 100)], max_model_len=64),
    ]


def random_scenario(seed: int) -> Scenario:
    """A small random workload that every prompt fits, so that it ends."""
    rng = random.Random(seed)
    block_size = rng.choice((4, 16))
    blocks = rng.randrange(12, 40)
    longest = min(blocks * block_size // 2, 200)
    requests = []
    for index in range(rng.randrange(2, 14)):
        prompt = rng.randrange(1, longest)
        answer = rng.randrange(1, max(2, min(60, blocks * block_size - prompt - 1)))
        external = rng.choice((0, 0, 0, prompt, max(0, prompt - 1)))
        requests.append(
            request(
                f"r{index}-{seed}",
                rng.randrange(0, 20),
                prompt,
                answer,
                prefix=f"g{rng.randrange(2)}",
                prefix_tokens=rng.choice((0, 0, prompt // 2)),
                priority=rng.randrange(3),
                external=external,
                load_steps=rng.randrange(1, 5),
                abort=rng.choice((-1, -1, -1, rng.randrange(1, 40))),
            )
        )
    return scenario(
        f"random {seed}",
        requests,
        block_size=block_size,
        blocks=blocks,
        max_num_seqs=rng.choice((2, 4, 16)),
        max_batched_tokens=rng.choice((16, 48, 256)),
        long_prefill_threshold=rng.choice((0, 0, 12)),
        watermark=rng.choice((0.0, 0.1)),
        policy=rng.choice(("fcfs", "priority")),
        caching=rng.random() < 0.8,
    )
