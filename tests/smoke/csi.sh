#!/usr/bin/env bash
# Volumes of a real CSI driver, csi-driver-host-path, on a machine with containerd and a node agent: the driver registers,
# external-provisioner makes volumes, external-attacher attaches them, external-resizer grows them, and pods keep their
# data over agents and drivers that go and come back. Nothing is left when pods and claims are deleted.
#
#   PINTLE        the binary to test (built when not given)
#   PINTLE_NODE   the folder with the sources of images (../shared/tools/node beside the repository)
#   PINTLE_CSI    the folder with the programs hostpathplugin, csi-node-driver-registrar, csi-provisioner, csi-attacher and
#                 csi-resizer, of releases for Kubernetes 1.26. Without it the test is left out.
#
# It takes root, cgroup v1 controllers, containerd, kubectl, gcc and busybox-static for the images, and Python 3. Volumes of
# blocks are tested where the machine has loop devices.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/smoke/server.sh
. "$here/server.sh"
# shellcheck source=tests/smoke/machines.sh
. "$here/machines.sh"
# shellcheck source=tests/smoke/nodes.sh
. "$here/nodes.sh"
programs=${PINTLE_CSI:-}
[ -n "$programs" ] || leave_out "CSI DRIVER LEFT OUT: PINTLE_CSI names no folder with the programs of a driver."
for program in hostpathplugin csi-node-driver-registrar csi-provisioner csi-attacher csi-resizer; do
  [ -x "$programs/$program" ] || leave_out "CSI DRIVER LEFT OUT: there is no $programs/$program."
done
programs=$(realpath "$programs")
need_nodes "CSI DRIVER"

say "a machine with a node agent and a CSI driver"
driver=hostpath.csi.k8s.io
make_switch lan
make_images
make_node node 192.168.5.1/24 fd05::1/64
# the API server has no certificate that this agent knows
cat >>"$scratch/node/agent.yaml" <<END
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
END
root=$scratch/node/agent
plugin=$root/plugins/$driver
state=$scratch/node/volumes
kubeconfig=$scratch/kubeconfig
mkdir -p "$plugin" "$root/plugins_registry" "$state"
k() { on node kubectl --kubeconfig "$kubeconfig" "$@"; }
not() { ! "$@"; }

start_agent() {
  start_on node agent "$binary" nodeagent --v=2 --config "$scratch/node/agent.yaml" --kubeconfig "$kubeconfig" --root-dir "$root" \
    --cert-dir "$root/pki" --container-runtime-endpoint unix:///run/containerd/containerd.sock
}
kill_agent() {
  on node bash -c 'kill -KILL "$(cat /run/agent.pid)"'
  wait "${started[node.agent]}" 2>/dev/null || true
}
# The driver with the programs beside it, which end when it does.
start_driver() {
  local program flags
  start_on node driver "$programs/hostpathplugin" --endpoint "unix://$plugin/csi.sock" --statedir "$state" --nodeid node \
    --drivername $driver --enable-attach --check-volume-lifecycle --maxvolumespernode 3 -v 5
  wait_until "the driver" test -S "$plugin/csi.sock"
  start_on node registrar "$programs/csi-node-driver-registrar" --csi-address "$plugin/csi.sock" \
    --kubelet-registration-path "$plugin/csi.sock" --plugin-registration-path "$root/plugins_registry" -v 5
  for program in provisioner attacher resizer; do
    flags=()
    [ $program != provisioner ] || flags=(--feature-gates Topology=true)
    start_on node $program "$programs/csi-$program" --kubeconfig "$kubeconfig" --csi-address "$plugin/csi.sock" -v 5 "${flags[@]}"
  done
}
# end_driver SIGNAL
end_driver() {
  local program
  for program in registrar provisioner attacher resizer driver; do
    # shellcheck disable=SC2016 # the shell inside expands its arguments
    on node bash -c 'kill "-$1" "$(cat "/run/$0.pid")" 2>/dev/null' $program "$1" || true
    wait "${started[node.$program]}" 2>/dev/null || true
  done
  rm -f "$plugin/csi.sock"
}

start_on node up "$binary" up -v --components apiserver,controller-manager,scheduler,network --data-dir "$scratch/data" \
  --write-kubeconfig "$kubeconfig" --bind-address 0.0.0.0 --advertise-address 192.168.5.1 --tls-san 192.168.5.1
wait_until "the API server" k get --raw /readyz
start_agent
start_on node network "$binary" network --kubeconfig "$kubeconfig"
start_driver
wait_until "the node" k wait --for=condition=Ready node/node --timeout=1s
wait_until "a service account" k get serviceaccount default
is_registered() { [ "$(k get csinode node -o 'jsonpath={.spec.drivers[0].name} {.spec.drivers[0].nodeID} {.spec.drivers[0].allocatable.count}')" = "$driver node 3" ]; }
wait_until "the driver in the CSINode" is_registered
is_labelled() { [ "$(k get node node -o 'jsonpath={.metadata.labels.topology\.hostpath\.csi/node}')" = node ]; }
wait_until "the topology of the node" is_labelled

k apply -f - >/dev/null <<END
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: $driver}
spec: {attachRequired: true, podInfoOnMount: true, fsGroupPolicy: File, volumeLifecycleModes: [Persistent, Ephemeral]}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: hostpath}
provisioner: $driver
allowVolumeExpansion: true
volumeBindingMode: WaitForFirstConsumer
END

# make_claim NAME MODE
make_claim() {
  k apply -f - >/dev/null <<END
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: $1}
spec: {accessModes: [ReadWriteOnce], storageClassName: hostpath, volumeMode: $2, resources: {requests: {storage: 16Mi}}}
END
}
# run_pod NAME CLAIM [DEVICE]: a pod with a claim at /data, an inline volume at /scratch, and the device of another claim.
run_pod() {
  local device=() list=
  if [ $# -gt 2 ]; then
    device=("    volumeDevices: [{name: device, devicePath: /dev/block}]")
    list=", {name: device, persistentVolumeClaim: {claimName: $3}}"
  fi
  k apply -f - >/dev/null <<END
apiVersion: v1
kind: Pod
metadata: {name: $1}
spec:
  terminationGracePeriodSeconds: 1
  securityContext: {fsGroup: 4321}
  containers:
  - name: c
    image: registry.test/busybox:1
    command: [sh, -c, 'trap "exit 0" TERM; while :; do sleep 1 & wait; done']
    volumeMounts: [{name: data, mountPath: /data}, {name: scratch, mountPath: /scratch}]
${device[*]}
  volumes: [{name: data, persistentVolumeClaim: {claimName: $2}}, {name: scratch, csi: {driver: $driver}}$list]
END
}
runs() { wait_until "pod $1" k wait --for=condition=Ready "pod/$1" --timeout=1s; }
sh_in() { k exec "$1" -- sh -c "$2"; }
delete_pod() { k delete pod "$1" --wait=true --timeout=60s >/dev/null; }
# What the agent and the driver have mounted, what the driver has published, and what is attached.
mounts() { on node grep -c "$root/.*$driver\|$root/pods/[^/]*/volumes/kubernetes.io~csi\|$root/pods/[^/]*/volumeDevices\|$root/plugins/kubernetes.io/csi" /proc/self/mounts || true; }
is_unmounted() { [ "$(mounts)" = 0 ]; }
is_detached() { [ -z "$(k get volumeattachments -o name)" ] && [ -z "$(k get node node -o 'jsonpath={.status.volumesInUse}{.status.volumesAttached}')" ]; }
is_clear() { is_unmounted && is_detached; }
# has_volumes INLINE PERSISTENT: the numbers of volumes that the driver has.
has_volumes() { [ "$(find "$state" -mindepth 1 -maxdepth 1 -name 'csi-*' | wc -l) $(find "$state" -mindepth 1 -maxdepth 1 ! -name 'csi-*' ! -name '*.json' | wc -l)" = "$1 $2" ]; }

# This driver writes its state only when a volume is made or deleted: here the inline volume of a pod.
save_driver() {
  run_pod spare data
  runs spare
  delete_pod spare
}

say "  a pod writes, another one reads; volumes are staged, published, and of the pod's group"
make_claim data Filesystem
run_pod one data
runs one
sh_in one 'echo kept >/data/file; echo mine >/scratch/file'
[ "$(sh_in one 'stat -c %g /data /data/file /scratch' | sort -u)" = 4321 ] || die "the group of the volumes is $(sh_in one 'stat -c %g /data /data/file /scratch')"
run_pod two data
runs two
[ "$(sh_in two 'cat /data/file')" = kept ] || die "the second pod does not see the file"
sh_in two 'test ! -e /scratch/file' || die "pods share an inline volume"
[ "$(k get volumeattachments -o 'jsonpath={.items[*].status.attached}')" = true ] || die "$(k get volumeattachments)"
for field in volumesInUse volumesAttached; do
  k get node node -o "jsonpath={.status.$field}" | grep "kubernetes.io/csi/$driver^" >/dev/null || die "the node has no $field"
done

say "  usage of the volumes"
has_usage() {
  k get --raw /api/v1/nodes/node/proxy/stats/summary | python3 -c '
import json, sys
pod = next(it for it in json.load(sys.stdin)["pods"] if it["podRef"]["name"] == "one")
volumes = {it["name"]: it for it in pod["volume"]}
assert volumes["data"]["pvcRef"] == {"name": "data", "namespace": "default"}
assert volumes["data"]["capacityBytes"] > 0 and volumes["data"]["inodes"] > 0, volumes'
}
wait_until "usage in the summary" has_usage

say "  the volume grows while pods use it"
k patch pvc data --patch '{"spec":{"resources":{"requests":{"storage":"32Mi"}}}}' >/dev/null
has_grown() { [ "$(k get pvc data -o 'jsonpath={.status.capacity.storage} {.status.conditions}')" = "32Mi " ]; }
end=$((SECONDS + 150))
until has_grown; do
  [ $SECONDS -lt $end ] || die "the claim has not grown: $(k get pvc data -o yaml; k get events)"
  sleep 0.5
done
k get events -o 'jsonpath={.items[*].reason}' | grep FileSystemResizeSuccessful >/dev/null || die "no event about the growth: $(k get events)"

say "  the limit of volumes per node holds"
make_claim second Filesystem && make_claim third Filesystem && make_claim fourth Filesystem
run_pod fills second && runs fills
run_pod too third && runs too
run_pod many fourth
is_over_limit() { k get pod many -o 'jsonpath={.status.conditions[0].message}' | grep 'exceed max volume count' >/dev/null; }
wait_until "a pod over the limit" is_over_limit
delete_pod many && delete_pod too && delete_pod fills
k delete pvc second third fourth --timeout=60s >/dev/null
wait_until "the driver deletes volumes of deleted claims, and inline volumes" has_volumes 2 1

block=
if on node losetup -f >/dev/null 2>&1; then
  say "  a volume of blocks"
  block=yes
  make_claim device Block
  run_pod three data device
  runs three
  sh_in three 'test -b /dev/block && echo on the device | dd of=/dev/block conv=fsync' >/dev/null 2>&1 || die "a pod cannot write its device"
  delete_pod three
  run_pod three data device
  runs three
  [ "$(sh_in three 'head -c 13 /dev/block')" = "on the device" ] || die "the device lost its content"
else
  say "## LEFT OUT: volumes of blocks; this machine has no loop devices."
fi

say "  the agent is killed, and finds the volumes again"
kill_agent
# This driver forgets that an inline volume is published when an agent that starts publishes it again, and deletes it never.
start_agent
wait_until "the node" k wait --for=condition=Ready node/node --timeout=1s
runs one
[ "$(sh_in one 'cat /data/file /scratch/file | xargs')" = "kept mine" ] || die "a pod lost its volumes"
[ -z "$block" ] || delete_pod three
delete_pod two
[ "$(sh_in one 'cat /data/file')" = kept ] || die "the volume was taken from a pod that uses it"

say "  pods are deleted while the agent is away"
run_pod two data
runs two
kill_agent
k delete pod two --wait=false >/dev/null
k delete pod one --force --grace-period=0 >/dev/null 2>&1
start_agent
wait_until "the end of a pod" not k get pod two
wait_until "volumes are unmounted and detached" is_clear
left=$(find "$state" -mindepth 1 -maxdepth 1 -name 'csi-*' | wc -l)
[ -z "$block" ] || { k delete pvc device --timeout=60s >/dev/null && wait_until "the device is deleted" has_volumes "$left" 1; }

say "  the driver is away: a new pod waits for it, and so does one that ends"
run_pod one data
runs one
[ "$(sh_in one 'cat /data/file')" = kept ] || die "the data is lost"
save_driver
end_driver TERM
run_pod two data
waits_for_driver() { k get events --field-selector involvedObject.name=two -o 'jsonpath={.items[*].message}' | grep 'not found in the list of registered CSI drivers\|connect' >/dev/null; }
wait_until "an event about the driver" waits_for_driver
k delete pod one --wait=false >/dev/null
has_ended() { [ "$(on node ctr -n k8s.io tasks ls | grep -c RUNNING)" = 0 ]; }
wait_until "the containers of the pod have ended" has_ended
[ "$(mounts)" != 0 ] || die "the volume was unmounted without its driver"
start_driver
runs two
wait_until "the end of a pod" not k get pod one
[ "$(sh_in two 'cat /data/file')" = kept ] || die "the data is lost"

say "  the driver is killed while a pod runs"
save_driver
end_driver KILL
[ "$(sh_in two 'cat /data/file')" = kept ] || die "the data is lost"
start_driver
run_pod one data
runs one

say "  nothing is left"
delete_pod one
delete_pod two
wait_until "volumes are unmounted and detached" is_clear
k delete pvc data --timeout=60s >/dev/null
wait_until "the volume is deleted, and inline volumes are" has_volumes "$left" 0
[ -z "$(k get pv -o name)" ] || die "volumes are left: $(k get pv)"
left=$(find "$root/pods" "$root/plugins/kubernetes.io" \( -path '*/volumes/*' -o -path '*/volumeDevices/*/*' -o -path "*/csi/$driver/*" \) 2>/dev/null || true)
[ -z "$left" ] || die "left: $left"
[ -z "$(on node losetup -a 2>/dev/null | grep "$state" || true)" ] || die "loop devices are left"
say "pods have volumes of a CSI driver"
