#!/usr/bin/env bash
# Fills a folder with what the Dockerfile beside it needs: the wheel of this checkout, and the wheels
# of requirements.txt for Debian's Python 3.11 or the one that is named.
#
#   docker/job/context.sh FOLDER          PYTHON_VERSION=3.10 for another base image
set -euo pipefail
cd "$(dirname "$0")/../.."
PYTHON=${PYTHON:-$PWD/.venv/bin/python}
mkdir -p "$1/wheels"
cp docker/job/Dockerfile "$1"
"$PYTHON" -m pip download --quiet --dest "$1/wheels" --no-deps --only-binary :all: \
  --python-version "${PYTHON_VERSION:-3.11}" --platform manylinux_2_28_x86_64 \
  --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 --platform any \
  --requirement docker/job/requirements.txt
# From a copy: setuptools would leave folders in the checkout, and put old ones into the wheel
source=$(mktemp --directory)
trap 'rm -rf "$source"' EXIT
git ls-files --cached --others --exclude-standard -z | xargs -0 cp --parents --target-directory "$source"
SOURCE_DATE_EPOCH=315532800 "$PYTHON" -m pip wheel --quiet --no-deps --no-build-isolation \
  --wheel-dir "$1/wheels" "$source"
