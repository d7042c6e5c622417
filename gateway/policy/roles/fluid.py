"""Fluid roles: every worker may prefill and decode, and each request gets the way that suits the fleet now. Pure."""

from collections.abc import Callable, Collection, Sequence, Set
from math import inf
from statistics import fmean

from gateway.policy.need import Need
from gateway.policy.roles.book import Book
from gateway.policy.roles.demand import Demand, haste_of
from gateway.policy.roles.knobs import Aims, Knobs
from gateway.policy.roles.law import StepLaw
from gateway.policy.roles.split import Room, best
from gateway.policy.roles.trip import Trip
from gateway.policy.routing import (
    DecodeCandidate,
    Fleet,
    NoRoute,
    Outlook,
    Path,
    Placement,
    Rules,
    Wait,
    Way,
    able_to_decode,
)
from proto.worker import Role, StepTotals

#: How much the worst of several loads counts more than the others when ways are compared.
_SHARPNESS = 4
#: Ways that a placement tells of, the best first.
_TOLD = 6
#: What one prompt's chunk leaves of a step where answers are handed over.
_SPARE_TOKENS = 16

#: Who may decode a prompt, and the share of its room that it would hold.
_Held = tuple[DecodeCandidate, Book, float]


class Fluid:
    """Decides for each prompt who computes it, who decodes it, and whether it is handed off; how many workers lean to
    prefill; and how many prompt tokens each may compute in a step.

    The driver tells what happens to a request under a key of its own (`taken`, `prefilled`, `read`, `moved`, `ended`;
    any of them twice does no harm), what a worker's engine did (`stepped`), and sets `budget` and `chunk_tokens` where the
    engine takes them: now and then, and as soon as an answer begins, which bounds the step that follows. Workers that are
    gone it may `forget`. `place` has the form of `routing.place` and changes nothing but, now and then, who leans.
    """

    def __init__(self, aims: Aims, clock: Callable[[], float], knobs: Knobs | None = None) -> None:
        self.aims = aims
        self.knobs = knobs or Knobs()
        self.law = StepLaw()
        self.leaning: set[str] = set()
        self._clock = clock
        self._demand = Demand(self.knobs.memory_s)
        self._books: dict[str, Book] = {}
        self._trips: dict[str, Trip] = {}
        self._looked_s = 0.0
        self._haste = 0.0  # of the answers that come

    def book(self, worker_id: str) -> Book:
        found = self._books.get(worker_id)
        if found is None:
            found = self._books[worker_id] = Book()
        return found

    # what happens

    def taken(
        self, key: str, placement: Placement, need: Need, cached_tokens: int = 0, *, arrives: bool = True
    ) -> None:
        """A worker has promised KV, or is being asked. `cached_tokens`: found where the prompt is computed. `arrives`
        False: it has been taken before, and is not one more that comes."""
        self.ended(key)
        uncached = max(1, need.prompt_tokens - cached_tokens)
        output, context = _output(need), _context(need)
        trip = Trip(placement.worker_id, placement.prefill_id or placement.worker_id, uncached, context, output)
        prefill = self.book(trip.prefill)
        if prefill.backlog.late < self.knobs.late_tokens:
            trip.late = self._first_token_s(trip.prefill, uncached) > self.knobs.late_share * self.aims.ttft_s
        self._trips[key] = trip
        if arrives:
            self._demand.arrived(self._clock(), need.prompt_tokens, uncached, output)
        prefill.queue(key, uncached, late=trip.late)
        self.book(trip.decode).enter(key, context, output, handed=trip.handed)

    def prefilled(self, key: str) -> None:
        """Its first token is there."""
        trip = self._trips.get(key)
        if trip is None or trip.first_s is not None:
            return
        trip.first_s = self._clock()
        self.book(trip.prefill).backlog.done(key)
        if not trip.handed:
            self._decodes(key, trip, trip.first_s)

    def read(self, key: str) -> None:
        """Its KV is read from where it is: there is nothing to compute, and no step will tell of it."""
        trip = self._trips.get(key)
        if trip is not None and trip.first_s is None:
            self.book(trip.prefill).backlog.drop(key)

    def moved(self, key: str) -> None:
        """It decodes where it was handed to."""
        self.prefilled(key)
        trip = self._trips.get(key)
        if trip is not None and trip.first_s is not None and not trip.decoding:
            self._decodes(key, trip, trip.first_s)

    def ended(self, key: str) -> None:
        """However it ended."""
        trip = self._trips.pop(key, None)
        if trip is None:
            return
        if trip.first_s is None:
            self.book(trip.prefill).backlog.drop(key)
        self.book(trip.decode).leave(key, trip.context_tokens)

    def stepped(self, worker_id: str, steps: StepTotals) -> None:
        book = self.book(worker_id)
        self.law.learn(steps, book.budget)
        book.stepped(steps, self._clock())

    def forget(self, workers: Collection[str]) -> None:
        """They are gone. Whoever still has something in hand there keeps its book until then."""
        for worker_id in workers:
            book = self._books.get(worker_id)
            if book is not None and not book.promised and not book.backlog:
                del self._books[worker_id]

    @property
    def books(self) -> Set[str]:
        """Workers that have a book."""
        return self._books.keys()

    def _decodes(self, key: str, trip: Trip, first_s: float) -> None:
        trip.decoding = True
        self.book(trip.decode).begin(key, first_s, trip.output_tokens, self._clock())

    # what to do

    def late(self, key: str) -> bool:
        """Whether the prompt was not expected in time when it came: it goes behind those that are."""
        trip = self._trips.get(key)
        return trip is not None and trip.late

    def budget(self, worker_id: str) -> int:
        """Tokens of all kinds that the worker may compute in a step, as it is told now."""
        book = self.book(worker_id)
        book.budget = book.step_tokens(self.law, self.aims, self.knobs)
        return book.budget

    def chunk_tokens(self, worker_id: str) -> int:
        """Those of one prompt: all that the step has for prompts, or half of it where one that is late has begun and others
        wait. Where answers are handed over it leaves a few: where a prompt takes all that there is, an engine does not even
        begin to load."""
        book = self.book(worker_id)
        chunk = book.step_tokens(self.law, self.aims, self.knobs) - book.answers - len(book.handed)
        if book.backlog.shared:
            chunk = -(-chunk // 2)
        return max(1, chunk - _SPARE_TOKENS) if book.handed else chunk

    def place(
        self, need: Need, fleet: Fleet, rules: Rules, avoid: Collection[str] = (), never: Collection[str] = ()
    ) -> Outlook:
        """The way with the least load: time to the first token, step and KV, each against its aim.

        Answers go to workers that lean to prefill only while no other has KV for them; there they stay.
        """
        fitting = able_to_decode(need, fleet, rules, never)
        if isinstance(fitting, Wait | NoRoute):
            return fitting
        self._look(fleet)
        self._haste = self._demand.load(self._clock()).haste
        if avoid:
            fitting = [one for one in fitting if one.worker_id not in avoid] or fitting
        held = self._held(need, fitting)
        roomy = [each for each in held if each[2] <= 1 and each[0].worker_id not in self.leaning]
        return _placement(self._ways(need, fleet, roomy or held), fitting)

    def _ways(self, need: Need, fleet: Fleet, decoders: Sequence[_Held]) -> list[Way]:
        """The best ways, the best first. Every prompt has all workers looked at, so only what is told becomes a `Way`."""
        law, aims, knobs, context = self.law, self.aims, self.knobs, _context(need)
        step_aim_s, first_aim_s = knobs.tpot_share * aims.tpot_s, knobs.ttft_share * aims.ttft_s
        helped = fleet.dedicated or bool(self.leaning)  # some compute for others
        found, least = [], (inf, "", 0.0, 0.0)
        for at, (one, book, held) in enumerate(decoders):
            uncached, kept = max(1, need.prompt_tokens - one.cached_tokens), held**_SHARPNESS
            first_s = book.first_token_s(uncached, law, aims, knobs)
            step_s, alone_s = book.steps_s(context, uncached, law, aims, knobs, self._haste)
            load = (step_s / step_aim_s) ** _SHARPNESS + kept + (first_s / first_aim_s) ** _SHARPNESS
            found.append((load, one.worker_id, at, one.worker_id, 0, first_s, step_s, held))
            if helped and (alone := (alone_s / step_aim_s) ** _SHARPNESS + kept) <= least[0]:
                least = min(least, (alone, one.worker_id, alone_s, held))
        if helped:
            alone, decode, step_s, held = least
            late = (knobs.handoff_steps * haste_of(_output(need))) ** _SHARPNESS
            for at, other in enumerate(self._prefillers(fleet, decode), len(decoders)):
                first_s = self.book(other).first_token_s(need.prompt_tokens, law, aims, knobs)
                load = alone + (first_s / first_aim_s) ** _SHARPNESS + late
                found.append((load, other, at, decode, self._first_tokens(other, need), first_s, step_s, held))
        found.sort()
        return [
            Way(decode, computed_by, tokens, load, first_s, step_s, held)
            for load, computed_by, _, decode, tokens, first_s, step_s, held in found[:_TOLD]
        ]

    def _first_tokens(self, worker_id: str, need: Need) -> int:
        """More than one only while the worker that computes the prompt would keep the aim with this answer in its steps."""
        if self.knobs.first_tokens < 2:
            return 1
        book = self.book(worker_id)
        chunk = min(book.backlog.tokens, book.most_chunk_tokens(self.law, self.aims, self.knobs))
        step_s = self.law.step_s(book.answers + 1, book.reading_tokens + need.prompt_tokens, chunk)
        return self.knobs.first_tokens if step_s <= self.knobs.tpot_share * self.aims.tpot_s else 1

    def _prefillers(self, fleet: Fleet, decode: str) -> list[str]:
        links, leaning = fleet.links.get(decode, {}), self.leaning
        return [
            one.worker_id
            for one in fleet.prefills
            if (one.role is Role.PREFILL or one.worker_id in leaning)
            and one.worker_id in links
            and one.worker_id != decode
        ]

    def _held(self, need: Need, fitting: Sequence[DecodeCandidate]) -> list[_Held]:
        """With the share of its room that each one's answers would take."""
        context, knobs, found = _context(need), self.knobs, []
        for one in fitting:
            book = self._books.get(one.worker_id) or self.book(one.worker_id)
            book.kv_tokens, book.sequences = _kv_tokens(one), _sequences(one)
            found.append((one, book, book.held(knobs, context, need.answers)))
        return found

    def _first_token_s(self, worker_id: str, tokens: int) -> float:
        return self.book(worker_id).first_token_s(tokens, self.law, self.aims, self.knobs)

    def _look(self, fleet: Fleet) -> None:
        """Who leans from now on: those with the least to decode."""
        now_s = self._clock()
        if now_s < self._looked_s or not self.knobs.leans:
            return
        self._looked_s = now_s + self.knobs.every_s
        prefills = {one.worker_id for one in fleet.prefills}
        fluid = [d for d in fleet.decodes if d.role is Role.BOTH and d.worker_id in prefills]
        self.leaning &= {one.worker_id for one in fluid}
        decode = len(fleet.decodes) - len(fluid)
        prefill = sum(p.role is Role.PREFILL for p in fleet.prefills)
        room = Room(fmean(map(_kv_tokens, fleet.decodes)), fmean(map(_sequences, fleet.decodes)))
        load = self._demand.load(now_s)
        wanted = best(load, self.law, len(fluid), prefill, decode, room, self.aims, self.knobs, len(self.leaning))
        by_answers = sorted(fluid, key=lambda d: (self.book(d.worker_id).context_tokens, d.worker_id))
        for one in by_answers:
            if len(self.leaning) < wanted:
                self.leaning.add(one.worker_id)
        for one in reversed(by_answers):
            if len(self.leaning) > wanted:
                self.leaning.discard(one.worker_id)


def _placement(ways: Sequence[Way], fitting: Sequence[DecodeCandidate]) -> Placement:
    """The first of them, with the next ones for whoever asks why."""
    way, told = ways[0], tuple(ways)
    if way.first_tokens:
        return Placement(
            way.worker_id,
            Path.REMOTE,
            "fluid",
            prefill_id=way.computed_by,
            first_tokens=way.first_tokens,
            ways=told,
        )
    role = next(one.role for one in fitting if one.worker_id == way.worker_id)
    return Placement(way.worker_id, Path.COLOCATED if role is Role.BOTH else Path.LOCAL, "fluid", ways=told)


def _output(need: Need) -> float:
    """Expected tokens of the answer."""
    return max(1.0, need.expected_tokens or need.growth_tokens)


def _context(need: Need) -> float:
    """KV that it holds, on the mean over its life."""
    return need.prompt_tokens + _output(need) / 2


def _kv_tokens(one: DecodeCandidate) -> int:
    return one.kv_tokens or one.blocks_total * one.block_size_tokens


def _sequences(one: DecodeCandidate) -> int:
    """That run at once."""
    return one.engine_slots or one.slots_total
