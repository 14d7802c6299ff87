#!/usr/bin/env bash
# Builds images that stand in for the official ones where no image registry can be reached, from
# Debian's packages, Maven Central and PyPI.
#
#   docker/engine.sh docker/build-local.sh [NAME...]     kafka hazelcast registry postgres spark job
#
# They have the official names behind a prefix, EO_KAFKA_REGISTRY, by which compose.yaml takes them:
# localhost/eo-kafka/apache/kafka:4.3.1. KAFKA_VERSIONS ("4.0.0 4.4.0") are the Kafkas to build.
# What has been built is taken from the engine's cache. Exits with 69 where Debian's packages cannot be
# had.
set -euo pipefail
cd "$(dirname "$0")/.."

PREFIX=${EO_KAFKA_REGISTRY:-localhost/eo-kafka/}
PYTHON=${PYTHON:-$PWD/.venv/bin/python}
KAFKA_VERSIONS=${KAFKA_VERSIONS:-$("$PYTHON" -c 'from eo_kafka.broker.jars import *; print(DEFAULT_VERSION)')}
SUITE=bookworm
# the wheels of the job's image are for this Python
DEBIAN=(openjdk-17-jre-headless python3 faketime procps)
POSTGRES=(postgresql-15)

work=$(mktemp --directory)
trap 'rm -rf "$work"' EXIT

# jars FUNCTION [VERSION]: the folder with a server's jars, fetched from Maven Central if need be
jars() {
  "$PYTHON" - "$@" <<'PYTHON'
import sys

from eo_kafka.broker import jars, registry

name, *version = sys.argv[1:]
print(jars.fetched(registry._BUNDLE) if name == "registry" else getattr(jars, name)(*version))
PYTHON
}

# debian NAME PACKAGE...: a root file system of Debian, without what only people read
debian() {
  local name=$1 packages=${*:2}
  local label="eo-kafka.packages=$SUITE $packages"
  [ -n "$(docker image ls --quiet --filter "label=$label" "$PREFIX$name")" ] && return
  mmdebstrap --quiet --variant=minbase --include="${packages// /,}" \
    --customize-hook='cd "$1" && rm -rf usr/share/man/* usr/share/doc/* usr/share/locale/* var/lib/apt/lists/* var/cache/* var/log/*' \
    $SUITE "$work/$name.tar" || { echo "Debian's packages cannot be had here." >&2; exit 69; }
  docker import --change "LABEL $(sed 's/=\(.*\)/="\1"/' <<<"$label")" "$work/$name.tar" "$PREFIX$name" >/dev/null
  rm "$work/$name.tar"
}

# image FOLDER NAME [OPTION...]: what $work/FOLDER and docker/local/FOLDER hold together
image() {
  local folder=$1 name=$2
  cp -r "docker/local/$folder/." "$work/$folder"
  build "$work/$folder" "$name" --build-arg "BASE=${PREFIX}debian" "${@:3}"
}

# build FOLDER NAME [OPTION...]. The builder that every engine has: BuildKit would ask a registry for
# the base image.
build() {
  DOCKER_BUILDKIT=0 docker build --quiet --network none "${@:3}" --tag "$PREFIX$2" "$1" \
    >"$work/output" 2>&1 || { cat "$work/output" >&2; return 1; }
}

build_kafka() {
  debian debian "${DEBIAN[@]}"
  local version
  for version in $KAFKA_VERSIONS; do
    rm -rf "$work/kafka"
    mkdir -p "$work/kafka"
    cp -r "$(jars kafka_jars "$version")" "$work/kafka/libs"
    image kafka "apache/kafka:$version"
  done
}

build_hazelcast() {
  debian debian "${DEBIAN[@]}"
  local folder
  folder=$(jars hazelcast_jars)
  mkdir -p "$work/hazelcast"
  cp -r "$folder" "$work/hazelcast/lib"
  image hazelcast "hazelcast/hazelcast:${folder##*-}"
}

build_registry() {
  debian debian "${DEBIAN[@]}"
  local folder version
  folder=$(jars registry)
  version=$(basename "$folder" | sed 's/^apicurio-//; s/-unpacked$//')
  mkdir -p "$work/registry"
  cp -r "$folder" "$work/registry/app"
  image registry "apicurio/apicurio-registry-mem:$version"
}

build_postgres() {
  debian debian-postgres "${POSTGRES[@]}"
  mkdir -p "$work/postgres"
  image postgres postgres:15 --build-arg "BASE=${PREFIX}debian-postgres"
}

# pip's PySpark has all of Spark but the Kubernetes scripts
build_spark() {
  debian debian "${DEBIAN[@]}"
  local site
  site=$("$PYTHON" -c 'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parents[1])')
  mkdir -p "$work/spark"
  cp -rl "$site/pyspark" "$work/spark/" 2>/dev/null || cp -r "$site/pyspark" "$work/spark/"
  find "$work/spark" -name __pycache__ -prune -exec rm -rf {} +
  image spark "apache/spark:$(spark_version)-python3"
}

spark_version() { "$PYTHON" -c 'import pyspark; print(pyspark.__version__)'; }

build_job() {
  build_spark
  PYTHON=$PYTHON docker/job/context.sh "$work/job"
  build "$work/job" eo-kafka-job:latest ${NO_CACHE:+--no-cache} --build-arg "BASE=${PREFIX}apache/spark:$(spark_version)-python3"
}

for name in "${@:-kafka hazelcast registry postgres job}"; do
  for one in $name; do
    begin=$SECONDS
    "build_$one"
    echo "$one: $((SECONDS - begin)) s"
  done
done
docker image ls --format '{{.Size}}\t{{.Repository}}:{{.Tag}}' --filter "reference=$PREFIX*" --filter "reference=$PREFIX*/*"
