"""Writes ottla.json, a Grafana dashboard over /metrics, from the table below.

python examples/monitoring/make_dashboard.py
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

DASHBOARD = Path(__file__).parent / "ottla.json"
PANEL_WIDTH, PANEL_HEIGHT, COLUMNS = 8, 8, 3
SELECTED = '{job=~"$job",broker=~"$broker"}'
OF_GROUP = '{job=~"$job",group=~"$group"}'
OF_TOPIC = '{job=~"$job",topic=~"$topic"}'


class Panel(NamedTuple):
    title: str
    query: str
    legend: str = "broker {{broker}}"
    unit: str = "short"
    help: str = ""
    stacked: bool = False


def _percentile(name: str, share: float, by: str) -> str:
    return f"histogram_quantile({share}, sum by (le, {by}) (rate({name}_bucket{SELECTED}[$__rate_interval])))"


ROWS: dict[str, tuple[Panel, ...]] = {
    "Cluster": (
        Panel("Brokers by state", f"max by (state) (ottla_brokers{SELECTED})", "{{state}}"),
        Panel("Partitions offline", f"max(ottla_partitions_offline{SELECTED})", "offline"),
        Panel(
            "Under min ISR",
            f"sum(ottla_partitions_under_min_isr{SELECTED})",
            "partitions",
            help="acks=all fails for them.",
        ),
        Panel("Under replicated", f"sum by (broker) (ottla_partitions_under_replicated{SELECTED})"),
        Panel("Controllers", f"sum(ottla_controller_active{SELECTED})", "controllers", help="One, but for moments."),
        Panel(
            "Leader changes",
            f"sum by (reason) (increase(ottla_leader_changes_total{SELECTED}[$__rate_interval]))",
            "{{reason}}",
        ),
    ),
    "Requests": (
        Panel(
            "Requests",
            f"sum by (api) (rate(ottla_request_duration_seconds_count{SELECTED}[$__rate_interval]))",
            "{{api}}",
            "reqps",
        ),
        Panel(
            "p99 of what does not wait",
            _percentile("ottla_request_duration_seconds", 0.99, "api").replace(
                '{job=~"$job",broker=~"$broker"}', '{job=~"$job",broker=~"$broker",where="direct"}'
            ),
            "{{api}}",
            "s",
        ),
        Panel(
            "Errors",
            f"sum by (api, error) (rate(ottla_request_errors_total{SELECTED}[$__rate_interval]))",
            "{{api}} {{error}}",
        ),
        Panel(
            "Records in",
            f"sum by (topic) (rate(ottla_topic_records_in_total{OF_TOPIC}[$__rate_interval]))",
            "{{topic}}",
        ),
        Panel(
            "Bytes in",
            f"sum by (topic) (rate(ottla_topic_bytes_in_total{OF_TOPIC}[$__rate_interval]))",
            "{{topic}}",
            "Bps",
        ),
        Panel(
            "Bytes out",
            f"sum by (topic, to) (rate(ottla_topic_bytes_out_total{OF_TOPIC}[$__rate_interval]))",
            "{{topic}} {{to}}",
            "Bps",
        ),
        Panel(
            "Request bytes",
            f"sum by (api) (rate(ottla_request_bytes_total{SELECTED}[$__rate_interval]))",
            "{{api}}",
            "Bps",
        ),
        Panel(
            "Response bytes",
            f"sum by (api) (rate(ottla_response_bytes_total{SELECTED}[$__rate_interval]))",
            "{{api}}",
            "Bps",
        ),
        Panel("Connections", f"sum by (broker, listener) (ottla_connections{SELECTED})", "{{broker}} {{listener}}"),
        Panel(
            "Connections closed",
            f"sum by (reason) (increase(ottla_connections_closed_total{SELECTED}[$__rate_interval]))",
            "{{reason}}",
            stacked=True,
        ),
        Panel("Connections that wait", f"sum by (reason) (ottla_connections_held{SELECTED})", "{{reason}}"),
        Panel(
            "Client software", f"max by (name, version) (ottla_client_software_info{SELECTED})", "{{name}} {{version}}"
        ),
        Panel("Parked", f"sum by (purgatory) (ottla_requests_parked{SELECTED})", "{{purgatory}}"),
        Panel(
            "Parked and expired",
            f"sum by (purgatory) (rate(ottla_parked_expired_total{SELECTED}[$__rate_interval]))",
            "{{purgatory}}",
        ),
    ),
    "Rebalances": (
        Panel(
            "Rebalances by cause",
            f"sum by (cause) (increase(ottla_group_rebalances_total{OF_GROUP}[$__rate_interval]))",
            "{{cause}}",
            stacked=True,
            help="Which members: ottla groups story GROUP.",
        ),
        Panel(
            "Rebalances by group",
            f"sum by (group) (increase(ottla_group_rebalances_total{OF_GROUP}[$__rate_interval]))",
            "{{group}}",
        ),
        Panel(
            "Last rebalance",
            f"max by (group, phase) (ottla_group_rebalance_last_seconds{OF_GROUP})",
            "{{group}} {{phase}}",
            "s",
        ),
        Panel("p99 of rebalances", _percentile("ottla_group_rebalance_seconds", 0.99, "phase"), "{{phase}}", "s"),
        Panel(
            "Members removed",
            f"sum by (cause) (increase(ottla_group_members_removed_total{OF_GROUP}[$__rate_interval]))",
            "{{cause}}",
        ),
        Panel(
            "What members waited for",
            f"sum by (for) (rate(ottla_group_wait_seconds_total{OF_GROUP}[$__rate_interval]))",
            "{{for}}",
            stacked=True,
            help="Members that wait at the same time.",
        ),
        Panel(
            "Partitions without an owner",
            f"sum by (group) (rate(ottla_group_partition_seconds_unowned_total{OF_GROUP}[$__rate_interval]))",
            "{{group}}",
            help="What rebalances cost. Cooperative assignors keep it low.",
        ),
        Panel(
            "Partitions of silent members",
            f"sum by (group) (increase(ottla_group_partition_seconds_silent_total{OF_GROUP}[$__rate_interval]))",
            "{{group}}",
            "s",
            help="Partitions times seconds, counted when a session expires.",
        ),
        Panel("Loading of coordinators, p99", _percentile("ottla_group_load_seconds", 0.99, "broker"), unit="s"),
        Panel("Members", f"max by (group) (ottla_group_members{OF_GROUP})", "{{group}}"),
        Panel("Groups by state", f"sum by (state) (ottla_groups{SELECTED})", "{{state}}"),
        Panel(
            "Time in a state that is not Stable",
            'max by (group, state) (ottla_group_state_seconds{job=~"$job",group=~"$group",state=~".*Rebalance"})',
            "{{group}} {{state}}",
            "s",
        ),
    ),
    "Lag": (
        Panel(
            "Lag",
            f"sum by (group, topic) (ottla_group_lag_records{OF_GROUP})",
            "{{group}} {{topic}}",
            help="Records not committed.",
        ),
        Panel(
            "Age of the oldest unread record",
            f"max by (group, topic) (ottla_group_lag_seconds{OF_GROUP})",
            "{{group}} {{topic}}",
            "s",
        ),
        Panel("Verdict", f"max by (group, verdict) (ottla_group_verdict{OF_GROUP})", "{{group}} {{verdict}}"),
        Panel("Members without a partition", f"max by (group) (ottla_group_idle_members{OF_GROUP})", "{{group}}"),
        Panel(
            "Records deleted unread",
            f"sum by (group, topic) (increase(ottla_group_records_lost_total{OF_GROUP}[$__rate_interval]))",
            "{{group}} {{topic}}",
        ),
        Panel("Commits", f"sum by (group) (rate(ottla_group_commits_total{OF_GROUP}[$__rate_interval]))", "{{group}}"),
        Panel("Events lost", f"sum by (broker) (increase(ottla_events_dropped_total{SELECTED}[$__rate_interval]))"),
    ),
    "Transactions": (
        Panel("Transactional ids by state", f"sum by (state) (ottla_transactional_ids{SELECTED})", "{{state}}"),
        Panel(
            "Age of the oldest",
            f"max by (state) (ottla_transaction_oldest_seconds{SELECTED})",
            "{{state}}",
            "s",
            help="Prepare…: decided, and markers are missing.",
        ),
        Panel(
            "Records that readers of committed ones wait for",
            f"max by (topic) (ottla_partition_high_watermark{OF_TOPIC} - ottla_partition_last_stable_offset{OF_TOPIC})",
            "{{topic}}",
        ),
        Panel(
            "Partitions with late transactions",
            f"sum by (broker) (ottla_partitions_with_late_transactions{SELECTED})",
            help="They hang: ottla transactions find-hanging.",
        ),
        Panel(
            "Markers queued",
            f"sum by (destination) (ottla_transaction_markers_queued{SELECTED})",
            "to {{destination}}",
        ),
        Panel("Markers sent again", f"sum by (broker) (ottla_transaction_markers_retried{SELECTED})"),
        Panel(
            "Verification, p99",
            _percentile("ottla_transaction_verification_seconds", 0.99, "broker"),
            unit="s",
        ),
        Panel(
            "Verifications that failed",
            f"sum by (error) (rate(ottla_transaction_verification_failures_total{SELECTED}[$__rate_interval]))",
            "{{error}}",
        ),
        Panel("Producers remembered", f"sum by (broker) (ottla_producer_ids{SELECTED})"),
    ),
    "Replication": (
        Panel(
            "ISR changes",
            f"sum by (broker, change) (increase(ottla_isr_changes_total{SELECTED}[$__rate_interval]))",
            "{{broker}} {{change}}",
        ),
        Panel(
            "Follower lag",
            f"max by (topic, follower) (ottla_follower_lag_records{OF_TOPIC})",
            "{{topic}} at {{follower}}",
        ),
        Panel(
            "Follower lag in time",
            f"max by (topic, follower) (ottla_follower_lag_seconds{OF_TOPIC})",
            "{{topic}} at {{follower}}",
            "s",
        ),
        Panel("Metadata store, p99", _percentile("ottla_metadata_store_seconds", 0.99, "broker"), unit="s"),
        Panel("Metadata not applied yet", f"max by (broker) (ottla_metadata_apply_lag_seconds{SELECTED})", unit="s"),
        Panel("Session remaining", f"min by (broker) (ottla_metadata_session_remaining_seconds{SELECTED})", unit="s"),
        Panel("Metadata store", f"min by (broker) (ottla_metadata_store_up{SELECTED})"),
        Panel("Disk free", 'ottla_log_directory_bytes{job=~"$job",broker=~"$broker",kind="free"}', unit="bytes"),
        Panel("Writes, p99", _percentile("ottla_log_write_seconds", 0.99, "broker"), unit="s"),
        Panel("Syncs, p99", _percentile("ottla_log_flush_seconds", 0.99, "broker"), unit="s"),
        Panel(
            "Dirtiest compacted log",
            f"max by (broker) (ottla_compaction_dirty_ratio_max{SELECTED})",
            unit="percentunit",
            help="Long above min.cleanable.dirty.ratio: compaction cannot keep up.",
        ),
        Panel("Failed logs", f"sum by (broker) (ottla_log_failures{SELECTED})"),
    ),
    "Clients": (
        Panel(
            "Logins that failed",
            "sum by (listener, mechanism) (rate(ottla_authentication_total"
            '{job=~"$job",broker=~"$broker",result="failure"}[$__rate_interval]))',
            "{{listener}} {{mechanism}}",
            help="The log has the address and the reason of each.",
        ),
        Panel(
            "Denied by the authorizer",
            f"sum by (operation, resource_type) (rate(ottla_authorization_denied_total{SELECTED}[$__rate_interval]))",
            "{{operation}} {{resource_type}}",
        ),
        Panel(
            "Held back by quotas",
            f"sum by (quota) (rate(ottla_quota_throttle_seconds_total{SELECTED}[$__rate_interval]))",
            "{{quota}}",
            "s",
        ),
    ),
    "Broker": (
        Panel(
            "Processor", 'rate(process_cpu_seconds_total{job=~"$job"}[$__rate_interval])', "{{instance}}", "percentunit"
        ),
        Panel("Memory", 'process_resident_memory_bytes{job=~"$job"}', "{{instance}}", "bytes"),
        Panel("Lateness of the loop, p99", _percentile("ottla_loop_lateness_seconds", 0.99, "broker"), unit="s"),
        Panel("Slow steps", f"sum by (broker) (increase(ottla_loop_steps_slow_total{SELECTED}[$__rate_interval]))"),
        Panel(
            "Collections of garbage, p99",
            "histogram_quantile(0.99, sum by (le, instance) "
            '(rate(ottla_gc_pause_seconds_bucket{job=~"$job"}[$__rate_interval])))',
            "{{instance}}",
            "s",
        ),
        Panel("Oldest call to the disk", f"max by (broker) (ottla_offloaded_oldest_seconds{SELECTED})", unit="s"),
        Panel(
            "Unhandled errors", f"sum by (broker) (increase(ottla_unhandled_errors_total{SELECTED}[$__rate_interval]))"
        ),
    ),
}
VARIABLES = {
    "job": "label_values(ottla_broker_info, job)",
    "broker": "label_values(ottla_broker_info, broker)",
    "group": "label_values(ottla_group_members, group)",
    "topic": "label_values(ottla_topic_records_in_total, topic)",
}


def dashboard() -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS.items():
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": title,
                "collapsed": False,
                "panels": [],
                "gridPos": {"x": 0, "y": y, "w": PANEL_WIDTH * COLUMNS, "h": 1},
            }
        )
        y += 1
        for place, panel in enumerate(row):
            x = place % COLUMNS * PANEL_WIDTH
            panels.append(_panel(len(panels) + 1, panel, x, y + place // COLUMNS * PANEL_HEIGHT))
        y += (len(row) + COLUMNS - 1) // COLUMNS * PANEL_HEIGHT
    return {
        "uid": "ottla",
        "title": "Ottla",
        "tags": ["kafka", "ottla"],
        "timezone": "browser",
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "panels": panels,
        "templating": {"list": [_source(), *(_variable(name, query) for name, query in VARIABLES.items())]},
    }


def _panel(number: int, panel: Panel, x: int, y: int) -> dict[str, Any]:
    stacking = {"mode": "normal"} if panel.stacked else {"mode": "none"}
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.help,
        "datasource": {"type": "prometheus", "uid": "$source"},
        "gridPos": {"x": x, "y": y, "w": PANEL_WIDTH, "h": PANEL_HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": {"stacking": stacking}}, "overrides": []},
        "options": {"legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"]}},
        "targets": [{"refId": "A", "expr": panel.query, "legendFormat": panel.legend}],
    }


def _source() -> dict[str, Any]:
    return {"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"}


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "query": query,
        "datasource": {"type": "prometheus", "uid": "$source"},
        "includeAll": True,
        "multi": True,
        "refresh": 2,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


if __name__ == "__main__":
    DASHBOARD.write_text(json.dumps(dashboard(), indent=1) + "\n", encoding="utf-8")
