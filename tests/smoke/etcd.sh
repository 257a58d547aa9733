#!/usr/bin/env bash
# Drives servers that share a real etcd with kubectl: what one writes the other reads, the etcd is restarted under them,
# a server is replaced, and where there is one the upstream API server's objects are read.
#
#   tests/smoke/etcd.sh [KUBECTL]
#
#   PINTLE           the binary to test (built when not given)
#   PEER_ETCD        the etcd (etcd in PATH)
#   PEER_APISERVER   the upstream API server (kube-apiserver in PATH)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# shellcheck source=tests/smoke/server.sh
. "$here/server.sh"
# shellcheck source=tests/smoke/steps.sh
. "$here/steps.sh"
# shellcheck source=tests/smoke/upstream.sh
. "$here/upstream.sh"

choose_kubectls "SERVERS ON AN ETCD" "$@"
kubectl=${kubectls[0]}
etcd=$(command -v "${PEER_ETCD:-etcd}" || true)
if [ -z "$etcd" ]; then
  say "LEFT OUT: servers on an etcd, which takes etcd (PEER_ETCD names it)"
  exit 0
fi

port=${SMOKE_ETCD_PORT:-17379}
store=http://127.0.0.1:$port
etcd_pid=

start_etcd() {
  "$etcd" --data-dir "$scratch/etcd" --listen-client-urls "$store" --advertise-client-urls "$store" \
    --listen-peer-urls "http://127.0.0.1:$((port + 1))" >"$scratch/etcd.log" 2>&1 &
  etcd_pid=$!
}

stop_etcd() {
  kill "$etcd_pid"
  wait "$etcd_pid" 2>/dev/null || true
}

# through NUMBER: kubectl speaks to that server from here on.
through() { kubeconfig=$scratch/kubeconfig-$1; }

# another NUMBER: starts a server on the etcd. Its process is ${pids[NUMBER]}.
pids=()
another() {
  through "$1"
  server_log=$scratch/server-$1.log
  start_server --ephemeral --etcd-servers "$store"
  pids[$1]=$server_pid
  server_pid=
}

# stop NUMBER: stops that server.
stop() {
  server_pid=${pids[$1]}
  server_log=$scratch/server-$1.log
  stop_server
}

# in_the_end ARGUMENTS...: kubectl comes to succeed.
in_the_end() {
  local tries=0
  until k "$@" >/dev/null 2>&1; do
    [ $((tries += 1)) -lt 100 ] || complain "$*" "success within 20 s" 1 "$(k "$@" 2>&1 || true)"
    sleep 0.2
  done
  steps=$((steps + 1))
}

say "servers on $("$etcd" --version | head -n 1) with $(basename "$kubectl")"
step "the etcd comes later than the server"
(sleep 1 && exec "$etcd" --data-dir "$scratch/etcd" --listen-client-urls "$store" --advertise-client-urls "$store" \
  --listen-peer-urls "http://127.0.0.1:$((port + 1))" >"$scratch/etcd.log" 2>&1) &
etcd_pid=$!
another 1
another 2

step "what one server writes the other one reads"
through 1
expect 'created' create namespace shared
for n in 1 2 3; do
  through 1
  expect 'created' -n shared create configmap "c$n" --from-literal=written=one
  through 2
  expect 'one' -n shared get configmap "c$n" -o 'jsonpath={.data.written}'
  expect 'patched' -n shared patch configmap "c$n" -p '{"data":{"written":"two"}}'
  through 1
  expect 'two' -n shared get configmap "c$n" -o 'jsonpath={.data.written}'
done
through 2
refuse 'already exists' -n shared create configmap c1
expect 'deleted' -n shared delete configmap c3
through 1
refuse 'NotFound' -n shared get configmap c3

step "a watch through one server tells what the other one does, also after the etcd was restarted"
k -n shared get configmaps -w -o name >"$scratch/watched" 2>&1 &
watcher=$!
stop_etcd
refuse 'etcd failed' get --raw '/readyz?verbose'
start_etcd
through 2
in_the_end -n shared create configmap after --from-literal=written=two
through 1
expect 'two' -n shared get configmap after -o 'jsonpath={.data.written}'
tries=0
until grep -q configmap/after "$scratch/watched"; do
  [ $((tries += 1)) -lt 100 ] || complain "get configmaps -w" "configmap/after" - "$(cat "$scratch/watched")"
  sleep 0.2
done
kill "$watcher"
in_the_end get --raw /readyz

step "a server that is replaced finds everything"
stop 1
another 3
expect 'configmap/after' -n shared get configmaps -o name
expect 'deleted' delete namespace shared --wait=false
stop 3
stop 2
stop_etcd

step "servers with data directories share authorities and keys by the cluster's token"
start_etcd
# shared NUMBER FLAGS...: a server with a data directory.
shared() {
  through "$1"
  server_log=$scratch/server-$1.log
  start_server --data-dir "$scratch/data-$1" --etcd-servers "$store" --etcd-prefix /shared "${@:2}"
  pids[$1]=$server_pid
  server_pid=
}
shared 4
token=$scratch/data-4/pki/cluster.token
expect 'created' create configmap of-four --from-literal=a=b
if "$binary" up --data-dir "$scratch/data-5" --etcd-servers "$store" --etcd-prefix /shared --secure-port 0 \
  --components apiserver >"$scratch/refused" 2>&1; then
  die "a server without the token started"
fi
grep -q -- '--cluster-token-file' "$scratch/refused" || die "it says: $(cat "$scratch/refused")"
shared 5 --cluster-token-file "$token"
expect 'b' get configmap of-four -o 'jsonpath={.data.a}'
cmp -s "$scratch/data-4/pki/ca.crt" "$scratch/data-5/pki/ca.crt" || die "the authorities differ"
expect created create serviceaccount clerk
issued=$(k create token clerk)
through 4
refuse 'Forbidden' --token "$issued" get --raw /api/v1/secrets --client-certificate='' --client-key=''
stop 4
through 5
expect 'b' get configmap of-four -o 'jsonpath={.data.a}'
shared 4
expect 'b' get configmap of-four -o 'jsonpath={.data.a}'
stop 4
stop 5
stop_etcd

if find_upstream; then
  step "objects of the upstream API server are read, and the other way round"
  start_upstream
  printf '%s\n' 'apiVersion: v1' 'kind: Config' 'current-context: up' \
    "clusters: [{name: up, cluster: {server: '$upstream', insecure-skip-tls-verify: true}}]" \
    'contexts: [{name: up, context: {cluster: up, user: up}}]' \
    "users: [{name: up, user: {token: '$upstream_token'}}]" >"$scratch/kubeconfig-up"
  through up
  in_the_end get --raw /readyz
  expect 'created' create configmap theirs --from-literal=by=upstream
  store=http://127.0.0.1:16379
  another 4
  expect 'upstream' get configmap theirs -o 'jsonpath={.data.by}'
  expect 'created' create configmap ours --from-literal=by=us
  expect 'patched' patch configmap theirs -p '{"data":{"by":"us"}}'
  through up
  in_the_end get configmap ours
  expect 'us' get configmap ours -o 'jsonpath={.data.by}'
  expect 'us' get configmap theirs -o 'jsonpath={.data.by}'
  expect 'configured|patched' patch configmap ours -p '{"data":{"by":"upstream"}}'
  through 4
  expect 'upstream' get configmap ours -o 'jsonpath={.data.by}'
  stop 4
  stop_upstream
fi
say "all is well: $steps steps"
