#!/usr/bin/env bash
# kubectl as somebody else than the administrator: as a service account with a token of its own, as a bootstrap
# token, with a requested certificate, by impersonation. Every step says what it expects and fails when it sees something else.
#
#   tests/smoke/identity.sh              the kubectl of the PATH, and the oldest and newest beside it
#   tests/smoke/identity.sh KUBECTL...   these
#
#   PINTLE   the binary to test (built when not given)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/smoke/server.sh
. "$here/server.sh"
# shellcheck source=tests/smoke/steps.sh
. "$here/steps.sh"

choose_kubectls "IDENTITY" "$@"

namespace=
round=0

# become NAME TOKEN: the context NAME of the kubeconfig is whoever the token stands for
become() {
  local cluster
  cluster=$(k config view --minify --context "$admin" -o 'jsonpath={.contexts[0].context.cluster}')
  k config set-credentials "$1" --token "$2" >/dev/null
  k config set-context "$1" --cluster "$cluster" --user "$1" --namespace "$namespace" >/dev/null
}

# kubectl before 1.27 has it among what is not finished
whoami() { if [ "$minor" -lt 27 ]; then echo alpha auth whoami; else echo auth whoami; fi; }

service_account() {
  step "a service account with a token"
  expect 'created' -n "$namespace" create serviceaccount robot
  expect '^[^.]+\.[^.]+\.[^.]+$' -n "$namespace" create token robot --duration 1h
  become robot "$output"
  # shellcheck disable=SC2046
  expect "system:serviceaccount:$namespace:robot" --context robot $(whoami)
  refuse "User \"system:serviceaccount:$namespace:robot\" cannot list resource \"pods\"" --context robot get pods
  refuse '^no' --context robot auth can-i list pods
  expect 'created' -n "$namespace" create rolebinding robot --clusterrole view --serviceaccount "$namespace:robot"
  expect '^yes' --context robot auth can-i list pods
  expect 'No resources found' --context robot get pods
  refuse '^no' --context robot auth can-i list secrets
  refuse 'cannot list resource "secrets"' --context robot get secrets
  refuse 'cannot list resource "pods".*at the cluster scope' --context robot get pods -A
  expect 'pods +\[\] +\[\] +\[get list watch\]' --context robot auth can-i --list
  refuse 'cannot impersonate resource "users"' --context robot get pods --as "$admin"
  refuse 'cannot create resource "serviceaccounts/token"' --context robot create token robot
}

tokens_die() {
  step "a token dies with what it is bound to"
  expect 'created' -n "$namespace" create secret generic anchor
  expect '.' -n "$namespace" create token robot --bound-object-kind Secret --bound-object-name anchor
  become bound "$output"
  expect '^yes' --context bound auth can-i list pods
  expect 'deleted' -n "$namespace" delete secret anchor
  refuse 'Unauthorized|logged in' --context bound get pods
  refuse 'not found' -n "$namespace" create token robot --bound-object-kind Pod --bound-object-name nothing
  refuse 'less than 10 minutes|expiration' -n "$namespace" create token robot --duration 1m
  expect 'deleted' -n "$namespace" delete serviceaccount robot
  refuse 'Unauthorized|logged in' --context robot get pods
  expect 'created' -n "$namespace" create serviceaccount robot
  refuse 'Unauthorized|logged in' --context robot get pods
}

bootstrap() {
  step "a bootstrap token"
  local id
  id=$(printf 'a%05d' "$round")
  expect 'created' -n kube-system create secret generic "bootstrap-token-$id" --type bootstrap.kubernetes.io/token \
    --from-literal token-id="$id" --from-literal token-secret=0123456789abcdef \
    --from-literal usage-bootstrap-authentication=true
  become node "$id.0123456789abcdef"
  # shellcheck disable=SC2046
  expect "system:bootstrap:$id" --context node $(whoami)
  refuse 'cannot list resource "nodes"' --context node get nodes
  expect 'deleted' -n kube-system delete secret "bootstrap-token-$id"
  refuse 'Unauthorized|logged in' --context node get nodes
}

certificate() {
  step "a requested certificate"
  if ! command -v openssl >/dev/null; then
    echo "    LEFT OUT: there is no openssl on this machine"
    return
  fi
  local name=jane-$round cluster
  openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/O=dev/O=ops/CN=$name" \
    -keyout "$scratch/$name.key" -out "$scratch/$name.csr" 2>/dev/null
  cat >"$scratch/$name.yaml" <<EOF
apiVersion: certificates.k8s.io/v1
kind: CertificateSigningRequest
metadata: {name: $name}
spec:
  signerName: kubernetes.io/kube-apiserver-client
  usages: [client auth, digital signature]
  expirationSeconds: 3600
  request: $(base64 <"$scratch/$name.csr" | tr -d '\n')
EOF
  expect 'created' create -f "$scratch/$name.yaml"
  expect 'Pending' get csr "$name"
  expect 'approved' certificate approve "$name"
  for _ in $(seq 100); do
    expect '.' get csr "$name"
    if grep -q 'Approved,Issued' <<<"$output"; then break; fi
    sleep 0.1
  done
  expect 'Approved,Issued' get csr "$name"
  k get csr "$name" -o 'jsonpath={.status.certificate}' | base64 -d >"$scratch/$name.crt"
  cluster=$(k config view --minify --context "$admin" -o 'jsonpath={.contexts[0].context.cluster}')
  k config set-credentials "$name" --client-certificate "$scratch/$name.crt" --client-key "$scratch/$name.key" \
    --embed-certs >/dev/null
  k config set-context "$name" --cluster "$cluster" --user "$name" >/dev/null
  # shellcheck disable=SC2046
  expect "$name" --context "$name" $(whoami)
  grep -q dev <<<"$output" && grep -q ops <<<"$output"
  refuse "User \"$name\" cannot list" --context "$name" get nodes
}

impersonation() {
  step "as somebody else"
  # shellcheck disable=SC2046
  expect 'bob' --as bob --as-group dev --as-uid 7 $(whoami)
  refuse 'User "bob" cannot list' --as bob get pods
  expect '^yes' --as "system:serviceaccount:$namespace:robot" auth can-i create selfsubjectaccessreviews
  expect '^yes' --as bob --as-group system:masters auth can-i '*' '*'
}

start_server --ephemeral --components apiserver,controller-manager --enable-bootstrap-token-auth --feature-gates APISelfSubjectReview=true \
  --runtime-config authentication.k8s.io/v1alpha1=true
for kubectl in "${kubectls[@]}"; do
  say "identity with $(basename "$kubectl")"
  minor=$(k version --client -o json 2>/dev/null | sed -n 's/.*"minor": *"\([0-9]*\).*/\1/p' | head -n 1)
  admin=$(k config current-context)
  namespace=identity-$((round += 1))
  expect 'created' create namespace "$namespace"
  service_account
  tokens_die
  bootstrap
  certificate
  impersonation
done
stop_server
say "all is well: $steps steps"
