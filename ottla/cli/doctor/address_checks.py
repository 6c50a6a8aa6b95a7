"""What is wrong with addresses: those that were given (D1), and those that brokers advertise (D2)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ottla.cli.doctor.connecting import AddressLook
from ottla.cli.doctor.findings import Diagnosis, Severity, named
from ottla.protocol.address import Address, is_loopback

ADVICE = "set advertised.listeners of the broker to an address that its clients can reach"


def bootstrap(looks: Iterable[AddressLook]) -> Iterator[Diagnosis]:
    """D1."""
    for look in looks:
        if look.problem is not None:
            subject = str(look.address)
            steps = tuple(look.steps)
            name = "D1.login-refused" if look.is_login_refused else "D1.cannot-connect"
            yield Diagnosis(name, Severity.CRITICAL, subject, look.problem, look.advice, steps)


def login_wanted(address: Address, mechanisms: Sequence[str]) -> Diagnosis:
    text = f"{address} wants a login (SASL) by {' or '.join(mechanisms)}, and none was given"
    advice = "give --user NAME and --password-file FILE, with --sasl-mechanism, or --command-config FILE"
    return Diagnosis("D1.login-wanted", Severity.CRITICAL, str(address), text, advice)


def no_metadata(address: Address, error: Exception) -> Diagnosis:
    """ApiVersions was answered and what came next was not."""
    text = f"{address} answers ApiVersions, and then: {error}"
    advice = "most often the listener wants a login that this command does not know, or the broker is about to stop"
    return Diagnosis("D1.no-metadata", Severity.CRITICAL, str(address), text, advice, is_sure=False)


def too_slow(within_s: float) -> Diagnosis:
    text = f"the examination did not end within {within_s:.0f} s: brokers answer slowly, or not at all"
    return Diagnosis("D1.slow", Severity.CRITICAL, "cluster", text, "look at one topic or group: --topic, --group")


def advertised(
    looks: Mapping[int, AddressLook], given: Sequence[Address], strangers: Mapping[int, str]
) -> Iterator[Diagnosis]:
    """D2. `strangers` are brokers at whose address somebody else answers, in words."""
    by_address: dict[Address, list[int]] = defaultdict(list)
    for node_id, look in sorted(looks.items()):
        by_address[look.address].append(node_id)
    for address, node_ids in by_address.items():
        if len(node_ids) > 1:
            text = f"brokers {named(node_ids)} all advertise {address}: one address, several ids"
            yield Diagnosis("D2.same-address", Severity.CRITICAL, str(address), text, ADVICE)
    is_far = not all(is_loopback(address.host) for address in given)
    for node_id, look in sorted(looks.items()):
        yield from _of_broker(node_id, look, strangers.get(node_id), is_far=is_far)


def _of_broker(node_id: int, look: AddressLook, stranger: str | None, *, is_far: bool) -> Iterator[Diagnosis]:
    subject, says = f"broker {node_id}", f"broker {node_id} advertises {look.address}"
    if look.address.host in ("0.0.0.0", "::", ""):
        text = f"{says}, which is no address of a machine: clients reach themselves there, or nothing"
        yield Diagnosis("D2.wildcard", Severity.CRITICAL, subject, text, ADVICE)
    elif not look.does_resolve:
        text = f"{says}, which does not resolve here; clients will hang after bootstrap"
        yield Diagnosis(
            "D2.unresolved", Severity.CRITICAL, subject, text, f"{ADVICE}; {look.advice}", tuple(look.steps)
        )
    elif look.problem is not None:
        text = f"{says}, and from here: {look.problem}"
        yield Diagnosis(
            "D2.unreachable", Severity.CRITICAL, subject, text, f"{look.advice}; {ADVICE}", tuple(look.steps)
        )
    elif is_far and is_loopback(look.address.host):
        text = f"{says}, which is each client's own machine: only clients beside the broker reach it"
        yield Diagnosis("D2.loopback", Severity.CRITICAL, subject, text, ADVICE)
    if stranger is not None:
        text = f"{says}, but there answers {stranger}"
        yield Diagnosis("D2.stranger", Severity.CRITICAL, subject, text, ADVICE)
