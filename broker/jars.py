"""Fetches the jars of local servers from Maven Central, verifies and caches them.

Ivy's own jar comes with PySpark, so nothing has to be installed for it. Ivy compares every
download with the SHA-1 the repository publishes (the strongest the two share: Ivy would look for
`.sha-256` where Maven Central has `.sha256`; a repository without any checksum is believed), and
comes to Maven Central by TLS. What it fetched is then recorded in a `SHA256SUMS` file, and read
and compared in full on every use: 44 MB take less than 0.15 s, so no weaker test (size, mtime)
stands in for it. That finds damage, not an attacker: whoever may write to the cache folder may also
rewrite the list. A folder that does not match is fetched again.

    <cache>/eo-kafka/kafka-4.3.1/         complete or absent: filled elsewhere, then renamed
    <cache>/eo-kafka/kafka-4.3.1.lock     held by the one process that fetches
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from string import Template
from xml.sax.saxutils import escape

from ..core.process.user_cache import user_cache
from ..core.progress import bar
from .errors import BrokerError
from .java import find_java

DEFAULT_VERSION = "4.3.1"
HAZELCAST_VERSION = "5.7.0"
MAVEN_CENTRAL = "Maven Central"  # where Ivy looks when no address is given
REPOSITORY_VARIABLE = "EO_KAFKA_MAVEN_REPOSITORY"
MANIFEST = "SHA256SUMS"
LOOK_EVERY_S = 0.2

# Sources and javadoc would be looked for with two more requests a module. Nothing of the user's
# own Ivy or Maven settings is read: every machine gets the same jars.
_SETTINGS = """\
<ivysettings>
  <property name="ivy.maven.lookup.sources" value="false"/>
  <property name="ivy.maven.lookup.javadoc" value="false"/>
  <settings defaultResolver="repository"/>
  <caches defaultCacheDir="${ivy_cache}"/>
  <timeout-constraints>
    <timeout-constraint name="bounded" connectionTimeout="15000" readTimeout="60000"/>
  </timeout-constraints>
  <resolvers>
    <ibiblio name="repository" ${root} m2compatible="true" useMavenMetadata="false"
             checksums="sha1" timeoutConstraint="bounded"/>
  </resolvers>
</ivysettings>
"""
_MODULES = """\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="eo-kafka" module="broker"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    ${dependencies}
  </dependencies>
</ivy-module>
"""


@dataclass(frozen=True)
class Bundle:
    """Jars that are fetched together: `dependencies` in Ivy's words, `main` one that must come. If
    that is an archive, it is unpacked."""

    title: str
    folder: str
    main: str
    dependencies: str
    is_archive: bool = False
    size: int = 0  # bytes of what comes; 0: not known

    @classmethod
    def of_one_jar(
        cls, title: str, folder: str, organisation: str, name: str, version: str, size: int = 0
    ) -> Bundle:
        """One that needs no other."""
        wanted = f'org="{organisation}" name="{name}" rev="{version}"'
        dependency = f'<dependency {wanted} conf="default" transitive="false"/>'
        return cls(title, folder, f"{name}-{version}.jar", dependency, size=size)


def _kafka(version: str) -> Bundle:
    # Kafka's POM leaves the choice of a logger to the distribution; slf4j-simple is one jar, writes
    # to stderr and is the same for Kafka 3.9 (log4j 1) and 4.x (log4j 2).
    return Bundle(
        title=f"Kafka {version}",
        folder=f"kafka-{version}",
        main=f"kafka_2.13-{version}.jar",
        dependencies=f"""
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{version}" conf="default"/>
    <dependency org="org.slf4j" name="slf4j-simple" rev="1.7.36" conf="default"/>""",
        size=45_025_660 if version == DEFAULT_VERSION else 0,
    )


# Spark's own connector, to be measured and shown beside ours. Maven Central has its 4.2.0 without
# the token provider it names; no token is asked for, so an older one serves. What Spark itself
# has (Scala, Hadoop, ...) stays out.
_JVM_CONNECTOR = Bundle(
    title="Spark's Kafka connector 4.2.0",
    folder="spark-sql-kafka-4.2.0",
    main="spark-sql-kafka-0-10_2.13-4.2.0.jar",
    dependencies="""
    <dependency org="org.apache.spark" name="spark-sql-kafka-0-10_2.13" rev="4.2.0"
                conf="default" transitive="false"/>
    <dependency org="org.apache.spark" name="spark-token-provider-kafka-0-10_2.13" rev="4.0.0"
                conf="default" transitive="false"/>
    <dependency org="org.apache.kafka" name="kafka-clients" rev="3.9.1"
                conf="default" transitive="false"/>
    <dependency org="org.apache.commons" name="commons-pool2" rev="2.12.0"
                conf="default" transitive="false"/>""",
    size=9_925_096,
)


def _hazelcast(version: str) -> Bundle:
    title, folder = f"Hazelcast {version}", f"hazelcast-{version}"
    size = 21_384_275 if version == HAZELCAST_VERSION else 0
    return Bundle.of_one_jar(title, folder, "com.hazelcast", "hazelcast", version, size)


def hazelcast_jars(version: str = HAZELCAST_VERSION) -> Path:
    """The folder with the jar of Hazelcast's member of this version. See `kafka_jars`."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise BrokerError(f"'{version}' is not a Hazelcast version such as {HAZELCAST_VERSION}.")
    return fetched(_hazelcast(version))


def kafka_jars(version: str = DEFAULT_VERSION) -> Path:
    """The folder with the jars of Kafka's server of this version, fetched if need be.

    Safe when several processes ask at once: one fetches, the others wait for it. A cached answer
    starts no Java and contacts nobody. Raises BrokerError without network, Java or PySpark's jars,
    and when a download does not match its checksum.
    """
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise BrokerError(f"'{version}' is not a Kafka version such as {DEFAULT_VERSION}.")
    return fetched(_kafka(version))


def jvm_connector_jars() -> str:
    """A value for `spark.jars`: Spark's own Kafka connector. See `kafka_jars`."""
    return ",".join(str(jar) for jar in sorted(fetched(_JVM_CONNECTOR).glob("*.jar")))


def fetched(bundle: Bundle) -> Path:
    """The folder with the bundle's jars. See `kafka_jars`."""
    try:
        folder = user_cache() / bundle.folder
        if _intact(folder):
            return folder
        with _locked(folder.with_name(f"{folder.name}.lock")):
            if not _intact(folder):  # another process may have fetched it meanwhile
                _fetch(bundle, folder)
    except OSError as error:
        raise BrokerError(
            f"{bundle.title} cannot be kept in this user's cache folder ({error}). Set "
            "XDG_CACHE_HOME to a folder of its own that it can write."
        ) from None
    return folder


def _intact(folder: Path) -> bool:
    """Whether the folder holds exactly what was recorded when it was fetched."""
    try:
        recorded = (folder / MANIFEST).read_text()
        return recorded != "" and recorded == _manifest_of(folder)
    except OSError:
        return False


def _manifest_of(folder: Path) -> str:
    """One line a file, as `sha256sum` writes and checks them."""
    return "".join(
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.relative_to(folder)}\n"
        for file in sorted(folder.rglob("*"))
        if file.name != MANIFEST and file.is_file()
    )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:  # the kernel lets go of it when the process dies
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(bundle: Bundle, folder: Path) -> None:
    repository = os.environ.get(REPOSITORY_VARIABLE) or MAVEN_CENTRAL
    _tell(f"resolving {bundle.title} from {_without_password(repository)} (once) ... ")
    if sys.stderr.isatty():
        _tell("\n")  # for the bar; in a log it stays one line
    begin = time.monotonic()
    # In the cache's own file system, so that the last step is one rename.
    with tempfile.TemporaryDirectory(prefix="fetching-", dir=folder.parent) as name:
        work = Path(name)
        jars = work / "jars"
        try:
            _run_ivy(bundle, repository, work, jars)
        except BrokerError:
            _tell("failed\n")
            raise
        if bundle.is_archive:
            _unpack(jars / bundle.main)
        manifest = _manifest_of(jars)
        (jars / MANIFEST).write_text(manifest)
        if folder.exists():
            folder.rename(work / "damaged")
        jars.rename(folder)
    _tell(f"{len(manifest.splitlines())} jars, {time.monotonic() - begin:.0f} s\n")


def _run_ivy(bundle: Bundle, repository: str, work: Path, jars: Path) -> None:
    """Fill the folder `jars`. Ivy keeps its cache in `work`: nothing stale, nothing shared."""
    settings, modules = work / "ivysettings.xml", work / "ivy.xml"
    settings.write_text(
        Template(_SETTINGS).substitute(
            ivy_cache=_quoted(work / "cache"),
            root="" if repository == MAVEN_CENTRAL else f'root="{_quoted(repository)}"',
        )
    )
    modules.write_text(Template(_MODULES).substitute(dependencies=bundle.dependencies))
    command = [
        *(str(find_java()), "-XX:TieredStopAtLevel=1", "-jar", str(_ivy_jar())),
        *("-warn", "-settings", str(settings), "-ivy", str(modules)),
        *("-types", "jar", "bundle"),
        *("-retrieve", f"{jars}/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    with bar(f"fetching {bundle.title}", shown=sys.stderr.isatty()) as told:
        code, said = _watched(command, lambda: told(_fetched(work / "cache"), bundle.size))
    if code != 0 or not (jars / bundle.main).exists():
        raise BrokerError(_without_password(_reason(said, bundle.title, repository)))


def _watched(command: list[str], look: Callable[[], object]) -> tuple[int, str]:
    """The exit code, and what was said. `look` is called now and then, and at the end."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            said = None
            while said is None:
                with suppress(subprocess.TimeoutExpired):
                    said, _ = process.communicate(timeout=LOOK_EVERY_S)
                look()
        except BaseException:  # as subprocess.run does
            process.kill()
            raise
    return process.returncode, said


def _fetched(cache: Path) -> int:
    """Bytes of jars and archives so far. Ivy writes a file as NAME.part, and renames it."""
    total = 0
    for file in cache.glob("*/*/*s/*"):  # ORGANISATION/MODULE/jars/..., beside what describes them
        with suppress(FileNotFoundError):
            total += file.stat().st_size
    return total


def _unpack(archive: Path) -> None:
    """Put the contents in its place. They were compared with the published checksum."""
    with tarfile.open(archive) as packed:
        unpack(packed, archive.parent)
    archive.unlink()


def unpack(packed: tarfile.TarFile, folder: Path) -> None:
    """All of an archive that was compared with its checksum, and nothing outside of the folder
    where Python looks after that: since 3.10.12 and 3.11.4. Debian 12 has 3.11.2."""
    if hasattr(tarfile, "data_filter"):
        packed.extractall(folder, filter="data")
    else:
        packed.extractall(folder)  # noqa: S202 - see above


def _quoted(value: object) -> str:
    return escape(str(value), {'"': "&quot;"})


def _without_password(text: str) -> str:
    """A mirror's URL may carry one: https://user:password@host/."""
    return re.sub(r"//[^/@\s]*@", "//", text)


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    for home in (spec.submodule_search_locations or ()) if spec else ():
        for jar in sorted(Path(home, "jars").glob("ivy-*.jar")):
            return jar
    raise BrokerError(
        "Apache Ivy, which fetches Kafka, was not found in PySpark's folder 'jars'. Install the "
        "full package: pip install pyspark (pyspark-client has no jars)."
    )


def _reason(output: str, title: str, repository: str) -> str:
    """One sentence out of Ivy's pages."""
    lines = [line.strip(" \t:!") for line in output.splitlines() if line.strip(" \t:!")]
    wrong = next((line for line in lines if re.search(r"invalid (sha|md5)", line, re.I)), None)
    start = f"{title} could not be fetched from {repository}: "
    if wrong is not None:
        return (
            f"{start}a download does not match its published checksum ({wrong}). Nothing of it "
            f"was kept. Try again; if it stays, the repository or a proxy on the way alters files."
        )
    unreachable = re.compile(r"host .* not found|connection|timed? ?out|unreachable|SSL", re.I)
    why = next((line for line in lines if unreachable.search(line)), None)
    if why is not None:
        return (
            f"{start}it cannot be reached ({why}). Check the network; behind a proxy set "
            f"JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT', or name a mirror "
            f"in {REPOSITORY_VARIABLE}."
        )
    said = "; ".join(lines[-6:]) or "nothing"
    return f"{start}it does not have this version or a part of it (Ivy said: {said})."


def _tell(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
