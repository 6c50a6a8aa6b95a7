"""What seeds have to meet together. A count that stays at nothing says that worlds lost what they were made for."""

from collections.abc import Mapping

# So many meet everything; of fewer nothing is asked.
SEEDS_THAT_MEET_ALL = 100

OF_ALL = frozenset(
    {
        "commit",
        "crash within an operation",
        "heartbeat",
        "joined",
        "kill",
        "offloaded work suspended",
        "offsets read",
        "records read",
        "scrapes",
        "stop",
        "sync",
        "synced",
    }
)
OF_A_TRANSACTION_COORDINATOR = frozenset(
    {
        "committed records read",
        "coordinators compared",
        "decisions",
        "epochs raised by clients",
        "inputs copied once",
        "offsets found unstable",
        "offsets of transactions",
        "open transactions checked",
        "stable offsets checked",
        "transactional ids initialized",
        "transactional ids loaded",
        "transactions aborted",
        "transactions committed",
        "transactions left open",
        "transactions over",
    }
)
OF_A_BROKER = frozenset({"expiries", "failed write", "older metadata", "power", "power soon after a start", "produced"})
OF_A_CLUSTER = frozenset(
    {
        "ACLs changed",
        "acknowledged",
        "acknowledged by the leader",
        "answers at a console",
        "blackout",
        "churn",
        "clock jumps",
        "committed records asked of followers",
        "compaction",
        "configure",
        "cut",
        "deeds of principals",
        "delete records",
        "disk errors",
        "durable logs checked",
        "elect",
        "fetches from a follower",
        "fetches by the id of a deleted topic",
        "fetches by topic id",
        "fetches of a session",
        "groups deleted",
        "grow",
        "hostile connections closed",
        "hostile requests refused",
        "in-sync replicas checked",
        "keyed records acknowledged",
        "killed before a sync",
        "new leaders checked",
        "offsets found by time",
        "pause",
        "power failure",
        "power failure after a stop",
        "producer ids replaced",
        "producers compared",
        "quotas altered",
        "readers without epochs sent on",
        "reassign",
        "reboot",
        "records held back",
        "records of a short-lived topic read",
        "records read slowly",
        "records were deleted before they were read",
        "repaired disk",
        "replicas compared on the way",
        "refused as too large",
        "refused without a key",
        "requests of principals",
        "requests refused",
        "reset",
        "retention",
        "risk",
        "rolls",
        "rot",
        "sessions taken away",
        "settings altered",
        "settings compared",
        "settings probed",
        "slow disk",
        "slow readers closed: idle",
        "slow readers closed: slow client",
        "slow readers that hold a broker up",
        "slow readers that left",
        "stall",
        "store in trouble",
        "topics created for a client",
        "topics gone by their ids",
        "transactions of others in the store",
        "users altered",
    }
)
TO_MEET = {
    "broker": OF_ALL | OF_A_TRANSACTION_COORDINATOR | OF_A_BROKER,
    "cluster": OF_ALL | OF_A_TRANSACTION_COORDINATOR | OF_A_CLUSTER,
    "transactions": OF_ALL | OF_A_BROKER | {"stable offset", "transactions"},
}


def unmet(world: str, counts: Mapping[str, int]) -> list[str]:
    """What runs of such worlds, with these counts in all, have not met."""
    return sorted(name for name in TO_MEET[world] if not counts.get(name))
