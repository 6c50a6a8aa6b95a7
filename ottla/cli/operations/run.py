"""`ottla run`: brokers of the testing kit around a command, whatever language it is written in."""

import os
import random
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from ottla.broker.config.options import ConfigError
from ottla.broker.runtime import StartError
from ottla.cli.operations.child_process import STATUS_OF_SIGNALS, BlockedSignals, CommandError
from ottla.protocol.address import Address
from ottla.protocol.errors import KafkaError
from ottla.testing.audit.auditor import summary
from ottla.testing.control.access import TOKEN_VARIABLE, URL_VARIABLE, ControlAccess, new_token
from ottla.testing.control.listener import ControlListener
from ottla.testing.profile import cluster_settings
from ottla.testing.report import ReportMark, failure_sections
from ottla.testing.testbed import Testbed

START_FAILED_STATUS: Final = 1
WRONG_USAGE_STATUS: Final = 2
JUDGED_STATUS: Final = 3
SEED_MAX: Final = 1 << 32
CONTROL_ADDRESS: Final = Address("127.0.0.1", 0)
BOOTSTRAP: Final = "{bootstrap}"
# A command of Ottla within the command finds the brokers too, and not those that the caller works with.
ALWAYS_SET: Final[Mapping[str, str]] = {"KAFKA_BOOTSTRAP_SERVERS": BOOTSTRAP, "OTTLA_BOOTSTRAP": BOOTSTRAP}


class RunOptions(NamedTuple):
    """The command line, read."""

    command: tuple[str, ...]
    variables: Mapping[str, str] = {}
    """Names and texts, in which {bootstrap} stands for the address."""
    brokers: int = 1
    profile: str = "test"
    settings: Mapping[str, str] = {}
    topics: Mapping[str, int] = {}
    """Names, and how many partitions each has."""
    seed_file: Path | None = None
    faults_file: Path | None = None
    fault_lines: tuple[str, ...] = ()
    unused_faults: str = "error"
    """`error`, `warn` or `ignore`."""
    seed: int | None = None
    data: str | None = None
    has_report: bool = False
    audit: str = "errors"
    """`errors`, `all` or `off`."""
    capture_file: Path | None = None
    has_coverage: bool = False
    """So too where one of the next three is given."""
    coverage_file: Path | None = None
    coverage_baseline: Path | None = None
    coverage_target: str | None = None
    """A release of `ottla.testing.kafka_releases`."""


def status_of(options: RunOptions) -> int:
    """Runs the command; gives the exit status. What a user can cause is said in one sentence on standard error."""
    try:
        return run(options)
    except (ConfigError, StartError, CommandError) as error:
        print(f"ottla: {error}", file=sys.stderr)
        if isinstance(error, CommandError):
            return error.status
        return WRONG_USAGE_STATUS if isinstance(error, ConfigError) else START_FAILED_STATUS


def run(options: RunOptions) -> int:
    """The exit status of the command, or 3 where it was 0 and a fault rule never acted, the audit found errors, or
    coverage is lost. Raises ConfigError for what is wrong with the options, StartError, and CommandError."""
    seed = random.randrange(SEED_MAX) if options.seed is None else options.seed
    replicas: Mapping[str, object] = cluster_settings(options.brokers) if options.profile == "test" else {}
    bed = Testbed(
        brokers=options.brokers,
        settings={**replicas, **options.settings},
        profile=options.profile,
        data=options.data or "auto",
        fault_seed=seed,
        audit=options.audit,
    )
    _add_rules(bed, options)
    with BlockedSignals() as signals:
        bed.start()
        try:
            _create_topics(bed, options.topics)
            _load_seed(bed, options.seed_file)
            stopped_by = signals.received()
            if stopped_by is not None:
                return STATUS_OF_SIGNALS + stopped_by
            mark = ReportMark.now(bed)
            with _opened_control(bed) as variables, _captured(bed, options):
                environment = {**_environment(options, bed.hosted.bootstrap), **variables}
                status = signals.run(options.command, environment)
            return _judge(bed, options, mark, status, seed)
        finally:
            _release_requests(bed)
            bed.stop()


@contextmanager
def _captured(bed: Testbed, options: RunOptions) -> Generator[None]:
    """Raises StartError."""
    if options.capture_file is None:
        yield
        return
    # Imported here: most runs capture nothing.
    from ottla.testing.wire_capture.file_format import CaptureError
    from ottla.testing.wire_capture.recording import begin_capture, end_capture

    path = options.capture_file
    try:
        capture = bed.call(lambda: begin_capture(bed, path, False, command=list(options.command)))
    except CaptureError as error:
        raise StartError(f"--capture: {error}") from None
    try:
        yield
    finally:
        bed.call(end_capture, bed, capture)
        capture.wait()
        if capture.ended is not None:
            print(f"ottla: {capture.ended}", file=sys.stderr)


def _add_rules(bed: Testbed, options: RunOptions) -> None:
    """Raises ConfigError."""
    if options.faults_file is None and not options.fault_lines:
        return
    # Imported here: most runs inject no faults.
    from ottla.testing.faults.rule_values import RuleError

    faults = bed.hosted.fault_host.faults
    given = ""
    try:
        if options.faults_file is not None:
            given = f"--faults {options.faults_file}"
            faults.load(options.faults_file)
        for line in options.fault_lines:
            given = f"--fault {line!r}"
            faults.add(line)
    except OSError as error:
        raise ConfigError(f"{given}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{given}: it is not UTF-8 text") from None
    except RuleError as error:
        raise ConfigError(f"{given}: {error}") from None


def _create_topics(bed: Testbed, topics: Mapping[str, int]) -> None:
    """Raises ConfigError."""
    for name, partitions in topics.items():
        try:
            bed.run(bed.writer.create_topic(name, partitions, None, {}))
        except KafkaError as error:
            raise ConfigError(f"--topic {name}:{partitions}: {error}") from None


def _load_seed(bed: Testbed, path: Path | None) -> None:
    """Raises ConfigError."""
    if path is None:
        return
    # Imported here: most runs have no seed.
    from ottla.testing.seeds.seed_schema import SeedError

    try:
        bed.run(bed.load(path))
    except SeedError as error:
        raise ConfigError(f"--seed-file: {error}") from None
    except OSError as error:
        raise ConfigError(f"--seed-file {path}: {error.strerror}") from None


def _environment(options: RunOptions, bootstrap: str) -> dict[str, str]:
    texts = {**ALWAYS_SET, **options.variables}
    return {**os.environ, **{name: text.replace(BOOTSTRAP, bootstrap) for name, text in texts.items()}}


@contextmanager
def _opened_control(bed: Testbed) -> Generator[dict[str, str]]:
    """The variables by which the command controls its brokers."""
    token = new_token()
    control = bed.run(_control_of(bed, token))
    try:
        yield {URL_VARIABLE: control.url, TOKEN_VARIABLE: token}
    finally:
        bed.run(control.close())


async def _control_of(bed: Testbed, token: str) -> ControlListener:
    """On the loop of the brokers."""
    control = ControlListener(bed, ControlAccess(token))
    await control.open(CONTROL_ADDRESS)
    return control


def _judge(bed: Testbed, options: RunOptions, mark: ReportMark, status: int, seed: int) -> int:
    """Says what there is to say when the command has ended; gives the exit status."""
    faults = bed.hosted.fault_host.faults_if_used
    unused = [] if faults is None else [each.text for each in faults.unused() if each.is_error]
    found = [each for each in bed.call(bed.auditor.findings) if each.explained_by is None]
    is_error = status == 0 and bool(unused) and options.unused_faults == "error"
    is_audited = status == 0 and any(each.is_error(options.audit) for each in found)
    final = JUDGED_STATUS if is_error or is_audited else status
    lines: list[str] = []
    if final and options.has_report:
        for title, text in bed.call(failure_sections, bed, mark):
            lines += [f"---- {title} ----", text]
    if is_error or options.unused_faults == "warn":
        lines += [f"ottla: {sentence}" for sentence in unused]
    if found:
        lines += ["ottla: audit", *summary(found, bed.call(bed.auditor.unjudged))]
    if final and faults is not None and options.seed is None:
        lines.append(f"ottla: fault rules, --seed {seed}")
    coverage_lines, is_covered = _covered(bed, options)
    lines += coverage_lines
    if status == 0 and not is_covered:
        final = JUDGED_STATUS
    if lines:
        # Who reads standard error may be gone already.
        with suppress(OSError):
            print("\n".join(lines), file=sys.stderr, flush=True)
    return final


def _covered(bed: Testbed, options: RunOptions) -> tuple[list[str], bool]:
    """What there is to say of the coverage; false where something is lost, or the file cannot be written."""
    file, baseline, target = options.coverage_file, options.coverage_baseline, options.coverage_target
    coverage = bed.wire.coverage
    if coverage is None or not (options.has_coverage or file or baseline or target):
        return [], True
    counted = bed.call(lambda: coverage.with_injected(bed.hosted.fault_host.faults_if_used))
    lines, is_well = counted.finish(file, baseline=baseline, target=target)
    return [f"ottla: coverage: {line}" for line in lines], is_well


def _release_requests(bed: Testbed) -> None:
    """Those that rules hold: a broker that stops would wait for them."""
    faults = bed.hosted.fault_host.faults_if_used
    if faults is not None:
        faults.clear()
