"""What is known of one GPU of a host: its window, the state decided at every sample, its report."""

from __future__ import annotations

import msgspec

from moetop.diagnose import thresholds as th
from moetop.diagnose.crossgpu import is_waiting
from moetop.diagnose.states import Decision, GpuContext, decide, decide_one, report_gpu
from moetop.diagnose.view import GpuView
from moetop.diagnose.window import Figures, GpuWindow, figures_of
from moetop.model import Confidence, GpuInfo, GpuSample, GpuState
from moetop.trail import Standing

_SELDOM = (
    "processes",
    "processes_why",
    "pcie_gen",
    "pcie_width",
    "ecc_corrected",
    "ecc_uncorrected",
    "memory_total_mib",
)
"""Values a probe reads more seldom than it samples: the last one stands until the next."""

_NOTHING = Decision(GpuState.UNKNOWN, Confidence.INFERRED)


class GpuEvidence:
    """One GPU. The state is decided when a sample comes, never when a report is asked for, so that
    steadiness does not depend on how often somebody looks."""

    def __init__(self, info: GpuInfo, window_s: float) -> None:
        self.info = info
        self._window = GpuWindow(window_s)
        self._figures = Figures()
        self._decision = _NOTHING
        self._since: float | None = None
        self._best_clock: float | None = None
        self._waits_since: float | None = None
        self._newest: GpuSample | None = None
        self._view: GpuView | None = None

    def inform(self, info: GpuInfo) -> None:
        """Take the constants again, after a reconnect."""
        self.info = info
        self._view = None

    def take(self, t: float, sample: GpuSample, running: float | None) -> None:
        """Take a sample of time `t`; `running` is how many requests its server runs, where known."""
        self._window.add(t, sample, decide_one(self.info, sample, running))
        first = self._newest is None
        self._newest = self._with_seldom(sample)
        samples = self._window.at(t)
        before = self._decision
        self._figures = figures_of(self.info, samples)
        if sample.error is not None:
            self._figures = figures_of(self.info, [sample])
            self._decision = msgspec.structs.replace(_NOTHING, why=f"the GPU cannot be read: {sample.error}")
        else:
            due = first and self._window.window_s > 0 and sample.gpm is None and self.info.gpm is True
            context = GpuContext(running=running, previous=before, gpm_due=due)
            self._decision = decide(self._figures, context, self._window.marks(t))
        if self._since is None or self._decision.state is not before.state or t < self._since:
            self._since = t
        if not is_waiting(self._figures, self.info.name):
            self._waits_since = None
        elif self._waits_since is None or t < self._waits_since:
            self._waits_since = t
        clock, util = sample.sm_clock_mhz, sample.util_gpu_pct
        if clock is not None and util is not None and util >= th.HOST_BOUND_UTIL_PCT:
            self._best_clock = max(clock, self._best_clock or 0.0)
        self._view = None

    def _with_seldom(self, sample: GpuSample) -> GpuSample:
        old = self._newest
        if old is None:
            return sample
        kept = {name: getattr(old, name) for name in _SELDOM if getattr(sample, name) is None}
        there = {name: value for name, value in kept.items() if value is not None}
        if sample.processes is not None:
            there.pop("processes_why", None)
        return msgspec.structs.replace(sample, **there) if there else sample

    def view(self, now: float | None) -> GpuView:
        """The GPU at `now`; unknown when it has gone silent."""
        newest = self._window.newest()
        if newest is not None and now is not None and now - newest[0] > self._window.stale_after_s():
            return self._silent(now - newest[0])
        if self._view is None:
            steady = newest[0] - self._since if newest is not None and self._since is not None else None
            report = report_gpu(self.info, self._newest, self._figures, self._decision, GpuContext())
            waits = newest[0] - self._waits_since if newest is not None and self._waits_since is not None else None
            self._view = GpuView(report, self._figures, self._newest, self._best_clock, steady, waits)
        return self._view

    def standing(self) -> Standing:
        """The state after the newest sample, as a report at its time gives it."""
        decision, newest = self._decision, self._newest
        error = self.info.error if newest is None else newest.error or self.info.error
        return Standing(decision.state, decision.confidence, error, self._window.stale_after_s())

    def _silent(self, silent_s: float) -> GpuView:
        context = GpuContext(silent_s=silent_s)
        return GpuView(report_gpu(self.info, None, Figures(), _NOTHING, context), Figures())
