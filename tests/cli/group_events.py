"""Events of a group, as a broker would publish them."""

from typing import Any

WALL_AHEAD_MS = 1_000_000


def member(name: str) -> dict[str, Any]:
    return {"member_id": f"{name}-000001", "client_id": name, "client_host": "/h"}


def event(event_type: str, mono_ms: int, **fields: Any) -> dict[str, Any]:
    envelope = {"wall_ms": WALL_AHEAD_MS + mono_ms, "mono_ms": mono_ms, "broker": 1, "run": 0, "group_id": "g"}
    return {"type": event_type, **envelope, **fields}


def rebalance(at_ms: int, generation: int, joined: dict[str, int], **fields: Any) -> list[dict[str, Any]]:
    """One of the generation that ends, eager: who has joined again how long after its start. It has the partitions of
    `t`, one each, a second after the last of them has joined."""
    took_ms = max(joined.values())
    started = event(
        "rebalance_started", at_ms, generation=generation, **{"cause": "member joined", "member_count": 1, **fields}
    )
    came = [
        event(
            "member_rejoined", at_ms + waited_ms, generation=generation, join_phase_ms=waited_ms, owned={}, **member(m)
        )
        for m, waited_ms in sorted(joined.items(), key=lambda item: item[1])
    ]
    given = [
        event("member_assigned", at_ms + took_ms + 1000, generation=generation + 1, assigned={"t": [i]}, **member(m))
        for i, m in enumerate(sorted(joined))
    ]
    ids = {"leader_id": "", "member_ids": [member(each)["member_id"] for each in joined], "generation": generation + 1}
    begun = event("generation_started", at_ms + took_ms, join_phase_ms=took_ms, protocol_name="range", **ids)
    done = event("generation_completed", at_ms + took_ms + 1000, sync_phase_ms=1000, **ids)
    return [started, *came, begun, *given, done]
