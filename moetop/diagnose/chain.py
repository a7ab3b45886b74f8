"""The two tables that give a GPU its state, and how their steps are read. Figures in, states out.

A step is a conjunction of comparisons; the first step that holds is the state. A figure that is
absent leaves a comparison open: all states still possible are followed, and only when they agree is
one said. Thus an absent value can take a verdict away but never make one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

import msgspec

from moetop.diagnose import thresholds as th
from moetop.diagnose.window import Figures
from moetop.model import GpuState


class Test(msgspec.Struct, frozen=True):
    """One comparison of a figure with its cut. `absent` is the answer when the figure is not there."""

    figure: str
    op: str
    cut: float
    absent: bool | None = None


Step = tuple[GpuState, tuple[Test, ...]]

_OPS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

MEASURED: tuple[Step, ...] = (
    (GpuState.IDLE, (Test("util_gpu_pct", "<", th.IDLE_UTIL_PCT),)),
    (
        GpuState.TRANSFER_BOUND,
        (
            Test("sm_pct", "<", th.TRANSFER_SM_PCT),
            Test("pcie_mib_s", ">", th.TRANSFER_PCIE_MIB_S),
            Test("util_gpu_pct", ">=", th.TRANSFER_UTIL_PCT),
        ),
    ),
    (GpuState.HOST_BOUND, (Test("util_gpu_pct", "<", th.HOST_BOUND_UTIL_PCT),)),
    (GpuState.MEMORY_BOUND, (Test("dram_pct", ">=", th.MEMORY_DRAM_PCT),)),
    (
        GpuState.MEMORY_BOUND,
        (Test("dram_pct", ">=", th.MEMORY_ALONE_DRAM_PCT), Test("tensor_pct", "<", th.STARVED_TENSOR_PCT)),
    ),
    (GpuState.TENSOR_BUSY, (Test("tensor_pct", ">=", th.TENSOR_BUSY_PCT),)),
    (GpuState.SM_UNDERUSED, (Test("sm_pct", "<", th.SM_UNDERUSED_PCT),)),
    (
        GpuState.SM_UNDERUSED,
        (
            Test("tensor_pct", "<", th.WAITING_PIPE_PCT),
            Test("vector_pct", "<", th.WAITING_PIPE_PCT),
            Test("dram_pct", "<", th.WAITING_DRAM_PCT),
        ),
    ),
    (
        GpuState.VECTOR_BOUND,
        (Test("tensor_pct", "<", th.VECTOR_TENSOR_PCT), Test("vector_pct", ">", th.VECTOR_FP_PCT)),
    ),
    (
        GpuState.TENSOR_STARVED,
        (Test("tensor_pct", "<", th.STARVED_TENSOR_PCT), Test("dram_pct", "<", th.STARVED_DRAM_PCT)),
    ),
    (GpuState.BALANCED, ()),
)
"""With GPM. Every cut is calibrated on the H200 recordings (thresholds.py)."""

INFERRED: tuple[Step, ...] = (
    (
        GpuState.IDLE,
        (Test("util_gpu_pct", "<", th.IDLE_UTIL_PCT), Test("power_pct", "<", th.IDLE_POWER_MAX_PCT, absent=True)),
    ),
    (
        GpuState.HOST_BOUND,
        (Test("util_gpu_pct", ">=", th.IDLE_UTIL_PCT), Test("util_gpu_pct", "<", th.HOST_BOUND_UTIL_PCT)),
    ),
    (
        GpuState.MEMORY_BOUND,
        (
            Test("util_gpu_pct", ">=", th.HOST_BOUND_UTIL_PCT),
            Test("util_mem_pct", ">=", th.INFERRED_MEMORY_UTIL_PCT),
        ),
    ),
    (
        GpuState.TENSOR_STARVED,
        (
            Test("util_gpu_pct", ">=", th.SIGNATURE_UTIL_PCT),
            Test("power_pct", ">=", th.SIGNATURE_POWER_MIN_PCT),
            Test("power_pct", "<=", th.SIGNATURE_POWER_MAX_PCT),
            Test("util_mem_pct", ">=", th.SIGNATURE_MEMORY_UTIL_MIN_PCT),
            Test("util_mem_pct", "<=", th.SIGNATURE_MEMORY_UTIL_MAX_PCT),
            Test("clock_pct", ">=", th.SIGNATURE_CLOCK_PCT, absent=True),
        ),
    ),
    (GpuState.UNKNOWN, ()),
)
"""Without GPM. Power alone decides little: an untuned kernel can draw 99 % of the limit, and ranks
waiting for each other can draw 55-67 %."""


def holds(tests: tuple[Test, ...], figures: Figures) -> bool | None:
    """Whether all comparisons hold; None where an absent figure leaves it open."""
    unknown = False
    for test in tests:
        value = getattr(figures, test.figure)
        answer = test.absent if value is None else _OPS[test.op](value, test.cut)
        if answer is False:
            return False
        unknown = unknown or answer is None
    return None if unknown else True


def possible_states(chain: tuple[Step, ...], figures: Figures) -> tuple[GpuState, ...]:
    """States the chain can end in, given that absent figures may be anything."""
    states: list[GpuState] = []
    for state, tests in chain:
        answer = holds(tests, figures)
        if answer is not False:
            states.append(state)
        if answer is True:
            break
    return tuple(dict.fromkeys(states))


def steps_until(chain: tuple[Step, ...], state: GpuState, figures: Figures) -> list[Step]:
    """The steps tried before a state was said, then the one that says it: of several the first that holds,
    else (a state kept while a figure lies just beyond its cut) the first of that state."""
    mine = [step for step in chain if step[0] is state]
    said = next((step for step in mine if holds(step[1], figures) is not False), mine[0] if mine else None)
    steps: list[Step] = []
    for step in chain:
        if step is said:
            return [*steps, step]
        if step[0] is not state and all(step[0] is not other[0] for other in steps):
            steps.append(step)
    return steps
