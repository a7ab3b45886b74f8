"""The command line: arguments -> one mode. Imports of a mode happen in that mode only."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from moetop import __version__
from moetop.errors import ExitCode, MoetopError, UsageError

if TYPE_CHECKING:
    from moetop.config import Config
    from moetop.session import Session

EXIT_CODES = """\
exit codes: 0 done, 1 unexpected fault, 2 bad arguments or files, 3 findings (--check), 4 a host could not
be watched, 5 retune rolled back, 6 server down, 7 retune refused, 8 job still running, 130 interrupted"""

MIN_INTERVAL_S = 0.1
"""Below this two GPM samples are too close to be valid (measured on an H200: from 100 ms on none was bad)."""


FORMATS = ("json", "csv", "md", "svg")
OTHER_FORMATS = frozenset(("png", "jpg", "jpeg", "gif", "pdf", "html", "htm", "xml", "yaml", "yml", "xlsx", "parquet"))
"""Endings that ask for something which a JSON file would not be."""


class _Once(argparse.Action):
    """An option with one value: given twice, one of the two would be passed over in silence."""

    def __call__(self, parser: object, namespace: argparse.Namespace, values: Any, option: str | None = None) -> None:
        if getattr(namespace, self.dest, None) is not None:
            raise UsageError(f"{option} is given twice", "it takes one value; several hosts are several --host")
        setattr(namespace, self.dest, values)


class _Parser(argparse.ArgumentParser):
    """argparse that reports usage errors the way every other error is reported."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.register("action", None, _Once)
        self.register("action", "store", _Once)

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, "try moetop --help")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Help and version; argparse would pass over in silence that they cannot be written."""
        from moetop.stdout import print_text

        print_text(message)

    def parse_whole(self, argv: Sequence[str] | None) -> argparse.Namespace:
        """The arguments. Raises UsageError with what was probably meant where one is not known."""
        args, unknown = self.parse_known_args(argv)
        if unknown:
            raise self._unknown(unknown[0])
        return args

    def _unknown(self, word: str) -> UsageError:
        import shlex

        from moetop.text import plain

        shown = plain(word, 80)
        if word.startswith("-"):
            import difflib

            options = [option for action in self._actions for option in action.option_strings]
            near = difflib.get_close_matches(word.partition("=")[0], options, n=1)
            return UsageError(
                f"there is no option {shown}", f"did you mean {near[0]}?" if near else "try moetop --help"
            )
        option, what = "--host", "watch a host"
        if os.path.isfile(word):  # noqa: PTH113 - Path raises where a name is too long
            option, what = _option_for_file(word)
        return UsageError(f"{shown!r} stands alone", f"to {what}: moetop {option} {shlex.quote(shown)}")


def _option_for_file(path: str) -> tuple[str, str]:
    """The option that takes a file of such a name, and what it does."""
    if path.endswith((".jsonl", ".jsonl.gz")):
        return "--replay", "play a recording"
    if path.endswith((".yaml", ".yml")):
        return "--config", "read a configuration"
    return "--log", "read a server's log"


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if not 0 <= value < 1e7:
        raise argparse.ArgumentTypeError(f"{text} is not a sensible number of seconds")
    return value


def _interval(text: str) -> float:
    value = _seconds(text)
    if value < MIN_INTERVAL_S:
        raise argparse.ArgumentTypeError(f"{text} s is too short: GPM needs {MIN_INTERVAL_S} s between samples")
    return value


def _window(text: str) -> float:
    value = _seconds(text)
    if 0 < value < MIN_INTERVAL_S:
        why = f"GPM needs {MIN_INTERVAL_S} s between samples, and 0 takes one sample"
        raise argparse.ArgumentTypeError(f"{text} s is too short: {why}")
    return value


def build_parser() -> _Parser:
    parser = _Parser(
        prog="moetop",
        description="Live monitor and doctor for GPU hosts that serve Mixture-of-Experts models.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument_group("what to watch (this machine when nothing is named)").add_argument
    add("--host", action="append", default=[], metavar="[USER@]HOST[:PORT]", help="watch over SSH; may be repeated")
    add("--config", metavar="FILE", help="hosts, logs, servers, retune recipes (see config.example.yaml)")
    add("--demo", action="store_true", help="recorded real GPUs and a scripted server; no GPU, no network")
    add("--replay", metavar="FILE", help="play a recording (.jsonl or .jsonl.gz)")
    add("--log", metavar="FILE", help="triage a server log without a host; - is standard input")
    add("--smi-log", metavar="FILE", help="triage pasted nvidia-smi output; - is standard input")
    add("--metrics", metavar="FILE", help="triage Prometheus text of an engine or the DCGM exporter")

    add = parser.add_argument_group("what to do (the screen when nothing is named)").add_argument
    add("--snapshot", nargs="?", const="-", metavar="FILE", help="sample, diagnose, write, exit; - is standard output")
    add("--format", choices=FORMATS, help="of the snapshot (by FILE's ending, else json) or retune report (json)")
    add("--every", type=_interval, metavar="SECONDS", help="with --snapshot: one JSON line again and again")
    add("--check", action="store_true", help="with --snapshot: exit 3 if a warning or worse stands")
    add("--record", metavar="FILE", help="write the frames to a recording while watching")
    add("--duration", type=_seconds, metavar="SECONDS", help="with --record and no terminal: stop after this long")
    add("--retune", metavar="HOST", help="retune and restart a server on HOST")
    add("--server", metavar="NAME", help="with --retune: which server, where a host has several")
    add("--dry-run", action="store_true", help="with --retune: print the plan, touch nothing")
    add("--yes", action="store_true", help="with --retune: do not ask, also while requests run")
    add("--attach", action="store_true", help="with --retune: follow the job that is running on the host")
    add("--doctor", action="store_true", help="check every step to a working view, with the fix for each")

    add = parser.add_argument_group("how").add_argument
    add("--window", type=_window, metavar="S", help="seconds a state is judged over (10; 2 for --snapshot)")
    add("--interval", type=_interval, metavar="S", help="seconds between samples (1)")
    add("--speed", type=float, metavar="N", help="with --replay: times real time (1)")
    add("--from", type=_seconds, dest="from_s", metavar="S", help="with --replay: start so many seconds in")
    add("--to", type=_seconds, dest="to_s", metavar="S", help="with --replay: end so many seconds in")
    add("--log-path", metavar="PATH", help="the server's log on the watched host, if it cannot be found")
    add("--accept-new-host-keys", action="store_true", help="add unknown host keys; a changed key is always refused")
    add("--readonly", action="store_true", help="disable every key that acts on a host")
    add("--theme", metavar="NAME", help="colours of the screen (dark, light, ...)")
    add("--debug", metavar="FILE", help="write moetop's own log there")
    add("--version", action="version", version=f"moetop {__version__}")
    return parser


def _check_combination(args: argparse.Namespace) -> None:
    """Refuse what cannot be meant, each with a sentence."""
    offline = [name for name in ("log", "smi_log", "metrics") if getattr(args, name) is not None]
    sources = [
        option
        for option, given in (
            ("--host", bool(args.host)),
            ("--demo", args.demo),
            ("--replay", args.replay is not None),
            ("--log/--smi-log/--metrics", bool(offline)),
            ("--retune", args.retune is not None),
        )
        if given
    ]
    if len(sources) > 1:
        raise UsageError(f"{sources[0]} and {sources[1]} exclude each other")
    modes = [
        option
        for option, given in (
            ("--snapshot", args.snapshot is not None),
            ("--retune", args.retune is not None),
            ("--doctor", args.doctor),
        )
        if given
    ]
    if len(modes) > 1:
        raise UsageError(f"{modes[0]} and {modes[1]} exclude each other")
    if args.doctor and sources and not args.host:
        raise UsageError(f"--doctor checks hosts; {sources[0]} names none")
    if args.attach and args.dry_run:
        raise UsageError("--attach follows a job that runs; --dry-run has nothing to add")
    if args.from_s is not None and args.to_s is not None and args.from_s >= args.to_s:
        raise UsageError("--from must be before --to")
    if sum(getattr(args, name) == "-" for name in offline) > 1:
        raise UsageError("only one of --log, --smi-log and --metrics can be standard input")
    needs = (
        ("--every", args.every is not None, args.snapshot is not None, "--snapshot"),
        ("--check", args.check, args.snapshot is not None, "--snapshot"),
        ("--speed", args.speed is not None, args.replay is not None, "--replay"),
        ("--from", args.from_s is not None, args.replay is not None, "--replay"),
        ("--to", args.to_s is not None, args.replay is not None, "--replay"),
        ("--duration", args.duration is not None, args.record is not None, "--record"),
        ("--dry-run", args.dry_run, args.retune is not None, "--retune"),
        ("--yes", args.yes, args.retune is not None, "--retune"),
        ("--attach", args.attach, args.retune is not None, "--retune"),
        ("--server", args.server is not None, args.retune is not None, "--retune"),
        ("--format", args.format is not None, args.snapshot is not None or args.retune is not None, "--snapshot"),
    )
    if args.theme is not None and modes:
        raise UsageError(f"--theme is of the screen; {modes[0]} has none")
    for option, given, met, need in needs:
        if given and not met:
            raise UsageError(f"{option} goes with {need}")
    if args.every is not None and args.format not in (None, "json"):
        raise UsageError("--every writes JSON lines; --format cannot be given")
    if args.every is not None and args.format is None and _format_of(args.snapshot) != "json":
        raise UsageError(f"--every writes JSON lines, not {_format_of(args.snapshot)}", "name the file .jsonl")
    if args.every is not None and offline:
        raise UsageError("--every needs something to watch, not a pasted file")
    if args.speed is not None and not args.speed > 0:
        raise UsageError("--speed must be above 0")
    if args.record is not None and (args.replay is not None or offline):
        raise UsageError("--record needs something live to record")


def _run(args: argparse.Namespace) -> ExitCode:
    """Check what the arguments name and run the mode."""
    _check_combination(args)
    with _head_start(args):
        return _run_mode(args)


@contextmanager
def _head_start(args: argparse.Namespace) -> Iterator[None]:
    """The probe of this machine, started before the rest is loaded where one sample of it is surely wanted."""
    elsewhere = (args.host, args.demo, args.replay, args.log, args.smi_log, args.metrics, args.retune, args.doctor)
    once = args.snapshot is not None and args.every is None and args.window == 0
    from moetop.places import has_config

    settings = (args.config, args.record, args.debug)
    if not once or any(elsewhere) or any(given is not None for given in settings) or has_config():
        yield
        return
    from moetop.transport.installed import started_ahead

    def options() -> Mapping[str, object]:
        from moetop.transport.base import ProbeOptions

        return ProbeOptions.single(args.interval or 1.0).wire()

    with started_ahead(options):
        yield


def _run_mode(args: argparse.Namespace) -> ExitCode:
    """Build what the arguments name and run the mode."""
    from moetop import session as sessions

    config = sessions.load_config(args)
    if config.debug:
        from moetop.debug import start_debug_log

        start_debug_log(config.debug)
    if args.retune is not None:
        return sessions.run_retune(args, config)
    if args.doctor:
        from moetop.doctor import run_doctor

        return run_doctor(config)
    if args.snapshot is not None:
        return _run_snapshot(args, config)
    if args.record is not None and not _is_terminal(sys.stdout):
        from moetop.headless import run_record

        return run_record(sessions.open_session(args, config), args.duration, _say)
    return _run_screen(args, sessions.open_session(args, config), config)


def _format_of(target: str) -> str:
    """The format that a file's name asks for."""
    _, dot, ending = target.lower().rpartition(".")
    if dot and ending in OTHER_FORMATS:
        raise UsageError(f"a snapshot is not written as .{ending}", f"name the file .{', .'.join(FORMATS)}")
    return ending if dot and ending in FORMATS else "json"


def _run_snapshot(args: argparse.Namespace, config: Config) -> ExitCode:
    from moetop import headless
    from moetop import session as sessions
    from moetop.export.output import open_output

    form = args.format or _format_of(args.snapshot)
    output = open_output(args.snapshot, form)
    session = sessions.open_session(args, config, charts=form == "md")
    if args.every is not None:
        return headless.run_every(session, output, args.every, _say, check=args.check)
    return headless.run_snapshot(session, output, _say, check=args.check)


def _run_screen(args: argparse.Namespace, session: Session, config: Config) -> ExitCode:
    if not (_is_terminal(sys.stdin) and _is_terminal(sys.stdout)):
        raise UsageError("the screen needs a terminal", "use --snapshot for a run without one")
    from moetop.session import run_app

    return run_app(args, session, config)


def _is_terminal(stream: TextIO | None) -> bool:
    """Python has no stream at all for a descriptor that was closed before it started."""
    return stream is not None and stream.isatty()


def _say(text: str) -> None:
    """One line to a person outside the screen; where standard error is gone, nobody listens."""
    with suppress(OSError):
        print(text, file=sys.stderr)  # noqa: T201 - the one place that talks to a person outside the screen


def _end_after_closed_pipe() -> ExitCode:
    """The reader went away: that is a normal end."""
    from moetop.stdout import give_up

    give_up([sys.stdout, sys.stderr])
    return ExitCode.OK


def _flushed(code: int) -> int:
    """`code`, once everything printed is out. Raises UsageError where it cannot be written and `code` is 0."""
    if sys.stdout is not None:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            from moetop.stdout import unwritable_stdout

            fault = unwritable_stdout(error)
            if code == ExitCode.OK:
                raise fault from None
    return code


def main(argv: Sequence[str] | None = None) -> int:
    """Run moetop; the exit code. Errors are one line on standard error, never a traceback."""
    try:
        code = _guarded(argv)
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    except BrokenPipeError:
        code = _end_after_closed_pipe()
    if code == ExitCode.INTERRUPTED:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second control-C would only spoil the exit
    return int(code)


def _guarded(argv: Sequence[str] | None) -> int:
    debug = False
    try:
        try:
            args = build_parser().parse_whole(argv)
        except SystemExit as end:  # --help and --version have printed
            return _flushed(int(end.code or 0))
        debug = bool(args.debug)
        from moetop.interrupts import interruptible

        with interruptible():
            return _flushed(_run(args))
    except MoetopError as error:
        _say(f"moetop: {error.sentence()}")
        return int(error.exit_code)
    except BrokenPipeError:
        raise
    except Exception as error:
        if debug:
            from moetop.debug import log_exception

            log_exception(error)
        hint = "" if debug else "; run again with --debug FILE for the details and report it"
        from moetop.probe.redact import redact_text
        from moetop.text import plain

        what = plain(" ".join(redact_text(str(error)).split()), 300)
        _say(f"moetop: unexpected fault: {type(error).__name__}: {what}{hint}")
        return int(ExitCode.FAULT)
