"""Holds answers and deeds against what was allowed (I-34).

An answer has to be one that a single set of ACLs explains, of those that the answering broker had between the moment at
which the request was sent and the one at which its answer came. What a request leaves behind (a record, an offset, a
config, an ACL, the deletion of a topic) must have been allowed by such a set too, whether or not an answer came.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.cli.operations.acls import described
from ottla.cluster.image import MetadataImage
from ottla.cluster.updates import ImageUpdate
from ottla.security.acl import AclFilter
from tests.simulation.cluster.principals.asks import NAMES, REFUSALS, Ask, Deed, codes_in
from tests.simulation.cluster.principals.beliefs import AclSet, Beliefs, StoredAcls
from tests.simulation.cluster.principals.rights import matches
from tests.simulation.cluster.principals.topic_asks import MARKED
from tests.simulation.loop import Process

if TYPE_CHECKING:
    from tests.simulation.cluster.world import ClusterWorld

WRITTEN = b"principal "
"""How every record of a principal begins."""


class Who(NamedTuple):
    principal: str
    host: str


@dataclass
class Act:
    """One request that may leave a deed behind."""

    who: Who
    process: Process
    deed: Deed
    since_us: int
    until_us: int | None = None
    """When it was answered; None: it may be carried out whenever its broker lives."""


class Court:
    def __init__(self, world: "ClusterWorld") -> None:
        self._world = world
        self._judge = world.judge
        self.stored = StoredAcls(world.store_machine.store, self._acls_changed, is_open=world.plan.is_open)
        self.beliefs = Beliefs(world.judge, self.stored)
        self._acts: dict[Any, list[Act]] = {}
        # Of topics, by name, and of ACLs: what was asked for and answered before that has deleted something else.
        self._created_us: dict[Any, int] = {}
        world.truth.when_changed.append(self._topics_changed)

    # Answers.

    def sent(self, who: Who, process: Process, deeds: list[Deed]) -> list[Act]:
        """Before the request leaves."""
        acts = [Act(who, process, deed, self._world.now_us) for deed in deeds]
        for act in acts:
            self._acts.setdefault(_key(act.deed.what), []).append(act)
        return acts

    def answered(self, who: Who, process: Process, since_us: int, ask: Ask, response: Any) -> None:
        seen = self.beliefs.seen(*who, process, since_us, self._world.now_us)
        wrongs = [ask.wrong(each, response) for each in seen]
        has_refusal = not REFUSALS.isdisjoint(codes_in(response))
        self._judge.counts["requests refused" if has_refusal else "requests of principals"] += 1
        if all(wrongs):
            how = (
                f"{who.principal} at {who.host}, {process.name}: {wrongs[-1]}, v{ask.version} {ask.request}: {response}"
            )
            self._judge.violated("I-34", how)
        elif ask.described and not response.error_code:
            acls = described(response)
            if all(acls != each.rights.acls for each in seen):
                self._judge.violated("I-34", f"{who} was shown ACLs that {process.name} has not had: {acls}")

    def stayed_open(self, who: Who, process: Process, since_us: int, ask: Ask) -> None:
        """A connection, though its request without an answer has long been handled."""
        seen = self.beliefs.seen(*who, process, since_us, self._world.now_us)
        if not any(all(deed.may(each) for deed in ask.deeds) for each in seen):
            self._judge.violated("I-34", f"{who} was denied {ask.request}, and its connection did not close")

    # Deeds.

    def _since_creation(self, key: Any, of: Any) -> list[Act]:
        """Of the requests with this key, those that may have deleted what there is of this now."""
        created_us = self._created_us.pop(of, 0)
        return [act for act in self._acts.get(key, []) if act.until_us is None or act.until_us >= created_us]

    def _was_allowed(self, act: Act) -> bool:
        seen = self.beliefs.seen(*act.who, act.process, act.since_us, act.until_us)
        return any(map(act.deed.may, seen))

    def _check(self, what: Any) -> None:
        acts = self._acts.get(_key(what), [])
        if not any(map(self._was_allowed, acts)):
            self._violated(f"{what} was done", acts)
        self._judge.counts["deeds of principals"] += 1

    def _violated(self, what: str, acts: list[Act]) -> None:
        self._judge.violated("I-34", f"{what}, which was denied to {[act.who for act in acts]}")

    def _topics_changed(self, before: MetadataImage, update: ImageUpdate) -> None:
        for name in update.topics:
            if name not in NAMES:
                continue
            old, topic = before.topic(name), update.image.topic(name)
            if old is not None and (topic is None or topic.topic_id != old.topic_id):
                deletions = self._since_creation(("delete", name), name)
                if not any(map(self._was_allowed, deletions)):
                    self._violated(f"{name} was deleted", deletions)
            if topic is not None and (old is None or topic.topic_id != old.topic_id):
                self._created_us[name] = self._world.now_us
            mark = None if topic is None else topic.configs.get(MARKED)
            if mark is not None and (old is None or old.configs.get(MARKED) != mark):
                self._check(("config", mark))

    def _acls_changed(self, before: AclSet, after: AclSet) -> None:
        self._judge.counts["ACLs changed"] += len(before ^ after)
        for acl in after - before:
            self._created_us[acl] = self._world.now_us
            self._check(("create", acl))
        for acl in before - after:
            deletions = [act for act in self._since_creation("filter", acl) if matches(act.deed.what[1], acl)]
            if not any(map(self._was_allowed, deletions)):
                self._violated(f"{acl} was deleted", deletions)

    def check_record(self, topic: str, value: bytes) -> None:
        """What a log has in the end."""
        if value.startswith(WRITTEN):
            self._check((topic, value.decode()))

    def check_offset(self, group: str, topic: str, offset: int) -> None:
        """What a group has committed in the end."""
        self._check(("offset", group, topic, offset))

    # ACLs that were asked for by who may.

    def check_created(self, acls: AclSet, process: Process, since_us: int) -> None:
        """The broker that has answered has them (§61.5)."""
        moments = self.beliefs.between(process, since_us, self._world.now_us)
        missing = [acl for acl in acls if all(acl not in moment.rights.acls for moment in moments)]
        if missing:
            self._judge.violated("I-34", f"{process.name} has created {missing} and does not have them")

    def check_deleted(self, one: AclFilter, process: Process, since_us: int) -> None:
        moments = self.beliefs.between(process, since_us, self._world.now_us)
        if all(any(matches(one, acl) for acl in moment.rights.acls) for moment in moments):
            self._judge.violated("I-34", f"{process.name} has deleted {one} and still has some")


def _key(what: Any) -> Any:
    """Filters are looked through one by one."""
    return "filter" if what[0] == "filter" else what
