"""spark-submit replay.py --table PATH --from T --to U: records of a table back into a topic (docs/pipeline.md)."""

import argparse

from ottla.pipeline import cluster, replay
from ottla.pipeline.jobs.job import bootstrap_option, load_table, run, say, span_options, table_options
from ottla.pipeline.replay_transaction import ReplayTransaction, send_in_transaction
from ottla.pipeline.session import master_of, open_session


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser("replay", description="Write archived records to a topic as they were.")
    bootstrap_option(made)
    made.add_argument("--table", required=True, metavar="PATH")
    made.add_argument("--from", required=True, dest="source", metavar="TOPIC", help="Whose records.")
    made.add_argument("--to", required=True, dest="target", metavar="TOPIC", help="Where to; it must exist.")
    span_options(made, "records")
    made.add_argument("--first-offset", type=int, metavar="N")
    made.add_argument("--end-offset", type=int, metavar="N", help="Before this offset.")
    made.add_argument("--any-partition", action="store_true", help="By key and not by the partition they came from.")
    transaction_options(made)
    table_options(made)
    return made


def transaction_options(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--no-transaction", action="store_true", help="By all executors, and visible while it goes on; see the guide."
    )
    made.add_argument(
        "--transaction-timeout", type=int, default=900, metavar="SECONDS",
        help="How long the whole replay may take, as far as the broker's transaction.max.timeout.ms allows.",
    )  # fmt: skip
    made.add_argument(
        "--transactional-id", metavar="ID", help="ottla-replay-TOPIC by default: a second replay ends the first."
    )


def main(arguments: argparse.Namespace) -> None:
    seen = cluster.fetch_summary(arguments.bootstrap)
    cluster.check_topics(seen, [arguments.target], arguments.bootstrap)
    spark = open_session("replay")
    cluster.check_reachable(seen, master_of(spark))
    cluster.check_path(arguments.table, master_of(spark), is_shared=arguments.shared_path)
    wanted = replay.Range(arguments.since_ms, arguments.until_ms, arguments.first_offset, arguments.end_offset)
    selected = replay.select_range(load_table(spark, arguments.table), arguments.source, wanted)
    if not arguments.any_partition:
        replay.check_partitions(selected, arguments.target, seen.topics[arguments.target])
    where = (arguments.bootstrap, arguments.target)
    if arguments.no_transaction:
        sent = replay.send(selected, *where, keep_partitions=not arguments.any_partition)
    else:
        name = arguments.transactional_id or f"ottla-replay-{arguments.target}"
        transaction = ReplayTransaction(name, arguments.transaction_timeout * 1000)
        rows = selected.toLocalIterator(prefetchPartitions=True)
        sent = send_in_transaction(rows, *where, transaction, keep_partitions=not arguments.any_partition)
    say(f"replayed {sent:,} records of {arguments.source} to {arguments.target}")


if __name__ == "__main__":
    run(main, parser())
