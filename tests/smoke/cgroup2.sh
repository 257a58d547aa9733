#!/usr/bin/env bash
# Containers on a machine whose only hierarchy of control groups is version 2: a virtual machine with Debian's kernel, made
# here. In it run the kernel tests of the embedded runtime, then `pintle up` with pods: limits in the files of version 2,
# exec, logs, usage, OOM kills, eviction, a killed agent; in the end no control group is left.
#
#   tests/smoke/cgroup2.sh [containers|cluster]   only the tests of the runtime, or only the cluster
#
#   PINTLE       the binary to test (built when not given)
#   CONTAINERS   the program of `cargo test -p runtime --test containers` (built when not given)
#   KERNEL       a Debian package linux-image-* (downloaded with apt-get into ~/.cache when not given)
#   BUSYBOX      a static busybox (from the package busybox-static when not given)
#   TEST         a part of the name of the tests of the runtime that are run (all that make sense, when not given)
#   CONSOLE      a file for everything that the machine says
#
# It takes qemu-system-x86_64, kubectl and dpkg-deb; no root and no KVM, which makes it faster where it can be used.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/smoke/server.sh
. "$here/server.sh"
test='CGROUPS V2'
part=${1:-all}
memory=3072

leave_out() {
  say "######################################################################"
  say "## $test LEFT OUT: $* "
  say "######################################################################"
  exit 0
}
for program in qemu-system-x86_64 kubectl dpkg-deb; do
  command -v "$program" >/dev/null || leave_out "there is no $program."
done
[ "$(uname -m)" = x86_64 ] || leave_out "the machine is made for x86_64."

# A package from the archive that this machine uses. Prints its path.
package() {
  local name=$1 cache=${XDG_CACHE_HOME:-$HOME/.cache}/pintle/cgroup2 found
  mkdir -p "$cache"
  found=$(find "$cache" -name "${name}_*.deb" | sort -V | tail -n 1)
  if [ -z "$found" ]; then
    (cd "$cache" && apt-get download "$name" >&2) || return 1
    found=$(find "$cache" -name "${name}_*.deb")
  fi
  printf '%s\n' "$found"
}
# The kernel that is the newest of this release of Debian: a package without files depends on it.
kernel_package() {
  local name
  name=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p')
  [ -n "$name" ] && package "$name"
}
say "a kernel"
kernel=${KERNEL:-$(kernel_package 2>"$scratch/apt.log" || true)}
[ -n "$kernel" ] || leave_out "no package linux-image-*-cloud-amd64 can be downloaded: $(tail -n 1 "$scratch/apt.log")."
busybox=${BUSYBOX:-}
if [ -z "$busybox" ]; then
  deb=$(package busybox-static 2>"$scratch/apt.log" || true)
  [ -n "$deb" ] || leave_out "the package busybox-static cannot be downloaded: $(tail -n 1 "$scratch/apt.log")."
  dpkg-deb -x "$deb" "$scratch/busybox"
  busybox=$scratch/busybox/bin/busybox
fi
dpkg-deb -x "$kernel" "$scratch/kernel"
modules=$(echo "$scratch"/kernel/lib/modules/*)
release=${modules##*/}
say "  Linux $release"

[ -n "${binary:-}" ] || find_binary
containers=${CONTAINERS:-}
if [ -z "$containers" ] && [ "$part" != cluster ]; then
  containers=$(cd "$repository" && cargo test --quiet -p runtime --test containers --no-run --message-format json |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
  [ -x "$containers" ] || die "the tests of the runtime do not build"
fi

say "the machine"
root=$scratch/root
mkdir -p "$root"/{bin,etc,lib/modules/"$release",proc,sys,dev,run,tmp,test,root,var/log,var/lib}
ln -s bin "$root/sbin"
mkdir -p "$root/usr"
ln -s ../bin "$root/usr/bin"
ln -s ../bin "$root/usr/sbin"
cp "$busybox" "$root/bin/busybox"
for name in $("$busybox" --list); do
  [ "$name" = busybox ] || ln -s busybox "$root/bin/$name"
done
# A program without the symbols for a debugger, with the libraries that it asks for.
add_program() {
  local file=$1 target=$root/$2 library
  cp -L "$file" "$target"
  if command -v strip >/dev/null; then strip --strip-debug "$target"; fi
  for library in $(ldd "$file" 2>/dev/null | grep -oE '/[^ ]+' || true); do
    mkdir -p "$root${library%/*}"
    cp -L "$library" "$root$library"
  done
}
add_program "$binary" bin/pintle
cp -L "$(command -v kubectl)" "$root/bin/kubectl"
if [ "$part" != cluster ]; then
  add_program "$containers" test/containers
  # the runtime's tests with an external runtime
  [ ! -x /usr/sbin/runc ] || add_program /usr/sbin/runc bin/runc
fi
# modules of pods: overlayfs, links, packet filter
for folder in net fs/overlayfs drivers/net/veth.ko drivers/net/vxlan drivers/net/dummy.ko lib crypto arch/x86/crypto; do
  [ ! -e "$modules/kernel/$folder" ] || (cd "$modules" && find "kernel/$folder" -name '*.ko*' -exec cp --parents -t "$root/lib/modules/$release" {} +)
done
cp "$modules"/modules.{order,builtin,builtin.modinfo} "$root/lib/modules/$release/"
"$busybox" depmod -b "$root" "$release" || die "the modules have no table"
cp "$here/cgroup2_init.sh" "$root/init"
cp "$here/cgroup2_guest.sh" "$root/test/guest.sh"
printf 'root:x:0:0:root:/root:/bin/sh\n' >"$root/etc/passwd"
printf 'root:x:0:\n' >"$root/etc/group"
printf '127.0.0.1 localhost\n192.168.9.1 v2\n' >"$root/etc/hosts"
: >"$root/etc/resolv.conf"
(cd "$root" && find . | "$busybox" cpio -o -H newc) >"$scratch/initramfs" 2>"$scratch/cpio.log" ||
  { cat "$scratch/cpio.log" >&2 && die "the file system of the machine is not made"; }
rm -rf "$root"

console=${CONSOLE:-$scratch/console}
: >"$console"
accelerator=tcg,thread=multi
# inside of some virtual machines the device is there, and no machine runs with it
if [ -w /dev/kvm ] && grep -qwE 'vmx|svm' /proc/cpuinfo; then accelerator=kvm; fi
say "the machine starts (${accelerator%,*})"
# A machine that hangs is ended; without KVM everything takes 10 to 30 times as long as on a machine of its own.
timeout --kill-after=10 "${LIMIT:-1800}" qemu-system-x86_64 -accel "$accelerator" -cpu max -smp 2 -m "$memory" -nographic -no-reboot \
  -nic none -monitor none -serial stdio -kernel "$scratch/kernel/boot/vmlinuz-$release" -initrd "$scratch/initramfs" \
  -append "console=ttyS0 quiet loglevel=3 panic=-1 mitigations=off cgroup_no_v1=all hugepages=8 part=$part test=${TEST:-}" \
  </dev/null 2>&1 | sed -u 's/\r$//' | tee -a "$console" | sed -un 's/^@ //p' || true
if ! grep -qx '@ ok' "$console"; then
  say "--- the end of what the machine says:" >&2
  tail -n 60 "$console" >&2
  die "the machine did not report success"
fi
