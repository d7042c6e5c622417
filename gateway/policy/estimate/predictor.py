"""What may take the place of the sketches."""

from typing import Protocol

from gateway.policy.estimate.estimate import Estimate
from gateway.policy.estimate.features import Features


class Predictor(Protocol):
    """Pure and quick: it runs at every admission."""

    def predict(self, features: Features) -> Estimate | None:
        """The whole answer, before caps; None leaves the request to the sketches."""
        ...
