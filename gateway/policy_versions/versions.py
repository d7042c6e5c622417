"""The policy in force and the one on trial: changed as a whole, between two decisions, or not at all."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from gateway.policy_config import PolicyConfig
from gateway.policy_versions.coverage import Coverage, coverage
from gateway.policy_versions.document import Difference, WrongPolicyError, differences, digest, plain, policy_of
from gateway.policy_versions.guard import Guard
from gateway.policy_versions.history import Action, Change, History, HistoryError
from gateway.policy_versions.outcomes import Account, Outcomes, OutcomeWatch

log = logging.getLogger(__name__)


class ConflictError(Exception):
    """The change does not fit the state: nothing to go back to, a canary under way or none."""


class Follower(Protocol):
    """What works by the policy: the gateway's controller."""

    def adopt(self, config: PolicyConfig) -> None: ...
    def try_out(self, config: PolicyConfig | None, share: float = 0.0) -> None: ...


class Nobody:
    """Works by no policy; for tests of what is around it."""

    def adopt(self, config: PolicyConfig) -> None:
        pass

    def try_out(self, config: PolicyConfig | None, share: float = 0.0) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Trial:
    """A canary. `covered`: what of the difference it can try out."""

    policy: PolicyConfig
    share: float
    since: str
    by: str
    note: str
    covered: Coverage
    guard: Guard


@dataclass(frozen=True, slots=True)
class Changed:
    """`before` and `after` are versions; equal where nothing had to be done."""

    before: str
    after: str
    differences: tuple[Difference, ...]


class Versions:
    """Not thread-safe: every method runs between two decisions, on the loop that makes them.

    A change is checked first, then written to the history, then followed; where a step fails, none after it is taken.
    """

    def __init__(
        self,
        configured: PolicyConfig,
        follower: Follower | None = None,
        history: History | None = None,
        watch: OutcomeWatch | None = None,
        now: Callable[[], str] = lambda: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    ) -> None:
        self._follower = follower or Nobody()
        self._configured = digest(configured)
        self._now = now
        self.history = History() if history is None else history
        self.watch = watch or OutcomeWatch()
        self.watch.judge = self._judge
        self.policy = configured
        self.trial: Trial | None = None
        self._resume()

    @property
    def version(self) -> str:
        return self.policy.name

    def check(self, document: Any) -> tuple[PolicyConfig, tuple[Difference, ...]]:
        """The policy, and how it differs from the one in force. Raises WrongPolicyError."""
        policy = policy_of(document)
        self._need_free_name(policy)
        return policy, differences(self.policy, policy)

    def apply(self, document: Any, by: str, note: str) -> Changed:
        """Raises WrongPolicyError, ConflictError, HistoryError; then everything is as it was."""
        policy, _ = self.check(document)
        return self._put_in_force(policy, Action.APPLIED, by, note)

    def roll_back(self, version: str, by: str, note: str) -> Changed:
        """To `version`, or with "" to the one before: called again, further back. Raises ConflictError, HistoryError."""
        found = self.history.named(version) if version else self.history.before
        if found is None:
            known = ", ".join(dict.fromkeys(one.version for one in reversed(list(self.history)))) or "none"
            raise ConflictError(
                f"the history knows no version {version}; it has: {known}"
                if version
                else f"no version was in force before {self.version}; to go to another, name it; the history has: {known}"
            )
        return self._put_in_force(policy_of(found.settings), Action.ROLLED_BACK, by, note)

    def try_out(self, document: Any, share: float, by: str, note: str, guard: Guard | None = None) -> Trial:
        """Begins a canary, or changes share and guard of the one under way if `document` is its policy."""
        policy, _ = self.check(document)
        if self.trial and digest(self.trial.policy) != digest(policy):
            raise ConflictError(f"a canary of {self.trial.policy.name} is under way; promote or abort it first")
        covered = coverage(self.policy, policy)
        if not covered.tried:
            rest = ", ".join(covered.not_tried) or "nothing"
            raise ConflictError(
                f"a canary would not show anything: {policy.name} differs in {rest}, which all requests share"
            )
        trial = Trial(policy, share, self._now(), by, note, covered, guard or Guard())
        self._record(Action.CANARY_STARTED, policy, by, note, share)
        if self.trial is None:
            self.watch.trial = Outcomes()
        self.trial = trial
        self._follower.try_out(policy, share)
        return trial

    def promote(self, by: str, note: str) -> Changed:
        """The canary's policy, all of it, for everybody."""
        return self._put_in_force(self._on_trial().policy, Action.PROMOTED, by, note, of_trial=True)

    def abort(self, by: str, note: str) -> Trial:
        trial = self._on_trial()
        self._record(Action.CANARY_ENDED, trial.policy, by, note, trial.share)
        self._end_trial("aborted")
        self._follower.try_out(None)
        return trial

    def _judge(self) -> None:
        """After each request while a canary runs. What does harm is ended even where that cannot be written down."""
        trial, seen = self.trial, self.watch.trial
        if trial is None or seen is None or not trial.guard.due(seen.of(trial.policy.name)):
            return
        why = trial.guard.objection(seen.of(self.version), seen.of(trial.policy.name))
        if why:
            log.warning("the canary of %s is ended: %s", trial.policy.name, why)
            self._note(Action.CANARY_ENDED, trial.policy, "guard", why, trial.share)
            self._end_trial("ended by its guard")
            self._follower.try_out(None)

    def _put_in_force(
        self, policy: PolicyConfig, action: Action, by: str, note: str, *, of_trial: bool = False
    ) -> Changed:
        if self.trial and not of_trial:
            raise ConflictError(f"a canary of {self.trial.policy.name} is under way; promote or abort it first")
        before = self.policy
        if digest(before) == digest(policy):
            return Changed(before.name, before.name, ())
        self._record(action, policy, by, note)
        if self.trial:
            self._end_trial("promoted")
        self.policy = policy
        self._follower.adopt(policy)
        log.info("policy %s in place of %s: %s by %s", policy.name, before.name, action.value, by or "anyone")
        return Changed(before.name, policy.name, differences(before, policy))

    def _on_trial(self) -> Trial:
        if self.trial is None:
            raise ConflictError("no canary is under way")
        return self.trial

    def compared(self) -> dict[str, Account]:
        """The version in force and the one on trial, since the trial began. Raises ConflictError where none runs."""
        trial, seen = self._on_trial(), self.watch.trial or Outcomes()
        return {name: seen.of(name) for name in (self.version, trial.policy.name)}

    def _end_trial(self, how: str) -> None:
        """Its figures go to the log: they are why it was ended."""
        for version, account in self.compared().items():
            log.info("canary %s: version %s: %s", how, version, account.document())
        self.trial, self.watch.trial = None, None

    def _need_free_name(self, policy: PolicyConfig) -> None:
        """One name, one policy: an answer's header must say which it was."""
        found = self.history.named(policy.name)
        if found is not None and digest(policy_of(found.settings)) != digest(policy) and policy.version:
            raise WrongPolicyError(
                f"version: {policy.name} is the name of another policy ({found.action.value} at {found.at}); choose a new one"
            )

    def _record(self, action: Action, policy: PolicyConfig, by: str, note: str, share: float | None = None) -> None:
        self.history.add(self._change(action, policy, by, note, share))

    def _note(self, action: Action, policy: PolicyConfig, by: str, note: str, share: float | None = None) -> None:
        """For what has happened anyway: a gateway starts, whether or not its history can be written."""
        change = self._change(action, policy, by, note, share)
        try:
            self.history.add(change)
        except HistoryError as error:
            log.warning("%s; changes of the policy will be refused", error)
            self.history.remember(change)

    def _change(self, action: Action, policy: PolicyConfig, by: str, note: str, share: float | None) -> Change:
        return Change(
            self.history.next_serial,
            self._now(),
            action,
            policy.name,
            by,
            note,
            self._configured,
            plain(policy),
            share,
        )

    def _resume(self) -> None:
        """What was applied outlives the process, unless the configuration has changed since: then that is newer."""
        last = self.history.in_force
        if last is None or last.configured != self._configured:
            self._note(Action.CONFIGURED, self.policy, "configuration", "")
            return
        policy = policy_of(last.settings)
        if digest(policy) != self._configured:
            log.info("policy %s, %s at %s, stays in force", policy.name, last.action.value, last.at)
            self.policy = policy
            self._follower.adopt(policy)
        newest = list(self.history)[-1]
        if newest.action is Action.CANARY_STARTED:
            self._note(Action.CANARY_ENDED, policy_of(newest.settings), "", "the gateway was restarted", newest.share)
