#!/usr/bin/env bash
# Runs a command with a Docker engine: the one that answers, else one of its own, which ends with the
# command.
#
#   docker/engine.sh COMMAND...    with DOCKER_HOST set for it
#   docker/engine.sh               prints the engine's address, and holds it until its input ends
#   docker/engine.sh --check       says why this machine can run none, if so
#   docker/engine.sh --install     Debian's packages that an engine and the images need (as root)
#
# An engine of our own needs root and Debian's docker.io. It touches nothing of the machine's network:
# no firewall rule, no forwarding. So containers reach each other and nothing else, and the machine
# reaches them through ports that are published on the loopback address. Images stay in
# ${EO_KAFKA_ENGINE:-~/.cache/eo-kafka/engine}, which one engine at a time may use.
set -euo pipefail

FOLDER=${EO_KAFKA_ENGINE:-${XDG_CACHE_HOME:-$HOME/.cache}/eo-kafka/engine}
PACKAGES=(docker.io docker-compose mmdebstrap)
START_SECONDS=60

fail() { echo "No Docker engine: $*" >&2; exit 69; }

install_packages() {
  dpkg --status "${PACKAGES[@]}" >/dev/null 2>&1 && return
  [ "$(id -u)" = 0 ] || fail "installing ${PACKAGES[*]} needs root"
  command -v apt-get >/dev/null || fail "this system has no apt-get to install ${PACKAGES[*]} with"
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
    apt-get install -qq --no-install-recommends "${PACKAGES[@]}"; } >/dev/null 2>&1 ||
    fail "apt-get could not install ${PACKAGES[*]}"
}

check() {
  [ "$(id -u)" = 0 ] || fail "none answers, and starting one needs root"
  for program in dockerd docker mmdebstrap; do
    command -v $program >/dev/null || fail "none answers, and there is no $program: docker/engine.sh --install"
  done
  mkdir -p "$FOLDER"
  local try
  try=$(mktemp --directory "$FOLDER/try.XXXXXX")
  mkdir "$try"/{lower,upper,work,merged}
  if mount -t overlay -o "lowerdir=$try/lower,upperdir=$try/upper,workdir=$try/work" none "$try/merged" 2>/dev/null; then
    umount "$try/merged"
    rm -rf "$try"
  else
    rm -rf "$try"
    fail "the kernel mounts no overlay file system in $FOLDER (name another folder in EO_KAFKA_ENGINE)"
  fi
}

start() {
  check
  exec 8>"$FOLDER.lock"
  flock --nonblock 8 || fail "another one uses $FOLDER"
  run=$(mktemp --directory /tmp/eo-engine.XXXXXX) # short: the path of a socket has 108 bytes at most
  trap stop EXIT
  # a session of its own: Ctrl-C is for the command. It must not inherit the lock, nor our input.
  setsid dockerd --data-root "$FOLDER" --exec-root "$run/exec" --pidfile "$run/pid" \
    --host "unix://$run/socket" --storage-driver overlay2 \
    --bridge none --iptables=false --ip-masq=false --ip-forward=false \
    >"$run/log" 2>&1 </dev/null 8>&- &
  engine=$!
  export DOCKER_HOST=unix://$run/socket
  for ((tenths = START_SECONDS * 10; tenths > 0; tenths--)); do
    docker version >/dev/null 2>&1 && return
    kill -0 "$engine" 2>/dev/null || break
    sleep 0.1
  done
  fail "dockerd did not start. It said: $(grep -iE 'level=(error|fatal)|failed' "$run/log" | tail -n 1)"
}

# The containers first: what the engine leaves behind would keep running, and keep its mounts.
stop() {
  trap - EXIT INT TERM
  running=$(timeout 30 docker ps --quiet 2>/dev/null) || running=
  # shellcheck disable=SC2086 # a list
  [ -z "$running" ] || timeout 60 docker kill $running >/dev/null 2>&1 || true
  timeout 60 docker system prune --force --volumes >/dev/null 2>&1 || true # containers, networks
  kill "$engine" 2>/dev/null || true
  wait "$engine" 2>/dev/null || true
  umount "$run"/exec/netns/* 2>/dev/null || true
  rm -rf "$run"
}

if [ "${1-}" = --install ]; then
  install_packages
  exit
fi
answers() { docker version >/dev/null 2>&1; }
if [ "${1-}" = --check ]; then
  answers || check
  exit
fi
answers || start
export DOCKER_HOST=${DOCKER_HOST:-unix:///var/run/docker.sock}
if [ $# = 0 ]; then
  echo "$DOCKER_HOST"
  trap 'exit 0' INT TERM
  cat >/dev/null
else
  "$@"
fi
