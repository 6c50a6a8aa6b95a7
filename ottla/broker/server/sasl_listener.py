"""What all connections of a listener with SASL share: its mechanisms, its limits, and what has come of them."""

import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.config.options import ConfigError
from ottla.broker.config.security import MechanismSettings, SaslSettings, UsersFile, read_users
from ottla.broker.config.tls import LOOK_EVERY_MS, signature
from ottla.broker.runtime import Runtime
from ottla.broker.server.connection_limits import PendingLogins
from ottla.broker.server.dispatch import Dispatcher
from ottla.cluster.image import MetadataImage
from ottla.security.authentication import PLAIN, Mechanism, PlainMechanism
from ottla.security.client import Secret
from ottla.security.exchange import SaslExchange
from ottla.security.scram import ScramMechanism
from ottla.security.scram_credential import SCRAM_MECHANISMS, ScramCredential, ScramHash
from ottla.timer.wheel import TimerEntry

if TYPE_CHECKING:
    from ottla.broker.config.oauth import OAuthSettings
    from ottla.broker.server.token_keys import TokenKeys

NO_MECHANISM = "_other"
"""Of failures without a mechanism that is enabled."""
_NONCE_BYTES = 24
_SECRET_BYTES = 32


class SaslListener:
    def __init__(
        self,
        name: str,
        settings: SaslSettings,
        runtime: Runtime,
        dispatcher: Dispatcher,
        image: Callable[[], MetadataImage],
        logins: PendingLogins,
    ) -> None:
        """`image` has the users of SCRAM at the time of each login."""
        self.name = name
        self.runtime = runtime
        self.dispatcher = dispatcher
        self.logins = logins
        self.receive_bytes_max = min(settings.receive_bytes_max, runtime.config.socket_request_max_bytes)
        self.failure_delay_ms = settings.failure_delay_ms
        self.ended: Counter[tuple[str, str, str]] = Counter()
        """Authentications by occasion (`login`, `renewal`), mechanism and result (`success`, `failure`)."""
        self._image = image
        # For a store that has lost the cluster's secret, which the first broker writes when it registers.
        self._decoy_secret = secrets.token_bytes(_SECRET_BYTES)
        self._reauthentication_ms = {each: of.reauthentication_ms for each, of in settings.mechanisms.items()}
        self.token_keys: list[TokenKeys] = []
        """Of OAUTHBEARER. They are to be loaded before the listener opens."""
        self._users: PlainUsers | None = None
        self._mechanisms: Mapping[str, Callable[[], Mechanism]] = {
            each: self._maker(each, of) for each, of in settings.mechanisms.items()
        }

    def known_mechanism(self, name: str) -> str:
        """One of those enabled here, or `NO_MECHANISM`: clients may name anything, or nothing."""
        return name if name in self._mechanisms else NO_MECHANISM

    def new_exchange(self) -> SaslExchange:
        return SaslExchange(self._mechanisms, self._reauthentication_ms.__getitem__)

    def watch_files(self) -> None:
        """From now on, until `stop`."""
        if self._users is not None:
            self._users.watch()

    def stop(self) -> None:
        if self._users is not None:
            self._users.stop()

    def _maker(self, mechanism: str, settings: MechanismSettings) -> Callable[[], Mechanism]:
        """What makes the object for one exchange."""
        if mechanism == PLAIN:
            return self._maker_of_plain(settings)
        if settings.oauth is not None:
            return self._maker_of_oauth(settings.oauth)
        return partial(self._new_scram, SCRAM_MECHANISMS[mechanism])

    def _maker_of_plain(self, settings: MechanismSettings) -> Callable[[], Mechanism]:
        if settings.users_file is None:
            return partial(PlainMechanism, as_bytes(settings.passwords))
        users = self._users = PlainUsers(self.runtime, self.name, settings.users_file, settings.passwords)
        return lambda: PlainMechanism(users.passwords)

    def _maker_of_oauth(self, settings: "OAuthSettings") -> Callable[[], Mechanism]:
        # Imported here: they take libraries that come with an extra.
        from ottla.broker.server.token_keys import KeySetSource, TokenKeys
        from ottla.security.access_token import AccessTokenValidator, TokenRules
        from ottla.security.oauthbearer import OAuthBearerMechanism

        source = KeySetSource(settings.jwks_url, settings.refresh_ms, settings.retry_ms, settings.retry_ms_max)
        keys = TokenKeys(self.runtime, source)
        self.token_keys.append(keys)
        rules = TokenRules(
            settings.issuer, settings.audience, settings.skew_ms, settings.subject_claim, settings.scope_claim
        )
        return partial(OAuthBearerMechanism, AccessTokenValidator(rules, keys.find).validate)

    def _new_scram(self, scram: ScramHash) -> ScramMechanism:
        image = self._image()

        def find(user: str) -> ScramCredential | None:
            return image.scram_credentials.get((scram, user))

        secret = image.decoy_secret or self._decoy_secret
        return ScramMechanism(scram, find, secrets.token_urlsafe(_NONCE_BYTES), secret)


class PlainUsers:
    """From a file that is read again when it has changed. One that cannot be read is logged once, and the users from
    before stay. A change counts at the next login; open connections stay as they are."""

    def __init__(self, runtime: Runtime, listener: str, file: UsersFile, passwords: Mapping[str, Secret]) -> None:
        """`passwords`: what the file has said at the start."""
        self.passwords = as_bytes(passwords)
        self._runtime = runtime
        self._listener = listener
        self._file = file
        self._seen = signature(file.path)
        self._timer: TimerEntry | None = None

    def watch(self) -> None:
        """From now on, until `stop`."""
        self._look()
        now_ms = self._runtime.clock.now_ms()
        self._timer = self._runtime.wheel.schedule(now_ms + LOOK_EVERY_MS, self.watch)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        # Before it is read: a change in between is found the next time.
        found = signature(self._file.path)
        if found == self._seen:
            return
        self._seen = found
        try:
            users = read_users(self._file.path, self._file.property_name)
        except ConfigError as error:
            self._runtime.log.error("users are not replaced", listener=self._listener, reason=str(error))
            return
        self.passwords = as_bytes(users)
        self._runtime.log.info("users replaced", listener=self._listener, users=len(users))


def as_bytes(passwords: Mapping[str, Secret]) -> dict[str, bytes]:
    return {user: password.reveal().encode() for user, password in passwords.items()}
