# shellcheck shell=bash disable=SC2016,SC2034,SC2154
# PostgreSQL for the tests: TLS on, superuser haulier with the password haulier,
# database haulier. Sourced by tests/services, which says what each function is.

PORTS[postgres]="POSTGRES_PORT"
STOP_SIGNAL[postgres]=INT # a fast shutdown
MARK_OPTION[postgres]=--haulier.service=

# The folder of the server's programs: on Debian they are not in PATH.
pg_bin() {
  local dir dirs=()
  mapfile -t dirs < <(printf '%s\n' /usr/lib/postgresql/*/bin | sort -rV)
  for dir in "$(dirname "$(readlink -f "$(command -v initdb || echo /-/-)")")" "${dirs[@]}"; do
    [[ -x $dir/initdb && -x $dir/postgres && -x $dir/psql ]] && echo "$dir" && return
  done
  return 1
}

# The server refuses to run as root, so root runs it as Debian's postgres user.
as_postgres=()
((EUID != 0)) || as_postgres=(setpriv --reuid=postgres --regid=postgres --init-groups --)

# Passes the file's content: that user may not see the checkout.
give_postgres() { "${as_postgres[@]}" sh -c 'umask 077 && cat >>"$1"' - "$2" <"$1"; }

postgres_packages() { pg_bin >/dev/null || echo postgresql; }

postgres_fetch() { :; }

postgres_prepare() {
  local bin data=$base/postgres/data log=$base/postgres-initdb.log
  bin=$(pg_bin)
  ((EUID != 0)) || id postgres >/dev/null 2>&1 ||
    fail postgres "root needs a system user 'postgres' to run it as: useradd --system postgres"
  mkdir "$base/postgres"
  ((EUID != 0)) || chown postgres: "$base/postgres"
  "${as_postgres[@]}" "$bin/initdb" -D "$data" -U haulier -E UTF8 --no-locale --no-sync \
    --auth=trust >"$log" 2>&1 ||
    fail postgres "initdb could not make $data" "$log"
  printf '%s\n' "alter role haulier password 'haulier'" 'create database haulier' |
    "${as_postgres[@]}" "$bin/postgres" --single -D "$data" postgres >>"$log" 2>&1
  "${as_postgres[@]}" rm "$data/pg_hba.conf"
  give_postgres "$conf/postgres/pg_hba.conf" "$data/pg_hba.conf"
  give_postgres "$conf/postgres/postgresql.conf" "$data/postgresql.conf"
  give_postgres "$base/tls/server.crt" "$data/server.crt"
  give_postgres "$base/tls/server.key" "$data/server.key"
}

# The pid file is of no use here (see `mark`), and of harm after a crash or a
# reboot, when its number may be another process's.
postgres_start() {
  "${as_postgres[@]}" rm -f "$base/postgres/data/postmaster.pid"
  detach postgres "${as_postgres[@]}" "$(pg_bin)/postgres" \
    -D "$base/postgres/data" -p "$POSTGRES_PORT" "$(mark postgres)"
}

postgres_ready() {
  PGPASSWORD=haulier PGCONNECT_TIMEOUT=2 PGSSLMODE=verify-full PGSSLROOTCERT=$base/tls/ca.pem \
    timeout 5 "$(pg_bin)/psql" -h 127.0.0.1 -p "$POSTGRES_PORT" -U haulier -d haulier \
    -XAtqc 'select 1' >/dev/null 2>&1 </dev/null
}

postgres_env() {
  export_line HAULIER_TEST_POSTGRES_URL "postgres://haulier:haulier@127.0.0.1:$POSTGRES_PORT/haulier"
  export_line HAULIER_TEST_POSTGRES_CA "$base/tls/ca.pem"
}
