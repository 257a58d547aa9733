#!/usr/bin/env bash
# Items of the CIS benchmark for Kubernetes, checked at a running server: once with its defaults, and once with the flags
# that the benchmark asks for. docs/security.md has the table. Every item says what was found when it fails.
#
#   PINTLE   the binary to test (built when not given)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/smoke/server.sh
. "$here/server.sh"
for program in curl kubectl openssl; do
  command -v "$program" >/dev/null || { say "## LEFT OUT: CIS items: there is no $program." && exit 0; }
done
k() { kubectl --kubeconfig "$kubeconfig" "$@"; }

# item NUMBER TEXT COMMAND...: runs a check
passed=0
item() {
  local number=$1 text=$2
  shift 2
  "$@" || die "CIS $number: $text"
  passed=$((passed + 1))
}
# code EXPECTED PATH [CURL FLAGS]: the status code of an anonymous request
code() {
  local expected=$1 path=$2 found
  shift 2
  found=$(curl -sk -o /dev/null -w '%{http_code}' "$@" "$server$path")
  [ "$found" = "$expected" ] || { say "$path: $found instead of $expected" >&2 && return 1; }
}
# refused PATTERN KUBECTL ARGUMENTS: the command fails with this text
refused() {
  local pattern=$1 output
  shift
  if output=$(k "$@" 2>&1); then say "$*: $output" >&2 && return 1; fi
  grep -qE "$pattern" <<<"$output" || { say "$*: $output" >&2 && return 1; }
}
# modes LIMIT FILES: no permission bits beyond those of the limit, and files of this user
modes() {
  local limit=$1 file mode
  shift
  for file in "$@"; do
    mode=$(stat -c %a "$file") || return 1
    [ $((8#$mode & ~8#$limit)) -eq 0 ] || { say "$file has mode $mode" >&2 && return 1; }
    [ "$(stat -c %u "$file")" = "$(id -u)" ] || { say "$file has another owner" >&2 && return 1; }
  done
}
no_handshake() { ! openssl s_client -connect "${server#https://}" "$@" </dev/null >"$scratch/tls" 2>&1; }
handshake() { openssl s_client -connect "${server#https://}" "$@" </dev/null >"$scratch/tls" 2>&1; }
listens_locally() { [[ $server == https://127.0.0.1:* || $server == https://localhost:* ]]; }

data=$scratch/data
say "CIS items with the defaults"
start_server --data-dir "$data" --components controller-manager
item 1.1.11 "the data directory is its owner's" modes 700 "$data" "$data/store"
item 1.1.13 "the administrator's kubeconfig is its owner's" modes 600 "$kubeconfig"
item 1.1.19 "the PKI directory is its owner's" modes 700 "$data/pki"
item 1.1.20 "certificates have no further permissions" modes 644 "$data"/pki/*.crt
item 1.1.21 "keys are their owner's" modes 600 "$data"/pki/*.key
item 1.2.1 "anonymous requests read health and version only" code 200 /version
item 1.2.1 "anonymous requests read health and version only" code 403 /api
item 1.2.2 "there are no static tokens" code 401 /version -H 'Authorization: Bearer admin'
item 1.2.6 "not everything is allowed" refused 'cannot list resource' --as somebody get secrets
item 1.2.7 "the mode Node is on" refused 'no relationship found between node' \
  --as system:node:n --as-group system:nodes get secret x
k create rolebinding reader --clusterrole view --user reader >/dev/null
reads() { for _ in $(seq 100); do k --as reader get configmaps >/dev/null 2>&1 && return; sleep 0.1; done; return 1; }
item 1.2.8 "the mode RBAC is on" reads
k create namespace restricted >/dev/null
k label namespace restricted pod-security.kubernetes.io/enforce=restricted >/dev/null
k -n restricted create serviceaccount default >/dev/null 2>&1 || true
item 1.2.10 "AlwaysAdmit is off: levels of pods are enforced" refused 'violates PodSecurity' \
  -n restricted run p --image=i --dry-run=server
item 1.2.13 "ServiceAccount is on" refused 'service account .*none.* not found|serviceaccount "none" not found' \
  run p --image=i --dry-run=server --overrides='{"spec":{"serviceAccountName":"none"}}'
item 1.2.14 "NamespaceLifecycle is on" refused 'not found' -n absent create configmap x
item 1.2.14 "NamespaceLifecycle is on" refused 'this namespace may not be deleted' delete namespace kube-system
k create -f - >/dev/null <<<'{"apiVersion":"v1","kind":"Node","metadata":{"name":"other"}}'
item 1.2.15 "NodeRestriction is on" refused 'is not allowed to modify node' \
  --as system:node:n --as-group system:nodes label node other a=b
item 1.2.16 "the port is a secure one" listens_locally
no_plain_http() { ! curl -s -o "$scratch/plain" "http://${server#https://}/version" || grep -q HTTPS "$scratch/plain"; }
item 1.2.16 "the port is a secure one" no_plain_http
# a token of an account that is gone
k create serviceaccount gone >/dev/null
token=$(k create token gone)
item 1.2.23 "tokens are looked up" code 200 /api -H "Authorization: Bearer $token"
k delete serviceaccount gone >/dev/null
item 1.2.23 "tokens are looked up" code 401 /api -H "Authorization: Bearer $token"
item 1.2.26 "the server has a certificate of its authority" handshake -CAfile "$data/pki/ca.crt" -verify_return_error
item 1.2.31 "ciphers are strong" no_handshake -tls1_2 -cipher AES128-SHA:ECDHE-RSA-AES128-SHA:ECDHE-ECDSA-AES256-SHA
item 1.2.31 "ciphers are strong" no_handshake -tls1_1 -cipher DEFAULT@SECLEVEL=0
item 1.2.31 "ciphers are strong" handshake -tls1_2
stop_server

say "CIS items with flags"
cat >"$scratch/policy.yaml" <<'END'
apiVersion: audit.k8s.io/v1
kind: Policy
rules: [{level: Metadata}]
END
cat >"$scratch/encryption.yaml" <<'END'
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - aesgcm: {keys: [{name: a, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}]}
  - identity: {}
END
start_server --data-dir "$scratch/hardened" --components controller-manager --anonymous-auth=false --profiling=false --request-timeout 30s \
  --enable-admission-plugins AlwaysPullImages,DenyServiceExternalIPs,EventRateLimit \
  --admission-control-config-file <(cat <<'END'
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: EventRateLimit
  configuration:
    apiVersion: eventratelimit.admission.k8s.io/v1alpha1
    kind: Configuration
    limits: [{type: Server, qps: 1, burst: 2}]
END
) --audit-policy-file "$scratch/policy.yaml" --audit-log-path "$scratch/audit.log" --audit-log-maxage 30 \
  --audit-log-maxbackup 10 --audit-log-maxsize 100 --encryption-provider-config "$scratch/encryption.yaml" \
  --tls-cipher-suites TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 --tls-min-version VersionTLS12
item 1.2.1 "anonymous requests are refused" code 401 /version
cat >"$scratch/service.json" <<'END'
{"apiVersion":"v1","kind":"Service","metadata":{"name":"s"},"spec":{"ports":[{"port":80}],"externalIPs":["192.0.2.1"]}}
END
item 1.2.3 "DenyServiceExternalIPs is on" refused 'external' create -f "$scratch/service.json"
pull_policy() { [ "$(k run p --image=i --dry-run=server -o 'jsonpath={.spec.containers[0].imagePullPolicy}' --overrides='{"spec":{"automountServiceAccountToken":false}}')" = Always ]; }
k create serviceaccount default >/dev/null 2>&1 || true
item 1.2.11 "AlwaysPullImages is on" pull_policy
events() {
  for at in 1 2 3 4; do
    k create -f - <<<"{\"apiVersion\":\"v1\",\"kind\":\"Event\",\"metadata\":{\"name\":\"e$at\",\"namespace\":\"default\"},\"involvedObject\":{\"namespace\":\"default\"}}" 2>&1 || true
  done | grep -q 'limit'
}
item 1.2.9 "EventRateLimit is on" events
no_profiles() { [[ $(k get --raw /debug/pprof/ 2>&1) == *NotFound* || $(k get --raw /debug/pprof/ 2>&1) == *'could not find'* ]]; }
item 1.2.17 "profiling is off" no_profiles
item 1.2.18 "requests are recorded" grep -q '"requestURI":"/debug/pprof/"' "$scratch/audit.log"
item 1.2.18 "the audit log is its owner's" modes 600 "$scratch/audit.log"
k create secret generic s --from-literal=key=plain-text-of-a-secret >/dev/null
# the value is in no file of the data directory
encrypted() { ! grep -rqF -e plain-text-of-a-secret -e cGxhaW4tdGV4dC1vZi1hLXNlY3JldA "$scratch/hardened"; }
item 1.2.29 "secrets are encrypted at rest" encrypted
item 1.2.31 "ciphers can be chosen" no_handshake -tls1_2 -cipher ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256
item 1.2.31 "ciphers can be chosen" handshake -tls1_2
stop_server
say "$passed checks of CIS items hold"
