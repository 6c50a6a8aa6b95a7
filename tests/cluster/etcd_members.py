"""The members of a real etcd, and what can be done to them by etcd's own API: the storm and the stores' tests do it.

All of it blocks until etcd has done it.
"""

import base64
import json
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any

from tests.cluster.etcd_server import EtcdServer, three_members
from tests.waiting import wait_for

TIMEOUT_S = 60
# The metadata's keys have a namespace before this.
BROKERS = b"/brokers/"


class EtcdMembers:
    def __init__(self, members: Sequence[EtcdServer]) -> None:
        self.members = list(members)
        self._forgotten_to = 0

    @classmethod
    def three(cls, directory: Path) -> "EtcdMembers":
        return cls(three_members(directory))

    @property
    def url(self) -> str:
        """As `--metadata` takes it."""
        return "etcd://" + ",".join(f"127.0.0.1:{member.port}" for member in self.members)

    def start(self) -> None:
        """Returns when the members have a leader."""
        for member in self.members:
            member.start()
        self.leader()

    def kill(self) -> None:
        for member in self.members:
            member.kill()

    def leader(self) -> EtcdServer:
        found: list[EtcdServer] = []

        def is_found() -> bool:
            leader_id = self._ask_any("maintenance/status").get("leader")
            ids = {each.get("name"): each["ID"] for each in self._listed()}
            found[:] = [member for member in self.members if ids.get(member.name, "none") == leader_id]
            return bool(found)

        wait_for(is_found, TIMEOUT_S, "etcd has no leader")
        return found[0]

    def move_leader(self) -> None:
        """To another member, if there is one. Nothing is done where the leader has just changed."""
        leader = self.leader()
        others = [each["ID"] for each in self._listed() if each.get("name") != leader.name]
        if others:
            self._ask(leader, "maintenance/transfer-leadership", targetID=others[0])

    def compact(self) -> None:
        """The past is forgotten: a watch that is behind must read everything again."""
        revision = int(self._ask_any("maintenance/status")["header"]["revision"])
        # What is forgotten cannot be forgotten again.
        if revision > self._forgotten_to:
            self._ask_any("kv/compaction", revision=str(revision), physical=True)
            self._forgotten_to = revision

    def revoke_lease_of(self, node_id: int) -> None:
        """As if a broker had not kept it alive: its registration is gone, while it lives on."""
        for lease in self._ask_any("lease/leases").get("leases", []):
            found = self._ask_any("lease/timetolive", ID=lease["ID"], keys=True)
            keys = [base64.b64decode(key) for key in found.get("keys", [])]
            if any(key.endswith(BROKERS + str(node_id).encode()) for key in keys):
                self._ask_any("lease/revoke", ID=lease["ID"])

    def _listed(self) -> list[dict[str, Any]]:
        return list(self._ask_any("cluster/member/list")["members"])

    def _ask_any(self, path: str, **fields: Any) -> dict[str, Any]:
        """The first member that answers, again and again: those that were just started may not be ready."""
        answers: list[dict[str, Any]] = []

        def is_answered() -> bool:
            for member in self.members:
                answer = self._ask(member, path, **fields) if member.is_running else None
                if answer is not None:
                    answers.append(answer)
                    return True
            return False

        wait_for(is_answered, TIMEOUT_S, f"no member of etcd has answered {path} within {TIMEOUT_S} s")
        return answers[0]

    def _ask(self, member: EtcdServer, path: str, **fields: Any) -> dict[str, Any] | None:
        """None: it has refused, or does not answer."""
        body = json.dumps(fields).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{member.port}/v3/{path}", data=body)
        try:
            with urllib.request.urlopen(request, timeout=5) as response:
                answer: Mapping[str, Any] = json.load(response)
        except (OSError, HTTPException):
            return None
        return None if "error" in answer else dict(answer)
