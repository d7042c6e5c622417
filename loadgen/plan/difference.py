"""What turns one layout into another, in lines."""

from loadgen.plan.candidate import WORKER_NAMES, Candidate
from proto.worker import Role


def changes(old: Candidate, new: Candidate) -> list[str]:
    """Nothing where they are the same. Devices and sequences are named only where they are part of the difference."""
    engines = [part.engine for one in (old, new) for part in one.parts]
    devices = len({engine.device for engine in engines}) > 1
    seqs = len({engine.seqs for engine in engines}) > 1

    def pool(candidate: Candidate, role: Role) -> str:
        words = []
        for part in candidate.parts:
            if part.role is role:
                engine = part.engine
                word = f"{part.workers} x {engine.degrees}, {engine.tokens} tokens a step"
                word += f", {engine.seqs} sequences" if seqs else ""
                words.append(word + (f", on {engine.device}" if devices else ""))
        return " and ".join(words) or "none"

    lines = [
        f"{name}: {pool(old, role)} -> {pool(new, role)}"
        for role, name in WORKER_NAMES.items()
        if pool(old, role) != pool(new, role)
    ]
    if old.local_below != new.local_below and any(part.role is Role.PREFILL for part in new.parts):
        lines.append(f"local prefill below: {old.local_below} -> {new.local_below} tokens")
    return lines
