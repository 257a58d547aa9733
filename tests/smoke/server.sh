# shellcheck shell=bash
# Starts and stops the server for scripts; to be sourced. Nothing is left behind: everything lies in one
# temporary folder, and the server goes when the script does.
#
#   PINTLE   the binary (target/debug/pintle, built when missing)
#
# Gives: $scratch (the temporary folder), start_server [flags], stop_server, $kubeconfig, $server (the URL).

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
scratch=$(mktemp -d "${TMPDIR:-/tmp}/pintle-test.XXXXXX")
kubeconfig=$scratch/kubeconfig
server_log=$scratch/server.log
server_pid=
server=

say() { printf '%s\n' "$*"; }
die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

stop_server() {
  [ -n "$server_pid" ] || return 0
  kill -TERM "$server_pid" 2>/dev/null || true
  # a server that does not stop when told is a failure of its own, and must not outlive the script
  local waited=0
  while kill -0 "$server_pid" 2>/dev/null; do
    if [ $((waited += 1)) -gt 300 ]; then
      kill -KILL "$server_pid" 2>/dev/null || true
      server_pid=
      say "error: the server did not stop within 30 s of SIGTERM" >&2
      return 1
    fi
    sleep 0.1
  done
  local status=0
  wait "$server_pid" 2>/dev/null || status=$?
  server_pid=
  [ "$status" -eq 0 ] || say "error: the server ended with status $status" >&2
  return "$status"
}

leave() {
  local status=$?
  trap - EXIT
  # whatever goes wrong from here on, the rest is cleared away all the same
  set +e
  trap '' PIPE
  local pid
  # the server, and a client that may still be watching it
  for pid in $(jobs -p); do
    kill -TERM "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  if [ "$status" -ne 0 ] && [ -s "$server_log" ]; then
    say "--- the server's last words:" >&2
    tail -n 20 "$server_log" >&2
  fi
  rm -rf "$scratch"
  exit "$status"
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

find_binary() {
  binary=${PINTLE:-}
  if [ -z "$binary" ]; then
    (cd "$repository" && cargo build --quiet -p pintle) || die "the server does not build"
    binary=${CARGO_TARGET_DIR:-$repository/target}/debug/pintle
  fi
  [ -x "$binary" ] || die "there is no program at $binary"
}

# Starts the server on a free port with the given flags and waits until it says that it is ready.
start_server() {
  [ -n "${binary:-}" ] || find_binary
  rm -f "$kubeconfig"
  : >"$server_log"
  "$binary" up --secure-port 0 --components apiserver --write-kubeconfig "$kubeconfig" "$@" \
    >"$server_log" 2>&1 &
  server_pid=$!
  local waited=0
  until grep -q ' is ready on ' "$server_log"; do
    if ! kill -0 "$server_pid" 2>/dev/null; then
      server_pid=
      die "the server did not start"
    fi
    [ $((waited += 1)) -le 600 ] || die "the server was not ready within 30 s"
    sleep 0.05
  done
  server=$(sed -n 's/.* is ready on \([^ ]*\).*/\1/p' "$server_log")
}

# Writes the kubeconfig's credentials as files: $scratch/ca.crt, client.crt and client.key.
extract_credentials() {
  local pair
  for pair in certificate-authority-data:ca.crt client-certificate-data:client.crt client-key-data:client.key; do
    sed -n "s/^ *${pair%%:*}: *//p" "$kubeconfig" | head -n 1 | base64 -d >"$scratch/${pair#*:}"
    [ -s "$scratch/${pair#*:}" ] || die "the kubeconfig has no ${pair%%:*}"
  done
}
