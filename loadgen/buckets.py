"""Output-length buckets: tails are reported by length, never only as a fleet average."""

from bisect import bisect_left

#: Upper edges in tokens; the last bucket is open.
EDGES = (500, 1000, 5000, 10000)
BUCKETS = ("0-500", "501-1000", "1001-5000", "5001-10000", ">10000")


def bucket_of(output_tokens: int) -> str:
    """The bucket an output of this many tokens belongs to."""
    return BUCKETS[bisect_left(EDGES, output_tokens)]
