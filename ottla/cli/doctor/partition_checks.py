"""What is wrong with partitions: leaders (D8), replicas (D9), what they are set to (D12), transactions (D5)."""

from collections import Counter
from collections.abc import Iterator, Mapping

from ottla.cli.client import TopicPartition
from ottla.cli.doctor.findings import Diagnosis, NotChecked, Severity, counted, lasted, named
from ottla.cli.doctor.sample import Examination, OpenTransaction, SeenPartition
from ottla.cluster.image import CONSUMER_OFFSETS

NOT_PREFERRED_MAX = 0.2
BYTES_SPREAD_MAX = 2.0
BYTES_THAT_MATTER = 1 << 30
# Kafka's default of transaction.max.timeout.ms.
TRANSACTION_MAX_TIMEOUT_MS = 900_000
MIN_ISR = "min.insync.replicas"


def transactions(exam: Examination) -> Iterator[Diagnosis | NotChecked]:
    """D5: a last stable offset that stands, below the high watermark."""
    for key in standing(exam):
        open_one = exam.open_transactions.get(key)
        if open_one is None:
            yield NotChecked("D5", f"{_name(key)}: readers stand, and the producers could not be listed")
        else:
            yield _hanging(exam, key, open_one)


def standing(exam: Examination) -> list[TopicPartition]:
    """Partitions whose last stable offset was the same in both samples, and below the high watermark."""
    found: list[TopicPartition] = []
    for key, partition in exam.last.partitions.items():
        before = exam.first.partitions.get(key)
        stable = partition.last_stable_offset
        is_behind = stable is not None and partition.high_watermark is not None and stable < partition.high_watermark
        if before is not None and is_behind and before.last_stable_offset == stable:
            found.append(key)
    return found


def _hanging(exam: Examination, key: TopicPartition, found: OpenTransaction) -> Diagnosis:
    age_ms = max(0, exam.last.wall_ms - found.last_ms)
    limits = [
        int(broker.configs.get("transaction.max.timeout.ms", TRANSACTION_MAX_TIMEOUT_MS))
        for broker in exam.last.brokers.values()
        if broker.configs is not None
    ]
    is_sure = age_ms > max(limits, default=TRANSACTION_MAX_TIMEOUT_MS)
    who = "" if found.transactional_id is None else f" ({found.transactional_id})"
    text = (
        f"{_name(key)}: readers of committed transactions stand at {found.start_offset:,}, held by producer "
        f"{found.producer_id}{who}, which wrote last {lasted(age_ms / 1000)} ago"
    )
    if found.is_coordinated is False:
        text += ", and of which no coordinator has an open transaction"
    abort = f"ottla transactions abort {key[0]}:{key[1]} --start-offset {found.start_offset}"
    advice = {
        True: f"end or restart the producer, else its coordinator ends it after its timeout; in need: {abort} --force",
        False: abort,
        None: f"end or restart the producer; if it is gone: {abort}",
    }[found.is_coordinated]
    severity = Severity.CRITICAL if is_sure else Severity.WARNING
    evidence = (f"producer {found.producer_id} epoch {found.producer_epoch}",)
    return Diagnosis("D5.hanging-transaction", severity, _name(key), text, advice, evidence, is_sure)


def balance(exam: Examination) -> Iterator[Diagnosis | NotChecked]:
    """D8."""
    led = {key: each for key, each in exam.last.partitions.items() if each.leader is not None}
    not_preferred = [key for key in led if _could_be_preferred(exam, key)]
    if led and len(not_preferred) > NOT_PREFERRED_MAX * len(led):
        leads = Counter(each.leader for each in led.values())
        first, count = leads.most_common(1)[0]
        topics = sorted({topic for topic, _ in not_preferred})
        text = (
            f"{len(not_preferred):,} of {counted(len(led), 'partition')} are not led by their preferred replica; "
            f"broker {first} leads {count:,}"
        )
        advice = f"ottla partitions elect {' '.join(topics[:3])} --preferred"
        evidence = tuple(f"broker {node_id} leads {number:,}" for node_id, number in sorted(leads.items()))
        yield Diagnosis("D8.leaders", Severity.WARNING, "leaders", text, advice, evidence, runbook="Unbalanced")
    yield from _racks(exam)
    yield from _bytes(exam)


def _could_be_preferred(exam: Examination, key: TopicPartition) -> bool:
    """Another leads, at both samples, although the first replica is in sync."""
    for sample in (exam.first, exam.last):
        seen = sample.partitions.get(key)
        if seen is None or not seen.replicas or seen.leader == seen.replicas[0] or seen.replicas[0] not in seen.isr:
            return False
    return True


def _racks(exam: Examination) -> Iterator[Diagnosis]:
    racks = {broker.node_id: broker.rack for broker in exam.last.brokers.values()}
    if len({rack for rack in racks.values() if rack is not None}) < 2 or None in racks.values():
        return
    together = [
        key
        for key, each in exam.last.partitions.items()
        if len(each.replicas) > 1 and len({racks.get(node_id, node_id) for node_id in each.replicas}) == 1
    ]
    if together:
        text = f"{counted(len(together), 'partition')} have all replicas in one rack: {named(map(_name, together))}"
        advice = "ottla partitions plan, then ottla partitions reassign: spread the replicas over racks"
        yield Diagnosis("D8.racks", Severity.WARNING, _name(together[0]), text, advice)


def _bytes(exam: Examination) -> Iterator[Diagnosis]:
    sizes = {
        node_id: sum(each.size_bytes for each in broker.log_dirs)
        for node_id, broker in exam.last.brokers.items()
        if broker.log_dirs is not None
    }
    if len(sizes) < 2:
        return
    mean = sum(sizes.values()) / len(sizes)
    node_id, most = max(sizes.items(), key=lambda item: item[1])
    if most > BYTES_SPREAD_MAX * mean and most - mean > BYTES_THAT_MATTER:
        text = f"broker {node_id} keeps {most / 1e9:.1f} GB, brokers on average {mean / 1e9:.1f} GB"
        advice = "ottla partitions plan, then ottla partitions reassign: move replicas to the other brokers"
        yield Diagnosis("D8.bytes", Severity.WARNING, f"broker {node_id}", text, advice)


def replication(exam: Examination) -> Iterator[Diagnosis | NotChecked]:
    """D9: what was so at both samples."""
    both = {
        key: each
        for key, each in exam.last.partitions.items()
        if (before := exam.first.partitions.get(key)) is not None and before.missing and each.missing
    }
    offline = [key for key, each in exam.last.partitions.items() if each.leader is None and _was_offline(exam, key)]
    if offline:
        text = f"{counted(len(offline), 'partition')} without a leader: {named(map(_name, offline))}"
        replicas = sorted({node_id for key in offline for node_id in exam.last.partitions[key].replicas})
        advice = f"start broker {named(replicas)}; an unclean election loses records and is the last step"
        subject = _name(offline[0])
        yield Diagnosis("D9.offline", Severity.CRITICAL, subject, text, advice, runbook="PartitionsOffline")
    under = {key: each for key, each in both.items() if key not in offline}
    small = [key for key, each in under.items() if _is_below(each, exam.last.config(key[0], MIN_ISR))]
    if small:
        text = (
            f"{counted(len(small), 'partition')} below min.insync.replicas ({named(map(_name, small))}): acks=all fails"
        )
        advice = "bring the missing broker back; else lower min.insync.replicas for a time"
        yield Diagnosis(
            "D9.under-min-isr", Severity.CRITICAL, _name(small[0]), text, advice, runbook="UnderMinIsr"
        )  # fmt: skip
    if under:
        yield _under_replicated(under)


def _was_offline(exam: Examination, key: TopicPartition) -> bool:
    before = exam.first.partitions.get(key)
    return before is not None and before.leader is None


def _is_below(partition: SeenPartition, min_isr: str | None) -> bool:
    return min_isr is not None and len(partition.isr) < min(int(min_isr), len(partition.replicas))


def _under_replicated(under: Mapping[TopicPartition, SeenPartition]) -> Diagnosis:
    lacks = Counter(node_id for each in under.values() for node_id in each.missing)
    topics = sorted({topic for topic, _ in under})
    many = counted(len(under), "partition")
    verb = "lacks" if len(under) == 1 else "lack"
    if len(lacks) == 1:
        (node_id,) = lacks
        text = f"{many} {verb} broker {node_id} only: it is down or slow, not the topics"
        subject, advice = f"broker {node_id}", f"start broker {node_id}, or look at its log, disk and network"
    elif len(topics) == 1:
        text = f"{many} of topic {topics[0]} alone {verb} replicas on brokers {named(sorted(lacks))}"
        subject, advice = topics[0], "look for its replicas in the logs of these brokers; a throttle may hold them back"
    else:
        text = f"{many} of {counted(len(topics), 'topic')} {verb} replicas on brokers {named(sorted(lacks))}"
        subject, advice = "replicas", "look at the network and the load of the brokers that lead them"
    evidence = tuple(f"broker {node_id} is missing in {number:,}" for node_id, number in lacks.most_common(5))
    return Diagnosis(
        "D9.under-replicated", Severity.WARNING, subject, text, advice, evidence, runbook="UnderReplicated"
    )


def risks(exam: Examination) -> Iterator[Diagnosis | NotChecked]:
    """D12."""
    sample = exam.last
    if sample.topics and not sample.topic_configs:
        yield NotChecked("D12", "the configs of topics could not be read")
    alone = [topic for topic, rows in sample.topics.items() if rows and all(len(row.replicas) == 1 for row in rows)]
    yield from _one_replica(alone, is_single=len(sample.brokers) == 1)
    stops: list[str] = []
    thin: list[str] = []
    unclean: list[str] = []
    for topic, rows in sample.topics.items():
        replicas, min_isr = min(len(row.replicas) for row in rows), sample.config(topic, MIN_ISR)
        if min_isr is not None and replicas > 1 and int(min_isr) >= replicas:
            stops.append(f"{topic} ({replicas} replicas, {MIN_ISR} {min_isr})")
        elif min_isr == "1" and replicas > 2 and topic not in sample.internal_topics:
            thin.append(topic)
        if sample.config(topic, "unclean.leader.election.enable") == "true" and replicas > 1:
            unclean.append(topic)
    if stops:
        text = f"{named(stops, 3)}: one broker down stops producers with acks=all"
        advice = "ottla topics alter TOPIC --config min.insync.replicas=N with N below the number of replicas"
        yield Diagnosis("D12.no-spare", Severity.WARNING, stops[0].split()[0], text, advice)
    if thin:
        text = f"{named(thin)}: {MIN_ISR} is 1, so acks=all may be acknowledged by a leader alone"
        advice = "ottla topics alter TOPIC --config min.insync.replicas=2"
        yield Diagnosis("D12.min-isr-1", Severity.WARNING, thin[0], text, advice)
    if unclean:
        text = f"{named(unclean)}: a replica that lacks records may become the leader, and they are lost"
        advice = "ottla topics alter TOPIC --unset unclean.leader.election.enable"
        yield Diagnosis("D12.unclean", Severity.WARNING, unclean[0], text, advice)
    creating = [
        b.node_id for b in sample.brokers.values() if (b.configs or {}).get("auto.create.topics.enable") == "true"
    ]
    if creating:
        text = "misspelled names of topics become topics (auto.create.topics.enable)"
        yield Diagnosis("D12.auto-create", Severity.INFO, "brokers", text, "set auto.create.topics.enable=false")


def _one_replica(alone: list[str], *, is_single: bool) -> Iterator[Diagnosis]:
    if is_single and alone:
        text = f"one broker has the only replica of {counted(len(alone), 'topic')}: its disk is all there is"
        yield Diagnosis("D12.one-broker", Severity.INFO, "brokers", text, "run three brokers where records matter")
        return
    if CONSUMER_OFFSETS in alone:
        text = f"{CONSUMER_OFFSETS} has one replica: while its broker is down, its groups stand"
        advice = "ottla partitions reassign: give it three replicas; set offsets.topic.replication.factor"
        yield Diagnosis("D12.offsets-one-replica", Severity.CRITICAL, CONSUMER_OFFSETS, text, advice)
    others = [topic for topic in alone if topic != CONSUMER_OFFSETS]
    if others:
        text = f"{counted(len(others), 'topic')} with one replica ({named(others)}): a disk that fails loses them"
        advice = "ottla partitions plan and reassign, with two replicas more"
        yield Diagnosis("D12.one-replica", Severity.WARNING, others[0], text, advice)


def _name(key: TopicPartition) -> str:
    return f"{key[0]}-{key[1]}"
