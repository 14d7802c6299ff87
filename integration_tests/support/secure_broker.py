"""A Kafka with TLS, SASL and ACLs, and the settings with which clients reach it.

One broker, four listeners: PLAINTEXT for the tests themselves (a super user), SASL_SSL (PLAIN,
SCRAM-SHA-256 and -512, OAUTHBEARER), SSL that asks for a client certificate, and SASL_SSL under a
certificate of another host. Nobody but the super user may do anything that no ACL allows.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from eo_kafka.broker.embedded import KafkaBroker
from eo_kafka.broker.settings import LOOPBACK, free_port
from harness import Copy
from token_issuer import TokenIssuer

# Recognisable, so that a test can look for them where they must not be.
PASSWORD = "s3cret-of-alice-Zx9"
KEY_PASSWORD = "s3cret-of-the-key-Qy7"
USER = "alice"  # may do everything
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTH = "OAUTHBEARER"
REAUTHENTICATED_MS = 3_600_000  # at the latest; a token's end comes first (KIP-368)
SOON = "SCRAM-SHA-512"  # whoever logs in by this does so again every two seconds
LISTENERS = {
    "SASL": "SASL_SSL",
    "MTLS": "SSL",
    "ELSEWHERE": "SASL_SSL",
    "CLEAR": "SASL_PLAINTEXT",
}
Grant = tuple[ResourceType, str, AclOperation]


class Certificates:
    """A certificate authority in `folder`, and PEM files signed by it, made with openssl."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = self._authority("ca")
        self.other_ca = self._authority("other-ca")
        self.broker = self._signed("broker", f"IP:{LOOPBACK},DNS:localhost")
        self.elsewhere = self._signed("elsewhere", "DNS:kafka.elsewhere.example")
        self.client = self._signed(USER, f"DNS:{USER}")
        self.client_key = folder / f"{USER}.key"
        self.encrypted_key = folder / f"{USER}.encrypted.key"
        self._openssl(
            *("pkcs8", "-topk8", "-in", str(self.client_key), "-out", str(self.encrypted_key)),
            *("-v2", "aes-256-cbc", "-passout", f"pass:{KEY_PASSWORD}"),
        )

    def store(self, certificate: Path) -> Path:
        """Key and chain in one file, as Kafka's PEM keystores want them."""
        path = certificate.with_suffix(".store.pem")
        path.write_text(certificate.with_suffix(".key").read_text() + certificate.read_text())
        return path

    def _authority(self, name: str) -> Path:
        self._openssl(
            *(
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-days",
                "2",
                "-subj",
                f"/CN={name}",
            ),
            *(
                "-keyout",
                str(self.folder / f"{name}.key"),
                "-out",
                str(self.folder / f"{name}.crt"),
            ),
        )
        return self.folder / f"{name}.crt"

    def _signed(self, name: str, alternative_names: str) -> Path:
        key, request = self.folder / f"{name}.key", self.folder / f"{name}.csr"
        extensions, certificate = self.folder / f"{name}.ext", self.folder / f"{name}.crt"
        extensions.write_text(f"subjectAltName={alternative_names}\n")
        self._openssl(
            *("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}"),
            *("-keyout", str(key), "-out", str(request)),
        )
        self._openssl(
            *("x509", "-req", "-in", str(request), "-CA", str(self.ca), "-days", "2"),
            *("-CAkey", str(self.ca.with_suffix(".key")), "-CAcreateserial"),
            *("-extfile", str(extensions), "-out", str(certificate)),
        )
        return certificate

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True)


class SecureBroker:
    """The running broker. `admin` is the super user's client."""

    def __init__(
        self,
        broker: KafkaBroker,
        ports: dict[str, int],
        made: Certificates,
        issuer: TokenIssuer | None = None,
    ) -> None:
        self.bootstrap_servers = broker.bootstrap_servers
        self.certificates = made
        self.issuer = issuer
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        self._ports = ports

    def sasl(
        self, mechanism: str = "PLAIN", user: str = USER, password: str = PASSWORD
    ) -> dict[str, str]:
        """Client settings for SASL over TLS."""
        return {
            "bootstrap.servers": f"{LOOPBACK}:{self._ports['SASL']}",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.certificates.ca),
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }

    def oauth(self, **others: str) -> dict[str, str]:
        """Client settings for SASL OAUTHBEARER over TLS, the token endpoint's over TLS, too.
        `others`: of `sasl.oauthbearer.*`, with `_` for `.`."""
        settings = {**self.sasl(), **self.issuer.settings(USER)}
        for name in ("sasl.username", "sasl.password"):
            del settings[name]
        settings["https.ca.location"] = str(self.certificates.ca)
        for name, value in others.items():
            settings[f"sasl.oauthbearer.{name.replace('_', '.')}"] = value
        return settings

    def client_certificate(self) -> dict[str, str]:
        """Client settings for TLS in both directions; the key is encrypted."""
        return {
            "bootstrap.servers": f"{LOOPBACK}:{self._ports['MTLS']}",
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.certificates.ca),
            "ssl.certificate.location": str(self.certificates.client),
            "ssl.key.location": str(self.certificates.encrypted_key),
            "ssl.key.password": KEY_PASSWORD,
        }

    def client_certificate_as_text(self) -> dict[str, str]:
        """The same, with the PEM texts themselves as settings."""
        settings = self.client_certificate()
        for name in ("ca", "certificate", "key"):
            settings[f"ssl.{name}.pem"] = Path(settings.pop(f"ssl.{name}.location")).read_text()
        return settings

    def another_host(self) -> dict[str, str]:
        """Client settings for a listener whose certificate is that of another host."""
        return {**self.sasl(), "bootstrap.servers": f"{LOOPBACK}:{self._ports['ELSEWHERE']}"}

    def add_user(self, user: str, password: str) -> None:
        """Let `user` log in with SCRAM; it may do nothing yet."""
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            info = ScramCredentialInfo(mechanism, 4096)
            change = UserScramCredentialUpsertion(user, info, password.encode())
            # One request each: Kafka takes a user only once in a request.
            self._wait(self.admin.alter_user_scram_credentials([change]))

    def grant(
        self,
        user: str,
        grants: Iterable[Grant],
        how: AclPermissionType = AclPermissionType.ALLOW,
    ) -> None:
        """Allow `user` exactly these things more; or deny them, whatever else allows them."""
        self._wait(self.admin.create_acls([_binding(user, *grant, how=how) for grant in grants]))

    def revoke(self, user: str, grants: Iterable[Grant]) -> None:
        """Take them away again."""
        self._wait(
            self.admin.delete_acls([_binding(user, *grant, AclBindingFilter) for grant in grants])
        )

    def _wait(self, futures: dict) -> None:
        for future in futures.values():
            future.result(30)


def _binding(
    user: str,
    kind: ResourceType,
    name: str,
    operation: AclOperation,
    form: type = AclBinding,
    how: AclPermissionType = AclPermissionType.ALLOW,
) -> AclBinding:
    """A name that ends in `*` is a prefix."""
    pattern = ResourcePatternType.PREFIXED if name.endswith("*") else ResourcePatternType.LITERAL
    if name == "*":
        pattern = ResourcePatternType.LITERAL
    else:
        name = name.rstrip("*")
    return form(kind, name, pattern, f"User:{user}", "*", operation, how)


def properties(
    ports: dict[str, int], made: Certificates, issuer: TokenIssuer | None = None
) -> dict[str, object]:
    """What `server.properties` says of security."""
    jaas = 'org.apache.kafka.common.security.{0} required username="nobody" password="nobody" {1};'
    plain = jaas.format("plain.PlainLoginModule", f'user_{USER}="{PASSWORD}"')
    settings: dict[str, object] = {
        "listeners": ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in ports.items()),
        "advertised.listeners": ",".join(
            f"{name}://{LOOPBACK}:{port}" for name, port in ports.items() if name != "CONTROLLER"
        ),
        "listener.security.protocol.map": ",".join(
            f"{name}:{LISTENERS.get(name, 'PLAINTEXT')}" for name in ports
        ),
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.quorum.voters": f"1@{LOOPBACK}:{ports['CONTROLLER']}",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:ANONYMOUS;User:{USER}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": made.store(made.broker),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": made.ca,
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]*).*$/$1/,DEFAULT",
        "listener.name.mtls.ssl.client.auth": "required",
        "listener.name.elsewhere.ssl.keystore.type": "PEM",
        "listener.name.elsewhere.ssl.keystore.location": made.store(made.elsewhere),
        "sasl.enabled.mechanisms": ",".join(("PLAIN", *SCRAM, *([OAUTH] if issuer else []))),
    }
    for listener in ("sasl", "elsewhere", "clear"):
        at = f"listener.name.{listener}"
        settings[f"{at}.plain.sasl.jaas.config"] = plain
        for mechanism in SCRAM:
            settings[f"{at}.{mechanism.lower()}.sasl.jaas.config"] = jaas.format(
                "scram.ScramLoginModule", ""
            )
        settings[f"{at}.{SOON.lower()}.connections.max.reauth.ms"] = 2000
        of_tokens = {} if issuer is None else issuer.broker_properties(REAUTHENTICATED_MS)
        for name, value in of_tokens.items():
            settings[f"{at}.oauthbearer.{name}"] = value
    return settings


@pytest.fixture(scope="session")
def secure(tmp_path_factory) -> Iterator[SecureBroker]:
    """For all tests of security; name this module in `pytest_plugins` to share it."""
    made = Certificates(tmp_path_factory.mktemp("certificates"))
    ports = {name: free_port() for name in ("PLAINTEXT", "CONTROLLER", *LISTENERS)}
    issuer = TokenIssuer(made.folder, made.store(made.broker))
    given = properties(ports, made, issuer)
    broker = KafkaBroker(port=ports["PLAINTEXT"], properties=given)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", issuer.java_option)
        broker.start()
    with issuer, broker:
        running = SecureBroker(broker, ports, made, issuer)
        running.add_user(USER, PASSWORD)
        yield running


@dataclass
class SecureCopy(Copy):
    """A copy whose clients use `client`, its source `reader` if that is another; `servers` stays
    the tests' own way in."""

    client: dict[str, str] = field(default_factory=dict)
    reader: dict[str, str] = field(default_factory=dict)

    def as_job(self) -> dict[str, object]:
        job = super().as_job()
        for side, client in (("source_options", self.reader), ("sink_options", self.client)):
            settings = {f"kafka.{name}": value for name, value in (client or self.client).items()}
            job[side] = {**job[side], **settings}  # type: ignore[dict-item]
        return job
