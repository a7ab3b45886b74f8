"""Plain strings that decide whether a line can be an event at all. Runs before any pattern."""

from __future__ import annotations

from moetop.engines.rules import RULES

CONTINUATIONS = ("error: ", "exception: ", "nvrm: ")
"""Lines that complete an event of an earlier line: an exception's last line, a spread kernel record."""


STEMS = (
    "autotun", "tactic", "disabl", "failed to ", "exception", "enginecore", "watchdog ", "shutdown", "signal",
    "out of memory", "moe config", "moe kernel config", "allreduce", "attention backend", "marlin", "deep_gemm",
    "graph captur", "torch.compile", " took ", "capturing ", "signum=", "no available ", "paged kv cache",
    "different environment", " metrics", "retrieving dcgm", "starting ", "jit ops: ", "load weight", "warmup request",
    " of warmup", "server version", "deepgemm jit", "exit code", "exitcode", "exited ", "scheduler ",
)  # fmt: skip
"""Parts that many rows' literals share: fewer strings make the search of each line faster."""


def _without_longer(texts: tuple[str, ...]) -> tuple[str, ...]:
    """`texts` without those that hold another of them."""
    return tuple(text for text in texts if not any(other != text and other in text for other in texts))


def _collect() -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    events: dict[str, None] = dict.fromkeys(CONTINUATIONS)
    noise: dict[str, dict[str, None]] = {}
    for rule in RULES:
        if rule.is_counted:
            noise.setdefault(rule.kind.value, {}).update(dict.fromkeys(rule.literals))
        else:
            events.update(dict.fromkeys(rule.literals))
    return _without_longer(tuple(events)), {kind: tuple(texts) for kind, texts in noise.items()}


_EVENTS, _NOISE = _collect()
_QUICK = _without_longer((*STEMS, *(text for text in _EVENTS if not any(stem in text for stem in STEMS))))


def scan_literals() -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """`(literals, noise_literals)`, all lower case.

    A line holding one of `literals` (whatever its case) may be an event and always travels; a line
    holding none of them and one of `noise_literals[kind]` is counted under that kind. The literals
    are specific, so that a storm of one kind does not crowd out the others.
    """
    return _EVENTS, dict(_NOISE)


_COUNTED = tuple(text for texts in _NOISE.values() for text in texts)


def may_be_event(lowered: str) -> bool:
    """Whether a lower-case line holds a literal of an event."""
    return any(text in lowered for text in _QUICK)


def may_be_counted(lowered: str) -> bool:
    """Whether a lower-case line holds a literal of a counted kind."""
    return any(text in lowered for text in _COUNTED)
