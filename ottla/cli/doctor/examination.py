"""The examination from its beginning to its end: connect, look twice, look closer, decide (docs/operators.md §15)."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from ottla.cli.client import Client, ClientConfig
from ottla.cli.doctor import address_checks, broker_checks, group_checks, partition_checks
from ottla.cli.doctor.asker import Asker
from ottla.cli.doctor.connecting import WITHIN_S as LOOK_WITHIN_S
from ottla.cli.doctor.connecting import AddressLook, look_at, mechanisms_at
from ottla.cli.doctor.findings import Diagnosis, NotChecked, Report, counted
from ottla.cli.doctor.histories import histories_if_any
from ottla.cli.doctor.probing import could_probe, waiting_records
from ottla.cli.doctor.sample import Examination, OpenTransaction, Sample
from ottla.cli.doctor.sampling import Sampler, Scope
from ottla.cli.failures import ClientError
from ottla.cli.operations.brokers import BROKER_RESOURCE
from ottla.cli.operations.leaders import active_producers
from ottla.cli.operations.transactions import STATES_WITHOUT_TRANSACTION
from ottla.protocol.address import Address
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

WITHIN_S = 60.0

CHECKS: tuple[Callable[[Examination], Iterator[Diagnosis | NotChecked]], ...] = (
    broker_checks.versions,
    group_checks.stuck,
    partition_checks.transactions,
    group_checks.idle_members,
    group_checks.poison,
    partition_checks.balance,
    partition_checks.replication,
    broker_checks.clocks,
    broker_checks.disks,
    partition_checks.risks,
    group_checks.risky_groups,
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked of the doctor. `for_s` is how long after the first sample the last one is taken."""

    scope: Scope
    for_s: float
    may_probe: bool = False


async def examine(config: ClientConfig, plan: Plan) -> Report:
    report = Report()
    looks = await asyncio.gather(*(look_at(address, config.login, config.tls) for address in config.bootstrap))
    report.findings += address_checks.bootstrap(looks)
    answering = [look.address for look in looks if look.problem is None]
    if not answering:
        report.could_look = False
        return report
    try:
        async with asyncio.timeout(WITHIN_S), replace(config, bootstrap=answering).client() as client:
            await _examine_cluster(client, replace(config, bootstrap=answering), plan, report)
    except TimeoutError:
        report.findings.append(address_checks.too_slow(WITHIN_S))
        report.could_look = False
    except ClientError as error:
        report.findings.append(await _without_metadata(answering[0], config, error))
        report.could_look = False
    return report


async def _without_metadata(address: Address, config: ClientConfig, error: ClientError) -> Diagnosis:
    mechanisms = [] if config.login is not None else await mechanisms_at(address, config.tls)
    if mechanisms:
        return address_checks.login_wanted(address, mechanisms)
    return address_checks.no_metadata(address, error)


async def _examine_cluster(client: Client, config: ClientConfig, plan: Plan, report: Report) -> None:
    cluster_id = (await client.metadata([])).cluster_id
    advertised = dict(client.brokers)
    found = await asyncio.gather(*(look_at(address, config.login, config.tls) for address in advertised.values()))
    looks = dict(zip(advertised, found, strict=True))
    reachable = {node_id: look.address for node_id, look in looks.items() if look.problem is None}
    strangers = await _strangers(reachable, config, cluster_id)
    report.findings += address_checks.advertised(looks, config.bootstrap, strangers)
    asker = Asker(client, {node_id: address for node_id, address in reachable.items() if node_id not in strangers})
    exam = await _samples(asker, looks, plan)
    for check in CHECKS:
        for each in check(exam):
            report.add(each)
    report.not_checked += asker.notes
    report.looked_at = _looked_at(exam, asker.requests)


async def _strangers(brokers: Mapping[int, Address], config: ClientConfig, cluster_id: str | None) -> dict[int, str]:
    """Who answers at an advertised address although it is of another cluster, or another broker, in words."""
    found: dict[int, str] = {}
    for node_id, address in brokers.items():
        with suppress(ClientError):
            async with ClientConfig([address], LOOK_WITHIN_S, config.login, config.tls).client() as own:
                there = await own.metadata([])
                if there.cluster_id != cluster_id:
                    found[node_id] = f"a broker of another cluster ({there.cluster_id}, not {cluster_id})"
                elif await _is_another(own, address, node_id):
                    found[node_id] = "another broker of this cluster"
    return found


async def _is_another(client: Client, address: Address, node_id: int) -> bool:
    """A broker refuses to describe the configs of another one."""
    resource = DescribeConfigsResource(
        resource_type=BROKER_RESOURCE, resource_name=str(node_id), configuration_keys=["broker.id"]
    )
    request = DescribeConfigsRequest(resources=[resource])
    response = await client.ask_at(address, request, DescribeConfigsResponse)
    return bool(response.results[0].error_code == ErrorCode.INVALID_REQUEST)


async def _samples(asker: Asker, looks: Mapping[int, AddressLook], plan: Plan) -> Examination:
    sampler = Sampler(asker, looks, plan.scope)
    first = await sampler.sample(is_last=False)
    clocks = await could_probe(asker) if plan.may_probe else {}
    await asyncio.sleep(max(0.0, first.at_s + plan.for_s - asyncio.get_running_loop().time()))
    last = _with_clocks(await sampler.sample(is_last=True), clocks)
    return await _looked_closer(asker, Examination(first, last))


def _with_clocks(sample: Sample, clocks: Mapping[int, tuple[int, int]]) -> Sample:
    """By records is more exact than by the date of a page."""
    brokers = {
        node_id: replace(broker, clock_ahead_ms=clocks[node_id][0], clock_within_ms=clocks[node_id][1])
        if node_id in clocks
        else broker
        for node_id, broker in sample.brokers.items()
    }
    return replace(sample, brokers=brokers)


async def _looked_closer(asker: Asker, exam: Examination) -> Examination:
    """At what the two samples make suspicious."""
    histories, reason = await histories_if_any(asker.client, exam.first.wall_ms, exam.last.wall_ms)
    if histories is None and exam.last.groups:
        asker.note("D4", f"rebalances between the samples, and who is waited for: {reason}")
    exam = replace(exam, histories=histories, open_transactions=await _open_transactions(asker, exam))
    leaders = {
        key: (leader, exam.last.groups[group_id].offsets[key])
        for group_id, key in group_checks.standing_commits(exam)
        if (leader := exam.last.partitions[key].leader) in asker.brokers and leader is not None
    }
    return replace(exam, waiting_records=await waiting_records(asker, leaders))


async def _open_transactions(asker: Asker, exam: Examination) -> dict[tuple[str, int], OpenTransaction]:
    standing = partition_checks.standing(exam)
    if not standing:
        return {}
    try:
        asker.requests += len(asker.brokers)
        producers = await active_producers(asker.client, standing)
    except ClientError as error:
        asker.note("D5", str(error))
        return {}
    found: dict[tuple[str, int], OpenTransaction] = {}
    for each in producers:
        key, start = (each.topic, each.partition), each.transaction_start_offset
        if start is not None and (key not in found or start < found[key].start_offset):
            found[key] = OpenTransaction(each.producer_id, each.producer_epoch, start, each.last_timestamp)
    return await _with_coordinators(asker, found)


async def _with_coordinators(
    asker: Asker, found: Mapping[tuple[str, int], OpenTransaction]
) -> dict[tuple[str, int], OpenTransaction]:
    """The same with what their coordinators know: which of all brokers that is, only they can say."""
    request = ListTransactionsRequest(producer_id_filters=sorted({each.producer_id for each in found.values()}))
    what = "the transactional ids"
    answers = [await asker.ask("D5", what, each, request, ListTransactionsResponse) for each in asker.brokers]
    known = {
        each.producer_id: each
        for answer in answers
        if answer is not None and not answer.error_code
        for each in answer.transaction_states
    }
    have_all_answered = all(answer is not None and not answer.error_code for answer in answers)

    def with_coordinator(transaction: OpenTransaction) -> OpenTransaction:
        state = known.get(transaction.producer_id)
        if state is None:
            return replace(transaction, is_coordinated=False if have_all_answered else None)
        is_coordinated = state.transaction_state not in STATES_WITHOUT_TRANSACTION
        return replace(transaction, transactional_id=state.transactional_id, is_coordinated=is_coordinated)

    return {key: with_coordinator(each) for key, each in found.items()}


def _looked_at(exam: Examination, requests: int) -> str:
    parts = (
        counted(len(exam.last.brokers), "broker"),
        counted(len(exam.last.partitions), "partition"),
        counted(len(exam.last.groups), "group"),
    )
    return f"{', '.join(parts)}, {exam.span_s:.1f} s apart, {counted(requests, 'request')}"
