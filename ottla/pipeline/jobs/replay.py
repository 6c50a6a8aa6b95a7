"""spark-submit replay.py --table PATH --from T --to U: records of a table back into a topic (docs/pipeline.md)."""

import argparse

from ottla.pipeline import cluster, replay
from ottla.pipeline.clients import read_clients
from ottla.pipeline.jobs.job import load_table, run, say
from ottla.pipeline.jobs.options import replay_parser
from ottla.pipeline.replay_transaction import ReplayTransaction, send_in_transaction
from ottla.pipeline.session import master_of, open_session


def main(arguments: argparse.Namespace) -> None:
    security = read_clients(arguments)
    seen = cluster.fetch_summary(arguments.bootstrap, security)
    cluster.check_topics(seen, [arguments.target], arguments.bootstrap)
    spark = open_session("replay")
    cluster.check_reachable(seen, master_of(spark))
    cluster.check_path(arguments.table, master_of(spark), is_shared=arguments.shared_path)
    wanted = replay.Range(arguments.since_ms, arguments.until_ms, arguments.first_offset, arguments.end_offset)
    selected = replay.select_range(load_table(spark, arguments.table), arguments.source, wanted)
    if not arguments.any_partition:
        replay.check_partitions(selected, arguments.target, seen.topics[arguments.target])
    where, keep_partitions = (arguments.bootstrap, arguments.target), not arguments.any_partition
    if arguments.no_transaction:
        sent = replay.send(selected, *where, keep_partitions=keep_partitions, security=security)
    else:
        name = arguments.transactional_id or f"ottla-replay-{arguments.target}"
        transaction = ReplayTransaction(name, arguments.transaction_timeout * 1000)
        rows = selected.toLocalIterator(prefetchPartitions=True)
        sent = send_in_transaction(rows, *where, transaction, keep_partitions=keep_partitions, security=security)
    say(f"replayed {sent:,} records of {arguments.source} to {arguments.target}")


if __name__ == "__main__":
    run(main, replay_parser())
