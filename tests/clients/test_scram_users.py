"""Users' SCRAM credentials by the administration clients of librdkafka, kafka-python and Kafka's own `kafka-configs`.

That a credential is the one of its password is seen in the metadata file: none of the clients can ask for it.
"""

from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import admin as kafka_python

from ottla import ClusterThread
from ottla.broker.broker_data import METADATA_FILE
from ottla.cluster.embedded import EmbeddedStore
from ottla.cluster.image import NO_LEADER, MetadataImage, ScramUser
from ottla.cluster.updates import applied
from ottla.security.scram_credential import ScramCredential, ScramHash, credential_of, salted_password
from tests.broker.authorization.world import LOGIN, SECURED
from tests.java_tools import run_tool
from tests.served import ServedBroker
from tests.waiting import wait_for

WAIT_S = 20
CONFIGS = "kafka.admin.ConfigCommand"
SHA_256 = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
SHA_512 = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192)


def kept(data_dir: Path) -> dict[ScramUser, ScramCredential]:
    """What the file of a broker that does not run has."""
    store = EmbeddedStore(data_dir / METADATA_FILE)
    images: list[MetadataImage] = []
    store.read("", lambda found: images.append(applied(MetadataImage("", NO_LEADER), found).image))  # type: ignore[arg-type]
    store.close()
    return dict(images[0].scram_credentials)


def accepts(credential: ScramCredential, scram: ScramHash, password: str) -> bool:
    salted = salted_password(scram, password.encode(), credential.salt, credential.iterations)
    return credential_of(scram, credential.salt, salted, credential.iterations) == credential


def test_confluent_kafka_alters_and_describes_users(broker: ServedBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wanted = [
        UserScramCredentialUpsertion("alice", SHA_256, b"secret"),
        UserScramCredentialUpsertion("alice", SHA_512, b"secret", b"a salt of ours"),
        UserScramCredentialUpsertion("bob", SHA_256, b"other"),
        UserScramCredentialDeletion("nemo", ScramMechanism.SCRAM_SHA_256),
    ]
    done = admin.alter_user_scram_credentials(wanted)
    assert [done[user].result(WAIT_S) for user in ("alice", "bob")] == [None, None]
    with pytest.raises(KafkaException) as raised:
        done["nemo"].result(WAIT_S)
    everybody = admin.describe_user_scram_credentials().result(WAIT_S)
    some = admin.describe_user_scram_credentials(["bob", "nemo"])

    assert raised.value.args[0].code() == KafkaError.RESOURCE_NOT_FOUND
    infos = {
        user: [(info.mechanism, info.iterations) for info in described.scram_credential_infos]
        for user, described in everybody.items()
    }
    assert infos == {
        "alice": [(ScramMechanism.SCRAM_SHA_256, 4096), (ScramMechanism.SCRAM_SHA_512, 8192)],
        "bob": [(ScramMechanism.SCRAM_SHA_256, 4096)],
    }
    assert some["bob"].result(WAIT_S).user == "bob"
    with pytest.raises(KafkaException, match="does not exist: nemo"):
        some["nemo"].result(WAIT_S)

    # What was acknowledged outlasts a process that is killed.
    broker.kill()
    found = kept(broker.data_dir)
    assert accepts(found[ScramHash.SHA_256, "alice"], ScramHash.SHA_256, "secret")
    assert accepts(found[ScramHash.SHA_512, "alice"], ScramHash.SHA_512, "secret")
    assert found[ScramHash.SHA_512, "alice"].salt == b"a salt of ours"
    assert not accepts(found[ScramHash.SHA_256, "bob"], ScramHash.SHA_256, "secret")
    broker.start()
    assert set(admin.describe_user_scram_credentials().result(WAIT_S)) == {"alice", "bob"}


def test_kafka_python_alters_and_describes_users(broker: ServedBroker) -> None:
    admin = kafka_python.KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    sha_256 = kafka_python.ScramMechanism.SCRAM_SHA_256
    upsertion = kafka_python.UserScramCredentialUpsertion("alice", sha_256, "secret", iterations=5000)
    made = admin.alter_user_scram_credentials([upsertion])
    described = admin.describe_user_scram_credentials()
    refused = admin.alter_user_scram_credentials([kafka_python.UserScramCredentialDeletion("nemo", sha_256)])
    admin.alter_user_scram_credentials([kafka_python.UserScramCredentialDeletion("alice", sha_256)])
    missing = admin.describe_user_scram_credentials(["alice"])
    admin.close()

    assert made == {"alice": None}
    assert described == {"alice": {"error": None, "credential_infos": [{"mechanism": sha_256, "iterations": 5000}]}}
    assert refused == {"nemo": "Attempt to delete a user credential that does not exist"}
    assert missing["alice"]["credential_infos"] == []


@pytest.mark.java
@pytest.mark.timeout(300)
def test_kafka_configs_gives_a_user_both_mechanisms_at_once(broker: ServedBroker) -> None:
    """As Kafka 4.1 does not (§80.3)."""
    user = ("--bootstrap-server", broker.bootstrap, "--entity-type", "users", "--entity-name", "alice")
    both = "SCRAM-SHA-256=[iterations=8192,password=secret],SCRAM-SHA-512=[password=other]"
    altered = run_tool(CONFIGS, *user, "--alter", "--add-config", both)
    run_tool(CONFIGS, *user, "--alter", "--delete-config", "SCRAM-SHA-512")
    broker.stop()
    found = kept(broker.data_dir)
    broker.start()

    assert "Completed updating config for user alice." in altered
    assert set(found) == {(ScramHash.SHA_256, "alice")}
    assert accepts(found[ScramHash.SHA_256, "alice"], ScramHash.SHA_256, "secret")


SETTINGS = {
    name.replace(".inside.", ".plaintext."): value for name, value in SECURED.items() if name != "listeners"
} | {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
}


def as_carol(address: str) -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "carol",
            "sasl.password": "sesame",
        }
    )


def is_in(client: AdminClient) -> bool:
    try:
        return bool(client.list_topics(timeout=2).brokers)
    except KafkaException:
        return False


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_user_of_kafka_configs_logs_in_at_every_broker(tmp_path: Path) -> None:
    """SEC07: once deleted she gets in no more, and stays where she is."""
    properties = tmp_path / "admin.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={LOGIN} username="admin" password="pw";\n'
    )
    with ClusterThread(brokers=3, settings=SETTINGS) as cluster:
        common = ("--bootstrap-server", cluster.bootstrap, "--command-config", properties)
        user = ("--entity-type", "users", "--entity-name", "carol")
        added = "SCRAM-SHA-512=[iterations=8192,password=sesame]"
        run_tool(CONFIGS, *common, *user, "--alter", "--add-config", added)
        clients = [as_carol(address) for address in cluster.bootstrap.split(",")]
        for client in clients:
            wait_for(lambda client=client: is_in(client), WAIT_S, "carol cannot log in")  # type: ignore[misc]
        # The first answer came by a connection that librdkafka gives up as soon as it knows the brokers.
        assert all(is_in(client) for client in clients)
        described = run_tool(CONFIGS, *common, *user, "--describe")
        run_tool(CONFIGS, *common, *user, "--alter", "--delete-config", "SCRAM-SHA-512")
        # Not by these connections, which were made before.
        for address in cluster.bootstrap.split(","):
            wait_for(lambda address=address: not is_in(as_carol(address)), WAIT_S, "carol still gets in")  # type: ignore[misc]
        stayed = [is_in(client) for client in clients]

    assert "SCRAM-SHA-512=iterations=8192" in described
    assert "sesame" not in described
    assert "salt" not in described
    assert stayed == [True] * 3
