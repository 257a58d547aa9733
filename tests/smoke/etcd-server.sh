#!/usr/bin/env bash
# Drives `pintle etcd` through a link named etcd: its pages, its version, a kill and a restart, an API server on it with
# kubectl; with etcdctl where there is one (keys, transactions, leases, watches, compaction, a snapshot), and beside a
# real etcd where there is one (the same hash after the same requests, a snapshot restored there).
#
#   tests/smoke/etcd-server.sh [KUBECTL]
#
#   PINTLE      the binary to test (built when not given)
#   ETCDCTL     the client (etcdctl in PATH)
#   PEER_ETCD   a real etcd to compare with (etcd in PATH)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# shellcheck source=tests/smoke/server.sh
. "$here/server.sh"

find_binary
port=${SMOKE_ETCD_SERVER_PORT:-17479}
client=http://127.0.0.1:$port
etcd_pid=
data=$scratch/data

assets=$("$binary" assets "$scratch/assets")
[ "$(readlink "$assets/etcd")" = "$(readlink -f "$binary")" ] || die "pintle assets made no link to $binary"
"$assets/etcd" --version | grep -q '^etcd Version: 3\.5\.' || die "etcd --version does not look like etcd's"

# fetch PATH: a page of the server, by bash alone.
fetch() {
  exec 5<>"/dev/tcp/127.0.0.1/$port" || return 1
  printf 'GET %s HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\n\r\n' "$1" >&5
  cat <&5
  exec 5>&-
}

start_etcd() {
  "$assets/etcd" --data-dir "$data" --listen-client-urls "$client" --advertise-client-urls "$client" \
    --listen-peer-urls http://localhost:0 "$@" >"$scratch/etcd.log" 2>&1 &
  etcd_pid=$!
  local waited=0
  until (fetch /health) 2>/dev/null | grep -q '"health":"true"'; do
    kill -0 "$etcd_pid" 2>/dev/null || { cat "$scratch/etcd.log" >&2 && die "the etcd did not start"; }
    [ $((waited += 1)) -le 300 ] || die "the etcd was not healthy within 30 s"
    sleep 0.1
  done
}

stop_etcd() {
  kill -"${1:-TERM}" "$etcd_pid"
  local status=0
  wait "$etcd_pid" 2>/dev/null || status=$?
  [ "${1:-TERM}" = KILL ] || [ "$status" -eq 0 ] || die "the etcd ended with status $status"
}

# expect WANTED ACTUAL WHAT
expect() { [ "$1" = "$2" ] || die "$3: expected '$1', not '$2'"; }

say "== pages and flags"
start_etcd
fetch /version | grep -q '"etcdserver":"3\.5\.' || die "/version does not look like etcd's"
fetch /metrics | grep -q '^etcd_debugging_mvcc_current_revision 1$' || die "/metrics lacks the revision"
"$assets/etcd" --data-dir "$data" --listen-client-urls http://127.0.0.1:0 >"$scratch/second.log" 2>&1 &&
  die "two servers share a data directory"
grep -q 'in use' "$scratch/second.log" || die "a second server does not say why it ends"
"$assets/etcd" --discovery http://x 2>"$scratch/refused.log" && die "--discovery is accepted"
grep -q 'only member' "$scratch/refused.log" || die "--discovery is refused without a reason"

etcdctl=$(command -v "${ETCDCTL:-etcdctl}" || true)
e() { ETCDCTL_API=3 "$etcdctl" --endpoints "$client" "$@"; }

# The same requests for this server and for a real one. The results are compared.
requests() {
  e put a 1 && e put b 2 && e put b 3 && e del a && e get '' --prefix -w json --keys-only | sed 's/"header":{[^}]*}//'
  e put p/1 x && e put p/2 y && e del p/ --prefix --prev-kv && e get b --rev 3 --print-value-only
  printf 'mod("b") = "4"\n\nput c 5\nget b\n\nput d 6\n\n' | e txn | tail -n 4
  printf 'value("b") = "9"\n\nput c 7\n\nput d 8\nget c\n\n' | e txn
  e get a b --limit 1 --sort-by=MODIFY --order=DESCEND
  e compact 6 && ! e get b --rev 4 2>&1 | grep -o 'etcdserver: .*' | sed 's/"}.*//'
  e watch --rev 2 p 2>&1 | head -n 1 | grep -o 'etcdserver: .*'
  timeout 10 "$etcdctl" --endpoints "$client" watch --rev 7 --prefix '' 2>/dev/null | head -n 6
  e endpoint hashkv -w json | grep -o '"hash":[0-9]*'
}

if [ -z "$etcdctl" ]; then
  say "LEFT OUT: etcdctl is not there (ETCDCTL names it)"
else
  say "== $("$etcdctl" version | head -n 1)"
  export ETCDCTL_API=3
  requests >"$scratch/ours" 2>&1 || { cat "$scratch/ours" >&2 && die "requests of etcdctl failed"; }
  lease=$(e lease grant 2 | sed 's/^lease \([^ ]*\) .*/\1/')
  e put --lease="$lease" l 1 >/dev/null
  waited=0
  while [ -n "$(e get l)" ]; do
    [ $((waited += 1)) -le 100 ] || die "a lease did not end"
    sleep 0.2
  done
  e endpoint health 2>&1 | grep -q 'is healthy' || die "the endpoint is not healthy"
  e endpoint status -w json | grep -q '"version":"3\.5\.' || die "the status lacks a version"
  e member list | grep -q "$client" || die "the member list lacks the server"
  e defrag >/dev/null
  e snapshot save "$scratch/snapshot" >/dev/null 2>&1
  e snapshot status "$scratch/snapshot" 2>/dev/null >/dev/null || die "the snapshot is not one of etcd"
  revision=$(e get b -w json | sed 's/.*"revision":\([0-9]*\).*/\1/')
  say "== a kill, and a restart"
  stop_etcd KILL
  start_etcd --unsafe-no-fsync
  expect "$revision" "$(e get b -w json | sed 's/.*"revision":\([0-9]*\).*/\1/')" "the revision after a kill"

  real=$(command -v "${PEER_ETCD:-etcd}" || true)
  if [ -z "$real" ]; then
    say "LEFT OUT: a real etcd to compare with is not there (PEER_ETCD names it)"
  else
    say "== beside $("$real" --version | head -n 1)"
    ours=$client client=http://127.0.0.1:$((port + 2))
    start_real() {
      "$real" --data-dir "$1" --listen-client-urls "$client" --advertise-client-urls "$client" \
        --listen-peer-urls "http://127.0.0.1:$((port + 3))" "${@:2}" >"$scratch/real.log" 2>&1 &
      real_pid=$!
      local waited=0
      until e endpoint health >/dev/null 2>&1; do
        [ $((waited += 1)) -le 100 ] || { tail "$scratch/real.log" >&2 && die "the real etcd is not healthy"; }
        sleep 0.2
      done
    }
    stop_real() { kill "$real_pid" && { wait "$real_pid" || true; } 2>/dev/null; }
    start_real "$scratch/real"
    requests >"$scratch/theirs" 2>&1 || true
    diff "$scratch/theirs" "$scratch/ours" >&2 || die "the answers differ from those of a real etcd"
    stop_real
    peer=http://127.0.0.1:$((port + 3))
    e snapshot restore "$scratch/snapshot" --data-dir "$scratch/restored" --name default \
      --initial-cluster "default=$peer" --initial-advertise-peer-urls "$peer" >/dev/null 2>&1 ||
      die "a real etcd does not restore the snapshot"
    start_real "$scratch/restored" --initial-cluster "default=$peer" --initial-advertise-peer-urls "$peer"
    expect 3 "$(e get b --print-value-only)" "a key in the restored snapshot"
    stop_real
    client=$ours
  fi
fi

say "== an API server on it"
kubectl=${1:-kubectl}
if ! command -v "$kubectl" >/dev/null; then
  say "LEFT OUT: there is no kubectl"
else
  start_server --ephemeral --etcd-servers "$client"
  "$kubectl" --kubeconfig "$kubeconfig" create configmap one --from-literal a=1 >/dev/null
  stop_etcd KILL
  start_etcd
  waited=0
  until [ "$("$kubectl" --kubeconfig "$kubeconfig" get configmap one -o 'jsonpath={.data.a}' 2>/dev/null)" = 1 ]; do
    [ $((waited += 1)) -le 100 ] || die "the API server does not find its objects after the etcd's restart"
    sleep 0.2
  done
  "$kubectl" --kubeconfig "$kubeconfig" create configmap two --from-literal a=2 >/dev/null
  stop_server
fi
stop_etcd
say "the etcd server is well"
