"""Server properties of what operators look at: the admin listener, health and metrics (docs/operators.md)."""

from typing import Final

from ottla.broker.config.options import Kind, Option, Update, choice, integer, long, optional_text, secret_option
from ottla.broker.config.server_tls import NONE, REQUESTED, REQUIRED
from ottla.protocol.address import Address, parse_address

ADMIN: Final = "ottla.admin."
"""What the names of the admin listener's properties begin with."""


def _listener(text: str) -> Address | None:
    if text == "off":
        return None
    try:
        return parse_address(text, port_min=0)
    except ValueError:
        raise ValueError("expected off or HOST:PORT") from None


class AdminOptions:
    ottla_admin_listener = Option[Address | None](
        "ottla.admin.listener",
        Kind.STRING,
        None,
        "Address of the HTTP listener for health and metrics; port 0 is any free port. Without one, or with off, there "
        "is none. Without tokens or certificates it shows names of topics and groups to everyone who can reach it.",
        parse=_listener,
        bounds="off or HOST:PORT",
        update=Update.READ_ONLY,
    )
    ottla_admin_ssl_keystore_location = optional_text(
        f"{ADMIN}ssl.keystore.location",
        "PEM file with the private key and the certificate chain of the admin listener, leaf first; only its owner may "
        "read it (mode 0600). With it the listener speaks HTTPS alone.",
    )
    ottla_admin_ssl_key_password = secret_option(
        f"{ADMIN}ssl.key.password", "Password of the private key in it, where it is encrypted."
    )
    ottla_admin_ssl_truststore_location = optional_text(
        f"{ADMIN}ssl.truststore.location",
        "PEM file with the certificates of the authorities that vouch for clients of the admin listener.",
    )
    ottla_admin_ssl_client_auth = choice(
        f"{ADMIN}ssl.client.auth",
        NONE,
        (NONE, REQUESTED, REQUIRED),
        "Whether clients of the admin listener have to show a certificate. With requested only those who do see pages "
        "about clients, on an address that is no loopback one.",
    )
    ottla_admin_tokens_file = optional_text(
        f"{ADMIN}tokens.file",
        "File with the tokens of the admin listener, one NAME ROLE SHA256 a line, with a role of metrics, viewer or "
        "operator, that only its owner can read (mode 0600). With it all pages but those of health want one.",
    )
    ottla_health_disk_stall_ms = long(
        "ottla.health.disk.stall.ms",
        30000,
        "A call to the disk that takes longer makes the broker not ready, in milliseconds.",
        at_least=1,
    )
    ottla_health_ready_requires = choice(
        "ottla.health.ready.requires",
        "nothing",
        ("nothing", "caught-up"),
        "With caught-up a broker is ready only when each of its replicas has been in sync once since the start.",
    )
    ottla_health_caught_up_timeout_ms = integer(
        "ottla.health.caught.up.timeout.ms",
        600000,
        "How long ottla.health.ready.requires=caught-up waits at most, in milliseconds.",
        at_least=0,
    )
    ottla_metrics_partitions_max = integer(
        "ottla.metrics.partitions.max",
        1000,
        "Number of partitions that have metrics of their own. Of others only sums are exported.",
        at_least=0,
    )
    ottla_metrics_topics_max = integer(
        "ottla.metrics.topics.max",
        1000,
        "Number of topics that have metrics of their own. The others are summed up as _other.",
        at_least=0,
    )
    ottla_metrics_groups_max = integer(
        "ottla.metrics.groups.max",
        300,
        "Number of groups that have metrics of their own. The others are summed up as _other.",
        at_least=0,
    )
    ottla_metrics_lag_max = integer(
        "ottla.metrics.lag.max",
        5000,
        "Number of pairs of group and partition whose lag is exported, and watched for its age, for losses and the "
        "verdict on the group. The lag of the others is summed by topic, with _other as group and partition.",
        at_least=0,
    )
    ottla_metrics_group_labels = optional_text(
        "ottla.metrics.group.labels",
        "File that says which team owns a group, read at the start: lines PREFIX TEAM. The metrics of groups whose "
        "names begin with PREFIX have the label team; the longest prefix counts, and * stands for all others.",
    )
    ottla_request_log_slow_ms = integer(
        "ottla.request.log.slow.ms",
        500,
        "Requests that take longer are logged, in milliseconds; 0 logs none. Long polls are not: Fetch, JoinGroup and "
        "SyncGroup that wait. Less than 50 is taken for 50.",
        at_least=0,
        update=Update.CLUSTER_WIDE,
    )
    ottla_request_log_sample = integer(
        "ottla.request.log.sample",
        0,
        "Each so-many-th request is logged, with its API, its client and how long its handler took; 0 logs none.",
        at_least=0,
    )
    ottla_log_level_revert_ms = long(
        "ottla.log.level.revert.ms",
        3600000,
        "How long levels of the log that were altered at run time (BROKER_LOGGER) hold, in milliseconds; 0 for ever.",
        at_least=0,
        update=Update.CLUSTER_WIDE,
    )
