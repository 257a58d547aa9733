#!/usr/bin/env bash
# What packaging/build makes can be used: the program is static and runs, completions load, manual pages render, the
# Debian package installs into an empty root and is purged from it, its units are correct, the image runs in a containerd.
# The same program gives the same bytes.
#
#   PINTLE   a program that packaging/build has linked (target/debug/pintle, built when missing)
#
# What a machine lacks (dpkg, systemd-analyze, man, containerd, root) is left out, loudly.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/smoke/server.sh
. "$here/server.sh"

leave_out() {
  say "######################################################################"
  say "## LEFT OUT: $*"
  say "######################################################################"
}
has() { command -v "$1" >/dev/null; }

out=$scratch/dist
build() { "$repository/packaging/build" --profile dev --version 1.2.3~test "$@"; }
say "packages"
binary=${PINTLE:-}
if [ -z "$binary" ]; then
  build --out "$out" >"$scratch/build.log" 2>&1 || { tail -n 30 "$scratch/build.log" >&2 && die "packaging/build failed"; }
  binary=${CARGO_TARGET_DIR:-$repository/target}/debug/pintle
fi
build --binary "$binary" --out "$out" >/dev/null
deb=$(echo "$out"/pintle_1.2.3~test_*.deb)
image=$(echo "$out"/pintle-1.2.3~test-image-*.tar)

say "  the program is static, and runs without any other file"
"$out/pintle" version | grep -q '^pintle ' || die "the program does not run"
if [ "$(id -u)" = 0 ]; then
  mkdir "$scratch/empty"
  cp "$out/pintle" "$scratch/empty/"
  chroot "$scratch/empty" /pintle version >/dev/null || die "the program needs files of the machine"
  # the library of another source of names may be one for another C library
  mkdir "$scratch/empty/etc"
  printf '127.0.0.1 cluster.test\n' >"$scratch/empty/etc/hosts"
  printf 'hosts: other\n' >"$scratch/empty/etc/nsswitch.conf"
  cat >"$scratch/empty/kubeconfig" <<'END'
apiVersion: v1
kind: Config
current-context: test
clusters: [{name: test, cluster: {server: "https://cluster.test:1"}}]
users: [{name: test, user: {token: x}}]
contexts: [{name: test, context: {cluster: test, user: test}}]
END
  answer=$(chroot "$scratch/empty" /pintle token list --kubeconfig /kubeconfig 2>&1) && die "there is no server"
  grep -q 'refused' <<<"$answer" || die "the name was not looked up in /etc/hosts: $answer"
else
  leave_out "the program in an empty root takes root."
fi

say "  the bill of materials has the crates with their checksums"
bom=$out/pintle-1.2.3~test.cdx.json
grep -q '"purl":"pkg:cargo/redb@.*"alg":"SHA-256"' "$bom" || die "redb is not in the bill of materials"
if has python3; then
  python3 - "$bom" <<'END' || die "the bill of materials is not consistent"
import json, sys
bom = json.load(open(sys.argv[1]))
known = {bom["metadata"]["component"]["bom-ref"]} | {it["bom-ref"] for it in bom["components"]}
assert bom["metadata"]["component"]["version"] == "1.2.3~test"
assert len(bom["components"]) > 100 and all(it["licenses"] for it in bom["components"])
assert {it["ref"] for it in bom["dependencies"]} == known
assert all(to in known for it in bom["dependencies"] for to in it["dependsOn"])
END
else
  leave_out "the bill of materials is not read: there is no python3."
fi

say "  packages are reproducible"
(cd "$out" && sha256sum --quiet -c SHA256SUMS)
sleep_until_next_second() { local now=$EPOCHSECONDS && while [ "$EPOCHSECONDS" = "$now" ]; do sleep 0.1; done; }
# dates must not come from the clock
sleep_until_next_second
build --binary "$binary" --out "$scratch/again" >/dev/null
cmp "$out/SHA256SUMS" "$scratch/again/SHA256SUMS" || die "a second run gives other bytes"
rm -rf "$scratch/again"

say "  completions"
"$out/pintle" completion bash >"$scratch/bash"
bash -n "$scratch/bash"
bash -c '. "$0" && complete -p pintle && COMP_WORDS=(pintle sna) COMP_CWORD=1 && _pintle pintle sna pintle &&
  [ "${COMPREPLY[*]}" = snapshot ]' "$scratch/bash" >/dev/null || die "bash completes nothing"
for shell in zsh fish; do
  if has $shell; then
    "$out/pintle" completion $shell >"$scratch/$shell" && $shell -n "$scratch/$shell" || die "$shell does not read its completions"
  else
    leave_out "completions of $shell: there is no $shell."
  fi
done

say "  manual pages"
mkdir "$scratch/manual"
tar -C "$scratch/manual" -xzf "$out"/pintle-*-manual.tar.gz
pages=("$scratch"/manual/man/man1/*.1)
[ ${#pages[@]} -ge 20 ] || die "there are only ${#pages[@]} manual pages"
for page in "${pages[@]}"; do
  grep -q '^\.SH NAME' "$page" && grep -q '^\.SH SYNOPSIS' "$page" || die "$page is not a manual page"
done
if has man && has groff; then
  for page in "${pages[@]}"; do
    wrong=$(MANWIDTH=100 LC_ALL=C.UTF-8 man --warnings -l "$page" 2>&1 >"$scratch/page")
    [ -s "$scratch/page" ] && [ -z "$wrong" ] || die "$page: $wrong"
  done
  man -l "$scratch/manual/man/man1/pintle-up.1" 2>/dev/null | grep -q -- '--data-dir' || die "the page of up has no flags"
else
  leave_out "the rendering of manual pages: there is no man."
fi

say "  the Debian package"
root=$scratch/root
if has dpkg-deb; then
  dpkg-deb --info "$deb" >"$scratch/info"
  grep -q ' Version: 1.2.3~test$' "$scratch/info" || die "the package has another version"
  dpkg-deb --contents "$deb" | awk '$2 != "root/root" && $2 != "0/0" { bad = 1 } END { exit bad }' || die "files of others than root"
  mkdir -p "$root"
  dpkg-deb --extract "$deb" "$root"
  mkdir "$scratch/control"
  dpkg-deb --control "$deb" "$scratch/control"
  (cd "$root" && md5sum --quiet -c "$scratch/control/md5sums")
  "$root/usr/bin/pintle" version >/dev/null || die "the packaged program does not run"
  for script in postinst prerm postrm; do sh -n "$scratch/control/$script"; done
  if has systemd-analyze; then
    # with the program where it is here
    mkdir "$scratch/units"
    for unit in pintle pintle-agent; do
      sed "s,/usr/bin/pintle,$root/usr/bin/pintle," "$root/usr/lib/systemd/system/$unit.service" >"$scratch/units/$unit.service"
    done
    wrong=$(systemd-analyze verify --man=no "$scratch"/units/*.service 2>&1) && [ -z "$(grep pintle <<<"$wrong")" ] ||
      die "the units: $wrong"
  else
    leave_out "the units: there is no systemd-analyze."
  fi
  if [ "$(id -u)" = 0 ] && has dpkg; then
    fresh=$scratch/fresh
    mkdir -p "$fresh"/var/lib/dpkg/{info,updates} "$fresh/opt/cni/bin" "$fresh/etc/cni/net.d"
    touch "$fresh"/var/lib/dpkg/{status,available}
    debian() { dpkg --root="$fresh" --force-not-root --force-script-chrootless --log="$scratch/dpkg.log" "$@"; }
    debian --install "$deb" >"$scratch/dpkg.out" 2>&1 || { cat "$scratch/dpkg.out" >&2 && die "the package does not install"; }
    [ -x "$fresh/usr/bin/pintle" ] && [ -f "$fresh/etc/default/pintle" ] || die "files are missing"
    # what a node leaves behind
    mkdir -p "$fresh/var/lib/pintle/store"
    ln -s /usr/bin/pintle "$fresh/opt/cni/bin/pintle-cni"
    echo other >"$fresh/opt/cni/bin/loopback"
    touch "$fresh/etc/cni/net.d/10-pintle.conflist"
    debian --remove pintle >/dev/null
    [ -d "$fresh/var/lib/pintle/store" ] && [ -f "$fresh/etc/default/pintle" ] || die "a removal takes data or settings away"
    [ ! -L "$fresh/opt/cni/bin/pintle-cni" ] && [ ! -e "$fresh/etc/cni/net.d/10-pintle.conflist" ] || die "the runtime would look for a plugin that is gone"
    [ -f "$fresh/opt/cni/bin/loopback" ] || die "a plugin of others was removed"
    debian --purge pintle >/dev/null
    [ ! -e "$fresh/var/lib/pintle" ] && [ ! -e "$fresh/etc/default/pintle" ] || die "a purge leaves something"
  else
    leave_out "the installation into an empty root takes root and dpkg."
  fi
else
  leave_out "the Debian package: there is no dpkg-deb."
fi

say "  the image"
python=$(command -v python3 || true)
if [ -n "$python" ]; then
  mkdir "$scratch/image"
  tar -C "$scratch/image" -xf "$image"
  "$python" - "$scratch/image" <<'END' || die "the image is not an OCI layout"
import hashlib, json, pathlib, sys, gzip
layout = pathlib.Path(sys.argv[1])
def blob(descriptor):
    data = (layout / "blobs" / descriptor["digest"].replace(":", "/")).read_bytes()
    assert len(data) == descriptor["size"] and hashlib.sha256(data).hexdigest() == descriptor["digest"][7:], descriptor
    return data
assert json.loads((layout / "oci-layout").read_text())["imageLayoutVersion"] == "1.0.0"
[entry] = json.loads((layout / "index.json").read_text())["manifests"]
manifest = json.loads(blob(entry))
config = json.loads(blob(manifest["config"]))
[layer] = manifest["layers"]
assert config["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(gzip.decompress(blob(layer))).hexdigest()]
END
else
  leave_out "the digests of the image: there is no python3."
fi

run_image() {
  # a containerd of its own, in namespaces of its own, with all files in the temporary folder
  unshare -m -n -p -u -i --fork --mount-proc bash -euc '
    folder=$0 image=$1
    # containers have cgroups of the machine: none with a name of another run, and no folder above them that would stay
    name=pintle-$(basename "$(dirname "$folder")")
    mount --make-rprivate /
    mount -t tmpfs tmpfs /run
    mkdir -p "$folder/root"
    printf "version = 2\nroot = \"%s/root\"\nstate = \"/run/containerd\"\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n[grpc]\n  address = \"/run/containerd/containerd.sock\"\n[plugins.\"io.containerd.internal.v1.opt\"]\n  path = \"%s/opt\"\n" "$folder" "$folder" >"$folder/containerd.toml"
    containerd -c "$folder/containerd.toml" >"$folder/log" 2>&1 &
    for _ in $(seq 300); do ctr version >/dev/null 2>&1 && break; sleep 0.1; done
    ctr images import --snapshotter native "$image" >/dev/null
    ctr images ls -q | grep -qx "localhost/pintle:1.2.3~test"
    ctr run --rm --cgroup "/$name-version" --snapshotter native localhost/pintle:1.2.3~test "$name-version" /usr/bin/pintle version
    # the server of the image starts, with its state in its volume
    ctr run --rm --cgroup "/$name" --snapshotter native localhost/pintle:1.2.3~test "$name" >"$folder/up" 2>&1 &
    server=$!
    for _ in $(seq 600); do ! grep -q " is ready on https://" "$folder/up" || break; sleep 0.1; done
    grep -q " is ready on https://" "$folder/up" || { cat "$folder/up" >&2; exit 1; }
    ctr task kill -s TERM "$name"
    wait $server
    kill %1
    wait %1 || true' "$scratch/containerd" "$image"
}
if [ "$(id -u)" != 0 ]; then
  leave_out "the image in a containerd takes root."
elif ! { has containerd && has ctr && has runc; }; then
  leave_out "the image in a containerd: there is no containerd."
elif ! unshare -m -n -p -u -i --fork true 2>/dev/null; then
  leave_out "the image in a containerd: this machine allows no namespaces."
else
  mkdir "$scratch/containerd"
  timeout -k 10 300 bash -c "$(declare -f run_image); scratch=$scratch image=$image; run_image" >"$scratch/image.out" 2>&1 || { cat "$scratch/image.out" >&2; tail -n 20 "$scratch/containerd/log" >&2; die "the image does not run"; }
  grep -q '^pintle ' "$scratch/image.out" || die "the image does not run"
fi
say "packages: all is well"
