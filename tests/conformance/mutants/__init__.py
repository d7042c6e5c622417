"""The faults to put in. Each is what some peer really did, or as near to it as our code allows."""

from tests.conformance.mutants import failing, identity, leaving, losing, merging, overload, prefill_leg, streaming

MUTATIONS = (
    *prefill_leg.MUTATIONS,
    *merging.MUTATIONS,
    *streaming.MUTATIONS,
    *leaving.MUTATIONS,
    *failing.MUTATIONS,
    *losing.MUTATIONS,
    *overload.MUTATIONS,
    *identity.MUTATIONS,
)
