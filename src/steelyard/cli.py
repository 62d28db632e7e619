"""The command line: `steelyard demo | run FILE | policies | train … | bench … | sim … | doctor`.

Every command imports what it needs when it runs, so that `--help` answers at once.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from steelyard.core.errors import OptionError, SteelyardError

if TYPE_CHECKING:
    from rich.console import Console

    from steelyard.sim.profiles import Profile

OK, FAILED, MISUSED, INTERRUPTED, CLOSED_PIPE = 0, 1, 2, 130, 141
NARROWEST_TABLE = 110
"""Columns of a table that goes to a file, where nobody's window limits it."""

Command = Callable[[argparse.Namespace], int]


class _Parser(argparse.ArgumentParser):
    """An argparse parser whose complaint is one line."""

    def error(self, message: str) -> NoReturn:
        raise OptionError(f"{message}. See `{self.prog} --help`")

    def subcommands(self) -> dict[str, _Parser]:
        """The parsers of the commands below this one, by name."""
        return self._commands if hasattr(self, "_commands") else {}

    def commands(self, **parsers: str) -> dict[str, _Parser]:
        """Add a command for each name, with its one-line help."""
        adder = self.add_subparsers(dest=f"command{len(self.prog.split())}", metavar="COMMAND", title="commands")
        self._commands: dict[str, _Parser] = {
            name: adder.add_parser(name, help=words, description=words, allow_abbrev=False)
            for name, words in parsers.items()
        }
        return self._commands


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and give its exit code.

    0 is success, 1 a failure, 2 something mistyped, 130 Ctrl-C.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _dispatch(words)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return _stopped()
    except BrokenPipeError:
        # Whoever read our output (`| head`) has enough. Python would complain again while it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED_PIPE
    except Exception as problem:
        if _was_interrupted(problem):
            return _stopped()
        if not _is_expected(problem):
            raise
        print(f"steelyard: {problem}", file=sys.stderr)
        return MISUSED if isinstance(problem, OptionError) else FAILED


def _stopped() -> int:
    print("stopped", file=sys.stderr)
    return INTERRUPTED


def _was_interrupted(problem: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an error: compiled code turns it into one of its own."""
    while problem is not None and not isinstance(problem, KeyboardInterrupt):
        problem = problem.__cause__ or problem.__context__
    return problem is not None


def _is_expected(problem: Exception) -> bool:
    """Whether the message alone tells a person what to do."""
    from steelyard.spark.java import JavaError  # noqa: PLC0415 - only when something went wrong

    return isinstance(problem, SteelyardError | JavaError)


def _dispatch(words: list[str]) -> int:
    parser = _parser()
    _check_commands(parser, words)
    options, unknown = parser.parse_known_args(words)
    used = _parser_of(parser, words)
    if unknown:
        raise _unexpected(used, unknown)
    command: Command | None = getattr(options, "command", None)
    if command is None:
        used.print_help(sys.stderr)
        return MISUSED
    return command(options)


def _parser() -> _Parser:
    parser = _Parser(
        prog="steelyard",
        description="Load-aware streams on PySpark.",
        epilog="`steelyard COMMAND --help` tells more about a command.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"steelyard {metadata.version('steelyard')}")
    commands = parser.commands(
        demo="see what load-aware partitioning does to a skewed stream",
        run="run the query that a TOML file describes",
        policies="name every policy, and what it does",
        train="train a learnt policy on your own data",
        bench="measure, and compare with published figures",
        sim="constants of simulated clusters",
        doctor="check what Spark needs on this machine",
    )
    _demo_options(commands["demo"])
    _run_options(commands["run"])
    commands["policies"].add_argument("family", nargs="?", metavar="FAMILY", help="tell all about one family")
    commands["policies"].add_argument("--markdown", action="store_true", help="as docs/policies.md has it")
    commands["policies"].set_defaults(command=_policies)
    _train_options(commands["train"])
    _bench_options(commands["bench"])
    _sim_options(commands["sim"])
    commands["doctor"].add_argument("--download", action="store_true", help="also fetch Kafka's connector")
    commands["doctor"].set_defaults(command=_doctor)
    return parser


def _demo_options(parser: _Parser) -> None:
    _out_option(parser)
    parser.add_argument("--seconds", type=_positive, metavar="N", help="how long the stream runs")
    parser.add_argument("--seed", type=_seed, metavar="N", help="for the same data again")
    parser.set_defaults(command=_demo)


def _run_options(parser: _Parser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="a pipeline, see docs/pipelines.md")
    parser.add_argument("--dry-run", action="store_true", help="only check the file and print its plan")
    parser.set_defaults(command=_run)


def _train_options(parser: _Parser) -> None:
    partly = parser.commands(partly="partitioning: on the key counts of your batches, or anew")["partly"]
    of = partly.add_mutually_exclusive_group(required=True)
    of.add_argument("--on", type=Path, metavar="FILE", help=".parquet or .csv with key, rows and perhaps batch")
    of.add_argument("--anew", action="store_true", help="from nothing, as the network of the package was made")
    partly.add_argument("--blocks", type=_blocks, metavar="N", help="the most that a batch of the file has (24)")
    partly.add_argument("--minutes", type=_positive, metavar="N", help="how long to train (5; anew: to its end)")
    partly.add_argument("--seed", type=_seed, metavar="N", help="for the same weights again (0; anew: the package's)")
    partly.add_argument("--resume", action="store_true", help="go on where the training of this --out was stopped")
    partly.add_argument(
        "--out", type=Path, default=Path("out/partly.npz"), metavar="FILE", help="the weights (out/partly.npz)"
    )
    partly.set_defaults(command=_train_partly)


def _bench_options(parser: _Parser) -> None:
    commands = parser.commands(
        list="name every benchmark", run="run benchmarks by name", report="make one HTML page of all results"
    )
    commands["list"].set_defaults(command=_bench_list)
    run = commands["run"]
    run.add_argument("names", nargs="*", metavar="NAME", help="see `steelyard bench list`")
    run.add_argument("--all", action="store_true", help="run every benchmark")
    run.add_argument("--quick", action="store_true", help="rougher figures in less than a minute each")
    run.add_argument("--seed", type=_seed, metavar="N", help="for the same data again")
    _out_option(run)
    run.set_defaults(command=_bench_run)
    _out_option(commands["report"])
    commands["report"].add_argument(
        "--redraw", action="store_true", help="draw every picture again from its JSON, without a measurement"
    )
    commands["report"].set_defaults(command=_bench_report)


def _sim_options(parser: _Parser) -> None:
    commands = parser.commands(
        calibrate="measure this machine, and write a profile for simulations",
        profiles="list the built-in profiles, with the source of each constant",
    )
    calibrate = commands["calibrate"]
    calibrate.add_argument("--no-spark", action="store_true", help="leave out what Spark takes to schedule a job")
    calibrate.add_argument(
        "--out", type=Path, default=Path("out/profile.json"), metavar="FILE", help="the profile (out/profile.json)"
    )
    calibrate.set_defaults(command=_sim_calibrate)
    commands["profiles"].set_defaults(command=_sim_profiles)


def _out_option(parser: _Parser) -> None:
    parser.add_argument("--out", type=Path, default=Path("out"), metavar="DIR", help="where files go (out/)")


def _positive(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise ValueError
    return value


def _seed(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError
    return value


def _blocks(text: str) -> int:
    value = int(text)
    if value < 2:
        raise ValueError
    return value


_seed.__name__ = "seed"
_blocks.__name__ = "number of blocks"
_positive.__name__ = "positive number"  # what argparse calls it in "invalid … value"


def _check_commands(parser: _Parser, words: list[str]) -> None:
    """Complain about a mistyped command before argparse does, which knows no nearest one."""
    for word in words:
        known = parser.subcommands()
        if word.startswith("-") or not known:
            return
        if word not in known:
            within = parser.prog.removeprefix("steelyard").strip()
            raise OptionError.unknown(f"{within} command".strip(), word, known)
        parser = known[word]


def _parser_of(parser: _Parser, words: list[str]) -> _Parser:
    """The parser of the innermost command that was named."""
    for word in words:
        if word not in parser.subcommands():
            break
        parser = parser.subcommands()[word]
    return parser


def _unexpected(parser: _Parser, unknown: list[str]) -> OptionError:
    option = next((word for word in unknown if word.startswith("-")), None)
    if option is None:
        return OptionError(f"unexpected {unknown[0]!r}. See `{parser.prog} --help`")
    known = [name for action in parser._actions for name in action.option_strings if name.startswith("--")]
    return OptionError.unknown(f"option of `{parser.prog}`", option.split("=")[0], known)


def _console() -> Console:
    from rich.console import Console  # noqa: PLC0415 - `--help` needs none

    console = Console()
    return console if console.is_terminal else Console(width=max(console.width, NARROWEST_TABLE))


def _demo(options: argparse.Namespace) -> int:
    from steelyard.bench.demo import run as demo  # noqa: PLC0415

    words = ["--out", str(options.out)]
    for option in ("seconds", "seed"):
        value = getattr(options, option)
        if value is not None:
            words += [f"--{option}", f"{value:g}" if isinstance(value, float) else str(value)]
    return int(demo.main(words))


def _run(options: argparse.Namespace) -> int:
    from rich.markup import escape  # noqa: PLC0415

    from steelyard.spark.pipeline_file import read_pipeline  # noqa: PLC0415

    pipeline = read_pipeline(options.file)
    console = _console()
    console.print(f"[bold]{escape(pipeline.name)}[/bold]")
    for step, words in pipeline.steps():
        console.print(f"  {step:<12} {escape(words)}", highlight=False, soft_wrap=True)
    if options.dry_run:
        return OK
    from steelyard.spark.pipeline import run  # noqa: PLC0415 - checking a file must not start Spark

    run(pipeline, report=lambda line: console.print(escape(line), highlight=False, soft_wrap=True))
    return OK


def _policies(options: argparse.Namespace) -> int:
    from rich.markup import escape  # noqa: PLC0415

    from steelyard.policies import FAMILIES, as_markdown, spelled_out  # noqa: PLC0415

    if options.markdown:
        print(as_markdown(), end="")
        return OK
    if options.family not in (None, *FAMILIES):
        raise OptionError.unknown("family of policies", options.family, FAMILIES)
    console = _console()

    def say(line: str) -> None:
        console.print(line, highlight=False, soft_wrap=True)

    for name, family in FAMILIES.items():
        if options.family in (None, name):
            say(f"[bold]{name}[/bold]: {escape(family.title)}")
            for one in family.entries.values():
                say(f"  {escape(one.name):<22} {escape(one.what)}")
                if options.family:
                    say(f"{'':22}{escape(spelled_out(one))}")
                    say(f"{'':22}{escape(one.paper or 'made here')}; runs in {', '.join(one.runs)}; {escape(one.file)}")
    return OK


def _train_partly(options: argparse.Namespace) -> int:
    from steelyard.bench.training import train_partly  # noqa: PLC0415

    if options.anew and options.blocks is not None:
        raise OptionError("--blocks is of --on: --anew draws batches of 2 to 24 blocks")
    ended, lines = train_partly(options, _console())
    print("\n".join(lines))
    return OK if ended else INTERRUPTED


def _bench_list(options: argparse.Namespace) -> int:
    from rich.markup import escape  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    from steelyard.bench.registry import experiments  # noqa: PLC0415

    table = Table("name", "what it measures", "stands beside", box=None, header_style="bold", pad_edge=False)
    for name, one in experiments().items():
        table.add_row(escape(name), escape(one.title), escape(one.figure or "-"))
    _console().print(table)
    return OK


def _bench_run(options: argparse.Namespace) -> int:
    from steelyard.bench.registry import DEFAULT_SEED, Run, choose, experiments  # noqa: PLC0415
    from steelyard.bench.runner import run_experiment  # noqa: PLC0415

    if not options.all and not options.names:
        raise OptionError("which benchmark? Name one or more, or give --all. See `steelyard bench list`")
    chosen = list(experiments().values()) if options.all else choose(options.names)
    run = Run(options.quick, DEFAULT_SEED if options.seed is None else options.seed, options.out)
    console = _console()
    failed = []
    for one in chosen:
        try:
            run_experiment(one, run, console)
        except Exception as problem:
            # One that breaks must not take the others' figures with it; Ctrl-C ends all of them.
            if _was_interrupted(problem):
                raise
            traceback.print_exc()
            failed.append(one.name)
    if failed:
        print(f"steelyard: failed: {', '.join(failed)}", file=sys.stderr)
    return FAILED if failed else OK


def _bench_report(options: argparse.Namespace) -> int:
    from steelyard.bench.report import redraw, write_report  # noqa: PLC0415

    if options.redraw:
        redraw(options.out)
    page, found = write_report(options.out)
    if found.skipped:
        print(f"not a benchmark's result: {', '.join(found.skipped)}", file=sys.stderr)
    print(f"{page}: {len(found.records)} benchmark{'s' * (len(found.records) != 1)}")
    return OK


def _sim_calibrate(options: argparse.Namespace) -> int:
    from steelyard.bench.simulator.calibration import calibrate  # noqa: PLC0415

    if options.no_spark:
        found = calibrate()
    else:
        from steelyard.spark.session import session  # noqa: PLC0415 - not without need

        spark = session("steelyard-calibrate")
        spark.sparkContext.setLogLevel("ERROR")
        try:
            found = calibrate(spark)
        finally:
            spark.stop()
    found.write(options.out)
    _show_profile(found)
    print(options.out)
    return OK


def _sim_profiles(options: argparse.Namespace) -> int:
    from steelyard.sim.profiles import PROFILES  # noqa: PLC0415

    for profile in PROFILES.values():
        _show_profile(profile)
    return OK


def _show_profile(profile: Profile) -> None:
    from rich.markup import escape  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table("constant", "value", "source", box=None, header_style="bold", pad_edge=False)
    for name, figure in profile.figures.items():
        table.add_row(f"  {name}", f"{figure.value:.4g}", escape(figure.source))
    console = _console()
    console.print(f"[bold]{escape(profile.name)}[/bold]: {escape(profile.about)}", highlight=False)
    console.print(table)


def _doctor(options: argparse.Namespace) -> int:
    from steelyard.spark.doctor import examine, show  # noqa: PLC0415

    return OK if show(examine(download=options.download), _console()) else FAILED


if __name__ == "__main__":
    sys.exit(main())
