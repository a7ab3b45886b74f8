"""Text of the server page: verdict, numbers, files, log, runs, events, arguments. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from moetop.model import EventKind, EventSeverity, LogEvent, ServerReport, TuningFile
from moetop.ui import fmt, pages
from moetop.ui.loglines import args_digest, event_clock
from moetop.ui.paint import clean
from moetop.ui.words import EVENT_ROLES, EVENT_WORDS, PHASE_SIGNS, VERDICT_SIGNS

EVENTS_SHOWN = 60
"""The log screen has the rest."""

FIRST_ARGS = (
    "model_path", "model", "moe_runner_backend", "quantization", "tensor_parallel_size", "tp_size", "tp",
    "ep_size", "enable_expert_parallel", "attention_backend", "max_running_requests", "cuda_graph_max_bs",
)  # fmt: skip
"""Arguments that matter most to tuning come first."""


def server_page(server: ServerReport, width: int) -> pages.Page:
    """Verdict, arguments, versions, numbers, files, runs, events of one server."""
    phase, verdict = PHASE_SIGNS[server.phase], VERDICT_SIGNS[server.tuning.verdict]
    page: pages.Page = [
        [
            (f"{clean(server.name, 60)}", "text!"),
            (f"   {clean(_engine(server), 80)}", "text"),
            (f"   {phase.glyph} {phase.word}", phase.role),
        ]
    ]
    facts = [f"pid {server.pid}" if server.pid is not None else "", f"port {server.port}" if server.port else ""]
    facts += [server.manager or "", "process gone" if server.gone else ""]
    page.append([(clean("   ".join(filter(None, facts)), 300), "quiet")])
    page += [pages.blank(), [("Tuning       ", "accent!"), (f"{verdict.glyph} {verdict.word}", f"{verdict.role}!")]]
    before = ""
    for sentence in server.tuning.evidence:
        label, rest = pages.split_label(sentence, "Because")
        page += pages.labelled("" if label == before else label, rest, width)
        before = label
    for at, line in enumerate(server.tuning.remedy):
        role = "accent" if line.startswith(pages.COMMAND) else "text!" if at == 0 else "text"
        page += pages.labelled("Do" if at == 0 else "", line, width, role)
    page += [pages.blank(), pages.head("Numbers"), *_metric_lines(server, width)]
    page += [pages.blank(), pages.head("Tuning files this server reads"), *_file_lines(server, width)]
    page += [pages.blank(), pages.head("Log"), *_log_place(server, width)]
    page += [pages.blank(), pages.head("Runs (newest last)"), *_run_lines(server, width)]
    page += [pages.blank(), pages.head("Events of the newest run"), *_event_lines(server)]
    page += [pages.blank(), pages.head("Versions"), *_pairs(server.versions, width)]
    order = {name: at for at, name in enumerate(FIRST_ARGS)}
    args = dict(sorted(server.args.items(), key=lambda item: (order.get(item[0], 99), item[0])))
    page += [pages.blank(), pages.head("Arguments"), *_pairs(args, width)]
    page += [pages.blank(), pages.head("Environment (names that matter)"), *_pairs(server.env, width)]
    for note in server.notes:
        page += pages.labelled("note", note, width, "quiet")
    return page


def _engine(server: ServerReport) -> str:
    if server.engine is None:
        return "engine not known"
    return f"{server.engine.value} {server.version or '(version not known)'}"


def _pairs(values: Mapping[str, object], width: int) -> pages.Page:
    if not values:
        return pages.labelled("", "none known", width, "quiet")
    page: pages.Page = []
    for name, value in values.items():
        page += [
            [(f"{clean(str(name), 60):<32} ", "quiet"), (clean(str(value), 2000), "text")],
        ]
    return page


def _metric_lines(server: ServerReport, width: int) -> pages.Page:
    numbers = server.metrics
    if numbers is None:
        return pages.labelled("", "the server gives none, and its log has no periodic line yet", width, "quiet")
    return pages.two_columns(
        [
            ("running", fmt.number(numbers.running)),
            ("waiting", fmt.number(numbers.waiting)),
            ("generated", _measure(numbers.generation_tokens_s, "tok/s", numbers.source)),
            ("prompt", _measure(numbers.prompt_tokens_s, "tok/s", numbers.source)),
            ("KV used", _measure(numbers.kv_usage_pct, "%", numbers.source)),
            ("read from", clean(numbers.source or fmt.ABSENT, 60)),
        ],
        width,
    )


def _measure(value: float | None, unit: str, source: str | None) -> str:
    """A number with its unit, or the dash with where it is not to be found."""
    if value is not None:
        return f"{fmt.number(value)} {unit}"
    return f"{fmt.ABSENT} (not in {clean(source, 40)})" if source else fmt.ABSENT


NAMED_IN_LOG: dict[EventKind, str] = {
    EventKind.MOE_CONFIG_TUNED: "read",
    EventKind.MOE_CONFIG_FALLBACK: "read instead",
    EventKind.MOE_CONFIG_DEFAULT: "missed",
    EventKind.MOE_CONFIG_NO_DOWN_VARIANT: "missed",
    EventKind.GEMM_CONFIG_DEFAULT: "missed",
    EventKind.AUTOTUNE_CACHE_LOADED: "loaded",
    EventKind.AUTOTUNE_CACHE_SAVED: "saved",
    EventKind.AUTOTUNE_CACHE_REJECTED: "rejected",
}
"""Events that name a tuning file, and what the server did with it."""


def _files_of_log(server: ServerReport) -> dict[str, str]:
    """Tuning files that the newest run's log names, and what was done with each."""
    newest = server.runs[-1].n if server.runs else None
    found: dict[str, str] = {}
    for event in server.events:
        if event.kind in NAMED_IN_LOG and (newest is None or event.run == newest):
            path = event.fields.get("file") or event.fields.get("path")
            if isinstance(path, str) and path:
                found[path] = NAMED_IN_LOG[event.kind]
    return found


def _file_lines(server: ServerReport, width: int) -> pages.Page:
    if not server.files:
        named = _files_of_log(server)
        words = "the host's list of tuning files has not come, or names none for this server"
        page = pages.labelled("", f"{words}; its log says:" if named else words, width, "quiet")
        for path, done in named.items():
            page += pages.labelled(done, path, width)
        return page
    return _listed_files(server.files, width)


def _listed_files(files: Sequence[TuningFile], width: int) -> pages.Page:
    page: pages.Page = []
    for file in files:
        if not file.exists:
            sign, word, role = "✕", "missing", "warning"
        elif file.stale:
            sign, word, role = "▲", "stale", "warning"
        else:
            sign, word, role = "●", "there", "good"
        page.append(
            [(f"{sign} {word:<8} ", role), (f"{clean(file.role, 30):<18} ", "quiet"), (clean(file.path), "text")]
        )
        if file.stale:
            page += pages.labelled("", file.stale, width, "warning")
        facts = "  ".join(f"{name}={value}" for name, value in file.facts.items())
        details = "  ".join(filter(None, (fmt.size(file.size) if file.size is not None else "", facts)))
        if file.exists and details:
            page += pages.labelled("", details, width, "quiet")
    return page


def _log_place(server: ServerReport, width: int) -> pages.Page:
    place = server.log
    if place is None:
        return pages.labelled("", "where its output goes is not known yet", width, "quiet")
    page = pages.labelled(place.kind, place.target or place.why or fmt.ABSENT, width)
    if place.target and place.why:
        page += pages.labelled("", place.why, width, "warning")
    if place.fix:
        page += pages.labelled("fix", place.fix, width, "accent")
    return page


def _run_lines(server: ServerReport, width: int) -> pages.Page:
    if not server.runs:
        return pages.labelled("", "no start of this server in what was read of its log", width, "quiet")
    page: pages.Page = []
    for run in server.runs[-12:]:
        sign = PHASE_SIGNS[run.phase]
        start = run.start_text or fmt.clock_time(run.start)
        page.append([(f"{run.n:>4}  {clean(start, 30):<22} ", "text"), (f"{sign.glyph} {sign.word}", sign.role)])
    return page


def _event_words(event: LogEvent) -> str:
    digest = args_digest(event.line) if event.kind is EventKind.SERVER_ARGS else None
    return digest or fmt.headless(event.line[:4096])


def _event_lines(server: ServerReport) -> pages.Page:
    newest = server.runs[-1].n if server.runs else None
    events = [
        event
        for event in server.events
        if (newest is None or event.run == newest) and event.severity not in (EventSeverity.METRIC, EventSeverity.NOISE)
    ][-EVENTS_SHOWN:]
    page: pages.Page = []
    for event in events:
        when = event_clock(event)
        times = f" ×{event.count}" if event.count > 1 else ""
        role = EVENT_ROLES[event.severity]
        page.append(
            [
                (f"{when} ", "quiet"),
                (f"{EVENT_WORDS.get(event.kind, event.kind.value):<9} ", role),
                (clean(_event_words(event), 1000) + times, role),
            ]
        )
    return page or [[("none", "quiet")]]
