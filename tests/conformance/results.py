"""What was found when the tests and the mutations were last run: committed, for the table in docs/conformance.md."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

FILE = Path(__file__).parent / "results.json"


@dataclass(slots=True)
class Results:
    """`tests`: passed or failed, by node. `mutations`: whether the test went red, by the mutation's key."""

    tests: dict[str, str] = field(default_factory=dict)
    mutations: dict[str, bool] = field(default_factory=dict)

    @classmethod
    def load(cls) -> Self:
        return cls(**json.loads(FILE.read_text())) if FILE.exists() else cls()

    def save(self) -> None:
        FILE.write_text(json.dumps(asdict(self), indent=1, sort_keys=True) + "\n")
