"""Users written into a data directory on which no broker runs: how the first of a cluster comes to be (§80.9)."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ottla.broker.broker_data import METADATA_FILE
from ottla.cli.failures import ClientError
from ottla.cluster.embedded import EmbeddedStore
from ottla.cluster.image import NO_LEADER, MetadataImage, ScramUser
from ottla.cluster.scram_users import ScramUpsertion, alter_scram_users, check_alterations, derived_put
from ottla.cluster.store import Committed, StoreError, Transaction
from ottla.cluster.updates import applied
from ottla.security.scram_credential import ScramCredential, ScramHash
from ottla.storage.files import OsFileSystem, reason_of
from ottla.storage.meta_properties import DataDirectoryError, refuse_directory_of_others


def store_users(data_dir: Path, upsertions: Sequence[ScramUpsertion], *, replaces: bool) -> None:
    """All of them or none, durably. The directory is made where it is missing.

    Raises ClientError: a broker runs on the directory, or its metadata is elsewhere; a user cannot be written, or has
    the mechanism already and is not to be replaced."""
    with _opened_store(data_dir) as store:
        _store(store, upsertions, replaces=replaces)


def scram_credentials_in(data_dir: Path) -> Mapping[ScramUser, ScramCredential]:
    """Of all users. The directory is made where it is missing. Raises ClientError, as `store_users`."""
    with _opened_store(data_dir) as store:
        return _image(store).scram_credentials


@contextmanager
def _opened_store(data_dir: Path) -> Generator[EmbeddedStore]:
    try:
        store = _opened(data_dir)
    except (DataDirectoryError, StoreError) as error:
        raise ClientError(str(error)) from None
    except OSError as error:
        raise ClientError(f"cannot use data directory {data_dir}: {reason_of(error)}") from None
    try:
        yield store
    except StoreError as error:
        raise ClientError(str(error)) from None
    finally:
        store.close()


def _opened(data_dir: Path) -> EmbeddedStore:
    files = OsFileSystem()
    path = data_dir / METADATA_FILE
    if not files.exists(path):
        if files.exists(data_dir):
            refuse_directory_of_others(files, data_dir)
        files.make_directory(data_dir)
    try:
        return EmbeddedStore(path)
    except StoreError as error:
        hint = "stop the broker that runs on it, or create the user there with --bootstrap"
        raise StoreError(f"{error}; {hint}" if "locked" in str(error) else str(error)) from None


def _store(store: EmbeddedStore, upsertions: Sequence[ScramUpsertion], *, replaces: bool) -> None:
    image = _image(store)
    for each in upsertions:
        if not replaces and (ScramHash(each.mechanism), each.user) in image.scram_credentials:
            raise ClientError(exists_already(each.user, ScramHash(each.mechanism).mechanism))
    results: list[Any] = []
    transaction = _planned(image, upsertions)
    store.commit(transaction.expected, transaction.changes, results.append)
    if not isinstance(results[0], Committed):
        raise StoreError(f"the user could not be written: {results[0].reason}")


def _image(store: EmbeddedStore) -> MetadataImage:
    found: list[Any] = []
    store.read("", found.append)
    return applied(MetadataImage("", NO_LEADER), found[0]).image


def _planned(image: MetadataImage, upsertions: Sequence[ScramUpsertion]) -> Transaction:
    refused = check_alterations(image, upsertions)
    for user, error in refused.items():
        raise ClientError(f"cannot create user {user}: {error}")
    puts = {each: put for each in upsertions if (put := derived_put(each)) is not None}
    return alter_scram_users(image, upsertions, refused, puts)


def exists_already(user: str, mechanism: str) -> str:
    return f"user {user} has a password for {mechanism} already; --replace gives a new one"
