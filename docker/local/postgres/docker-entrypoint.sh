#!/bin/bash
# Makes the database at the first start, then runs the command.
set -eu
user=${POSTGRES_USER:-postgres}
if [ "$1" = postgres ] && [ ! -s "$PGDATA/PG_VERSION" ]; then
  : "${POSTGRES_PASSWORD:?PostgreSQL needs a password: set POSTGRES_PASSWORD}"
  initdb --username="$user" --pwfile=<(echo "$POSTGRES_PASSWORD") --auth-local=trust \
    --auth-host=scram-sha-256 --encoding=UTF8 --locale=C.UTF-8
  echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
  echo "listen_addresses = '*'" >>"$PGDATA/postgresql.conf"
  if [ -n "${POSTGRES_DB-}" ] && [ "$POSTGRES_DB" != postgres ]; then
    pg_ctl --wait --options="-c listen_addresses=''" start
    createdb --username="$user" "$POSTGRES_DB"
    pg_ctl --wait stop
  fi
fi
exec "$@"
