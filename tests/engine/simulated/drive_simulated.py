"""Runs the same scenarios on the simulated scheduler."""

from engine.simulated.limits import Limits
from engine.simulated.scheduler import Scheduler
from engine.simulated.sequence import Sequence, Status, TokenKeys
from engine.simulated.waiting import Policy
from tests.engine.simulated.scenarios import Scenario, StepTrace, answer_token, prompt_tokens


def build(scenario: Scenario) -> Scheduler:
    return Scheduler(
        Limits(
            block_size=scenario["block_size"],
            blocks=scenario["blocks"],
            max_num_seqs=scenario["max_num_seqs"],
            max_batched_tokens=scenario["max_batched_tokens"],
            max_model_len=scenario["max_model_len"],
            long_prefill_threshold=scenario["long_prefill_threshold"],
            watermark_blocks=int(scenario["watermark"] * (scenario["blocks"] + 1)),
            policy=Policy(scenario["policy"]),
            caching=scenario["caching"],
        )
    )


def run(scenario: Scenario) -> list[StepTrace]:
    scheduler = build(scenario)
    entries = {entry["id"]: entry for entry in scenario["requests"]}
    sequences: dict[str, Sequence] = {}
    tokens: dict[str, list[int]] = {}
    loading: dict[str, int] = {}
    trace: list[StepTrace] = []
    step = 0
    while step < 2000 and (_busy(sequences, scheduler) or any(e["step"] >= step for e in entries.values())):
        for entry in scenario["requests"]:
            name = entry["id"]
            if entry["step"] == step:
                tokens[name] = prompt_tokens(entry)
                sequences[name] = Sequence(
                    name,
                    entry["prompt"],
                    TokenKeys(tokens[name], scenario["block_size"], entry["salt"]),
                    priority=entry["priority"],
                    external=entry["external"],
                )
                scheduler.add(sequences[name])
            if entry["abort"] == step and name in sequences:
                _abort(scheduler, sequences[name])
        plan = scheduler.schedule()
        for sequence in plan.loading:
            loading[sequence.request_id] = step + entries[sequence.request_id]["load_steps"]
        trace.append(
            {
                "planned": [[sequence.request_id, count] for sequence, count in scheduler.planned(plan)],
                "preempted": sorted(sequence.request_id for sequence in plan.preempted),
                "running": [sequence.request_id for sequence in scheduler.running],
                "waiting": [s.request_id for s in (*scheduler.holding, *scheduler.waiting)],
                "free": scheduler.pool.free,
            }
        )
        for sequence in scheduler.complete_each(plan):
            entry = entries[sequence.request_id]
            tokens[sequence.request_id].append(answer_token(entry, sequence.total - 1 - entry["prompt"]))
            if sequence.total >= min(entry["prompt"] + entry["answer"], scenario["max_model_len"]):
                scheduler.end(sequence)
        for name, due in loading.items():
            if due == step:
                if sequences[name].status is Status.LOADING:
                    scheduler.loaded(sequences[name])
                else:
                    scheduler.free_blocks(sequences[name])
        step += 1
    return trace


def _abort(scheduler: Scheduler, sequence: Sequence) -> None:
    if sequence.status is Status.LOADING and not sequence.loaded:
        scheduler.detach(sequence)
    else:
        scheduler.end(sequence)


def _busy(sequences: dict[str, Sequence], scheduler: Scheduler) -> bool:
    return any(sequence.status is not Status.ENDED for sequence in sequences.values())
