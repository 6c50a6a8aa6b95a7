"""`ottla doctor`: what is wrong with a cluster, and what to do about it."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import date

import click

from ottla.cli.arguments import Seconds, checked
from ottla.cli.doctor.examination import Plan, examine
from ottla.cli.doctor.findings import Diagnosis, Report, Severity, Silence, counted, parse_silence
from ottla.cli.doctor.sampling import Scope
from ottla.cli.names import complete_groups, complete_topics
from ottla.cli.output import Output, harmless
from ottla.cli.session import Session, broker_options, run_to_end

FOR_S_MAX = 40
MARKS = {Severity.CRITICAL: ("■", "red"), Severity.WARNING: ("▲", "yellow"), Severity.INFO: ("●", "blue")}
NOT_LOOKED = "○"
RUNBOOKS = "docs/runbooks.md"


def _silences(texts: Sequence[str]) -> list[Silence]:
    return [parse_silence(text) for text in texts]


@click.command()
@click.option("--topic", "topics", multiple=True, shell_complete=complete_topics, help="Only this topic; repeatable.")
@click.option("--group", "groups", multiple=True, shell_complete=complete_groups, help="Only this group; repeatable.")
@click.option(
    "--for", "for_s", metavar="SECONDS", type=Seconds(min=0, max=FOR_S_MAX), default=15, show_default=True,
    help="Time between the two looks at the cluster.",
)  # fmt: skip
@click.option("--probe", is_flag=True, help="Also write to a topic ottla-doctor, which is deleted at the end.")
@click.option(
    "--fail-on", type=click.Choice(["warning", "critical"]), default="warning", show_default=True,
    help="Lowest severity of a finding that makes the exit status 3.",
)  # fmt: skip
@click.option(
    "--silence", "silences", metavar="ID[=YYYY-MM-DD]", multiple=True, callback=checked(_silences),
    help="Do not report a finding, as D12.one-replica, or a check, as D12, until a day; repeatable.",
)  # fmt: skip
@broker_options
def doctor(
    session: Session, topics: tuple[str, ...], groups: tuple[str, ...], for_s: float, probe: bool, fail_on: str,
    silences: list[Silence],
) -> None:  # fmt: skip
    """Look for what is wrong with a cluster, Ottla's or any other that speaks Kafka's protocol, and say what to do.

    It only reads, unless with --probe. It takes two samples and reports what holds in both. What could not be checked
    is listed with the reason. The exit status is 0 if nothing was found, 3 if something was, 1 if no broker could be
    asked, and 2 for wrong usage.
    """
    report = run_to_end(examine(session.config, Plan(Scope(topics, groups), for_s, may_probe=probe)))
    report.silence(silences, date.today())  # noqa: DTZ011 - of the user's calendar
    report.sort()
    if session.output.as_json:
        session.output.json(_as_json(report))
    else:
        _print(session.output, report)
    sys.exit(report.exit_status(Severity[fail_on.upper()]))


def _print(output: Output, report: Report) -> None:
    for finding in report.findings:
        output.styled_lines(_lines(finding))
    for each in report.not_checked:
        output.say(f"{NOT_LOOKED} {each.check} not checked: {each.reason}")
    found = counted(len(report.findings), "finding") if report.findings else "nothing found"
    silenced = f", {report.silenced} silenced" if report.silenced else ""
    where = f" ({report.looked_at})" if report.looked_at else ""
    output.say(f"{found}{silenced}{where}")


def _lines(finding: Diagnosis) -> list[str]:
    mark, colour = MARKS[finding.severity]
    likely = "" if finding.is_sure else "likely: "
    head = f"{mark} {finding.id} {finding.severity.word}"
    lines = [f"{click.style(head, fg=colour, bold=True)}  {likely}{harmless(finding.text)}"]
    lines += [f"    {harmless(each)}" for each in finding.evidence]
    lines.append(f"    do: {harmless(finding.advice)}")
    if finding.runbook is not None:
        lines.append(f"    runbook: {RUNBOOKS}#{finding.runbook.lower()}")
    return lines


def _as_json(report: Report) -> dict[str, object]:
    return {
        "could_look": report.could_look,
        "looked_at": report.looked_at,
        "findings": [
            {**asdict(each), "severity": each.severity.word, "certainty": "sure" if each.is_sure else "likely"}
            for each in report.findings
        ],
        "not_checked": [asdict(each) for each in report.not_checked],
        "silenced": report.silenced,
    }
