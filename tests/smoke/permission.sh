#!/usr/bin/env bash
# What kubectl knows about permission: certificates approved and denied, can-i and its list, roles reconciled.
# Every step says what it expects and fails when it sees something else.
#
#   tests/smoke/permission.sh              the kubectl of the PATH, and the oldest and newest beside it
#   tests/smoke/permission.sh KUBECTL...   these
#
#   PINTLE             the binary to test (built when not given)
#   SMOKE_KUBECONFIG   a server that runs already, instead
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/smoke/server.sh
. "$here/server.sh"
# shellcheck source=tests/smoke/steps.sh
. "$here/steps.sh"

choose_kubectls "PERMISSION" "$@"

namespace=
round=0

request() {
  printf 'apiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\nmetadata: {name: %s}\nspec:\n' "$1"
  printf '  signerName: kubernetes.io/kube-apiserver-client\n  usages: [client auth]\n'
  sed -n 's/^  request: /  request: /p' "$here/objects.yaml"
}

certificates() {
  step "requests for certificates are approved and denied, once"
  local each
  for each in yes no left; do
    request "$namespace-$each" >"$scratch/request.yaml"
    expect 'created' create -f "$scratch/request.yaml"
  done
  expect 'approved' certificate approve "$namespace-yes"
  expect 'denied' certificate deny "$namespace-no"
  refuse 'already Approved' certificate deny "$namespace-yes"
  refuse 'already Denied' certificate approve "$namespace-no"
  expect "$namespace-yes .* Approved" get csr "$namespace-yes"
  expect "$namespace-no .* Denied" get csr "$namespace-no"
  refuse 'forbidden' certificate approve "$namespace-left" --as somebody
  expect "$namespace-left .* Pending" get csr "$namespace-left"
  expect 'deleted' delete csr "$namespace-yes" "$namespace-no" "$namespace-left"
}

# policy VERB USER: a role that permits one verb on pods, and a user who has it.
policy() {
  cat <<EOF
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: pods, namespace: $namespace}
rules: [{apiGroups: [""], resources: [pods], verbs: [$1]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: pods, namespace: $namespace}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: pods}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: $2}]
EOF
}

# counts USER VERB: waits until a role counts, which it does shortly after it was written.
counts() {
  local tries=0
  until k -n "$namespace" auth can-i "$2" pods --as "$1" >/dev/null 2>&1; do
    [ $((tries += 1)) -lt 50 ] || complain "auth can-i $2 pods --as $1" yes 1 no
    sleep 0.1
  done
}

roles() {
  step "roles are reconciled: completed, and cut back on request"
  policy get bob >"$scratch/policy.yaml"
  expect 'reconciled' -n "$namespace" auth reconcile -f "$scratch/policy.yaml"
  counts bob get
  policy list eve >"$scratch/policy.yaml"
  expect 'missing rules added' -n "$namespace" auth reconcile -f "$scratch/policy.yaml"
  counts eve list
  expect '^yes' -n "$namespace" auth can-i get pods --as bob
  expect 'extra subjects removed' -n "$namespace" auth reconcile -f "$scratch/policy.yaml" \
    --remove-extra-subjects --remove-extra-permissions
  refuse '^no' -n "$namespace" auth can-i delete pods --as eve
  step "what somebody may do is listed"
  expect '^pods +\[\] +\[\] +\[list\]' -n "$namespace" auth can-i --list --as eve
  expect '^\*\.\* +\[\] +\[\] +\[\*\]' auth can-i --list
  expect '^yes' auth can-i '*' '*'
  expect 'may be incomplete' auth can-i --list --as system:node:x --as-group system:nodes
}

if [ -n "${SMOKE_KUBECONFIG:-}" ]; then
  cp "$SMOKE_KUBECONFIG" "$kubeconfig"
else
  start_server --ephemeral
fi
for kubectl in "${kubectls[@]}"; do
  say "permission with $(basename "$kubectl")"
  namespace=permission-$$-$((round += 1))
  expect 'created' create namespace "$namespace"
  certificates
  roles
  k delete namespace "$namespace" --wait=false >/dev/null
done
[ -n "${SMOKE_KUBECONFIG:-}" ] || stop_server
say "all is well: $steps steps"
