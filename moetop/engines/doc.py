"""Writes docs/events.md from the rules table: `python -m moetop.engines.doc > docs/events.md`."""

from __future__ import annotations

import sys

from moetop.engines.rules import RULES, Rule
from moetop.model import EventKind

_HEAD = """# Log events

moetop reads a server's log line by line and turns the lines it knows into events. This page is
written from the table in `moetop/engines/rules/` by `python -m moetop.engines.doc`; do not edit it.

- The first row that fits wins. Rows of another engine than the record's are passed over; rows of
  FlashInfer fit every engine.
- Severity: `good`, `info`, `notice`, `warn` (tuning quality), `perf` (explains low power), `error`,
  `fatal`, `metric` and `noise` (counted, only the newest kept). Progress bars are counted too.
- A row marked *block* takes the lines that follow (a traceback) into its event; one marked *echo*
  repeats an earlier event of its kind in other words and is no event of its own after it.
- The same event on several ranks is one event with its ranks and a count.
- In a JSON record the message decides the kind; a traceback in it is the event's continuation.
- Sources name the engine's file and the commit or release it was read from.
"""


def render() -> str:
    """The page."""
    parts = [_HEAD, _summary()]
    for kind in EventKind:
        rules = [rule for rule in RULES if rule.kind is kind]
        if rules:
            parts.append(f"## {kind.value}\n")
            parts.extend(_describe(rule) for rule in rules)
    return "\n".join(parts)


def _summary() -> str:
    lines = ["| kind | rows |", "|---|---|"]
    for kind in EventKind:
        names = [f"`{rule.id}`" for rule in RULES if rule.kind is kind]
        if names:
            lines.append(f"| [{kind.value}](#{kind.value}) | {', '.join(names)} |")
    return "\n".join(lines) + "\n"


def _describe(rule: Rule) -> str:
    engines = ", ".join(engine.value for engine in rule.engines) or "any"
    marks = [word for word, on in (("block", rule.block), ("echo", rule.echo), ("counted", rule.is_counted)) if on]
    more = f" · {rule.versions}" if rule.versions else ""
    marked = f" · *{', '.join(marks)}*" if marks else ""
    pattern = rule.pattern.replace("`", "'")
    return (
        f"### `{rule.id}`\n\n"
        f"{rule.meaning} — **{rule.severity.value}**, {engines}{more}{marked}. Source: {rule.source}.\n\n"
        f"```text\n{pattern}\n{rule.example.rstrip()}\n```\n"
    )


def main() -> int:
    """Print the page."""
    sys.stdout.write(render())
    return 0


if __name__ == "__main__":
    sys.exit(main())
