"""`ottla pipeline JOB`: the jobs of the pipeline, each a process of its own."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

import click

from ottla.cli.arguments import parse_settings
from ottla.pipeline.failures import PipelineError
from ottla.pipeline.jobs.options import PARSERS
from ottla.pipeline.launch import JOBS, environment, fitting_spark, job_command, submit_command, submit_options
from ottla.pipeline.versions import packages


def print_packages(context: click.Context, _option: click.Parameter, is_asked: bool) -> None:
    if is_asked and not context.resilient_parsing:
        try:
            click.echo(",".join(packages(fitting_spark())))
        except PipelineError as error:
            raise click.ClickException(str(error)) from error
        context.exit()


@click.command(
    "pipeline",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    add_help_option=True,
)
@click.option("--master", metavar="URL", default="local[*]", show_default=True, help="URL of the Spark cluster.")
@click.option(
    "--jars", metavar="DIRECTORY", type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory of Spark's jars, in place of Maven Central.",
)  # fmt: skip
@click.option(
    "--conf",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    callback=parse_settings,
    help="Of Spark's configuration.",
)
@click.option(
    "--packages", is_flag=True, is_eager=True, expose_value=False, callback=print_packages,
    help="Print the packages that fit the PySpark that is installed, for spark-submit, and do nothing.",
)  # fmt: skip
@click.option("--show", is_flag=True, help="Print the spark-submit command that does the same, and do nothing.")
@click.argument("job", type=click.Choice(JOBS))
@click.argument("arguments", metavar="[ARGUMENTS]...", nargs=-1, type=click.UNPROCESSED)
def pipeline(
    master: str, jars: Path | None, settings: dict[str, str], show: bool, job: str, arguments: Sequence[str]
) -> None:
    """Run a job on Spark: archive topics, replay an archive, make the tables of the observatory, or its report.

    `run` makes the archive of ottla.events, the tables and the report with one start of Spark. `ottla pipeline archive
    --help` lists the options of a job. docs/pipeline.md says what it does.
    """
    if not {"-h", "--help"}.isdisjoint(arguments):
        click.echo(PARSERS[job]().format_help(), nl=False)
        return
    try:
        options = submit_options(master, jars=jars, settings=settings)
        command = submit_command(job, arguments, options) if show else job_command(job, arguments)
    except PipelineError as error:
        raise click.ClickException(str(error)) from error
    if show:
        click.echo(shlex.join(command))
    else:
        os.execvpe(command[0], command, environment(options))
