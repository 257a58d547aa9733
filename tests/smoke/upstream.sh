# shellcheck shell=bash
# Starts and stops the upstream API server with its store for scripts; to be sourced after server.sh.
#
#   PEER_APISERVER   the upstream API server (kube-apiserver in PATH)
#   PEER_ETCD        its store (etcd in PATH)
#   PEER_PORT        where it listens (16443), and PEER_ETCD_PORT its store (16379)
#
# Gives: find_upstream (fails where there is none, and says so), start_upstream [flags] ($upstream, the URL,
# $upstream_token, an administrator's, $upstream_home, the folder of its files, $upstream_store, the URL of its store, and ${upstream_pids[@]}), stop_upstream.

upstream=
upstream_store=
upstream_token=upstream-token
upstream_home=$scratch/upstream
upstream_pids=()

find_upstream() {
  peer_apiserver=$(command -v "${PEER_APISERVER:-kube-apiserver}" || true)
  peer_etcd=$(command -v "${PEER_ETCD:-etcd}" || true)
  [ -n "$peer_apiserver" ] && [ -n "$peer_etcd" ] && return 0
  say "LEFT OUT: upstream, which takes kube-apiserver and etcd (PEER_APISERVER and PEER_ETCD name them)"
  return 1
}

# Does not wait until it is ready.
start_upstream() {
  local port=${PEER_PORT:-16443} etcd_port=${PEER_ETCD_PORT:-16379} home=$upstream_home
  local store=http://127.0.0.1:$etcd_port peer=http://127.0.0.1:$((etcd_port + 1))
  mkdir -p "$home"
  openssl genrsa -out "$home/sa.key" 2048 2>/dev/null
  say "$upstream_token,upstream,1,system:masters" >"$home/tokens.csv"
  "$peer_etcd" --data-dir "$home/etcd" --listen-client-urls "$store" --advertise-client-urls "$store" \
    --listen-peer-urls "$peer" >"$home/etcd.log" 2>&1 &
  upstream_pids+=("$!")
  "$peer_apiserver" --etcd-servers "$store" --bind-address 127.0.0.1 --secure-port "$port" --cert-dir "$home/certs" \
    --service-account-issuer https://peer.invalid --service-account-key-file "$home/sa.key" \
    --service-account-signing-key-file "$home/sa.key" --token-auth-file "$home/tokens.csv" \
    --authorization-mode Node,RBAC --disable-admission-plugins ServiceAccount \
    --service-cluster-ip-range 10.0.0.0/16 "$@" >"$home/apiserver.log" 2>&1 &
  upstream_pids+=("$!")
  upstream=https://127.0.0.1:$port
  upstream_store=$store
}

stop_upstream() {
  local pid
  for pid in "${upstream_pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${upstream_pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  upstream_pids=()
}
