#!/bin/busybox sh
# SPDX-License-Identifier: MIT
# The init of nvidia.sh's guest. Loads and unloads nvidia.ko and gdrdrv in each order, calls the node, takes the GPU
# away. Prints TAP, TOTAL and EXIT.
export PATH=/bin:/usr/bin LD_LIBRARY_PATH=/usr/lib
for fs in proc:/proc sysfs:/sys devtmpfs:/dev tmpfs:/tmp debugfs:/sys/kernel/debug; do
	mkdir -p "${fs#*:}" && mount -t "${fs%:*}" "${fs%:*}" "${fs#*:}"
done
exec >/dev/console 2>&1
ln -s kmod /usr/bin/modprobe
ln -s kmod /usr/bin/depmod
release=$(sed 's/.*rig.release=\([^ ]*\).*/\1/' /proc/cmdline)
gpu=0001:00:00.0 passed=0 failed=0

# ok NAME COMMAND...: the command succeeds, and so does fails NAME COMMAND... if it does not
ok() {
	name=$1
	shift
	if "$@" >/tmp/out 2>&1; then
		passed=$((passed + 1))
		echo "ok $((passed + failed)) - $name"
	else
		failed=$((failed + 1))
		echo "not ok $((passed + failed)) - $name"
		dmesg | tail -n 5 | cat /tmp/out - | sed 's/^/# /'
	fi
	grep '^#' /tmp/out
}
fails() {
	name=$1
	shift
	not() { ! "$@"; }
	ok "$name" not "$@"
}
loaded() { [ -d "/sys/module/$1" ]; }
said() { dmesg | grep -q "$1"; }

# Nothing but what nvidia.ko itself warns of. Lockdep turns itself off at its first report.
log_is_clean() {
	! dmesg | grep -E 'BUG|WARNING:|KASAN|UBSAN|Oops|possible (circular|recursive)|inconsistent lock|INFO: task|refcount_t:|sleeping function' &&
		! grep -qs 'debug_locks: *0' /proc/lockdep_stats
}
nothing_left() {
	[ "$(cat /proc/driver/gdrdrv/nv_get_pages_refcount)" = 0 ] && grep -q 'Kept until the reboot: no' /proc/driver/gdrdrv/params
}

ok "the log at the start" log_is_clean
fails "gdrdrv before nvidia.ko is refused" insmod /mod/gdrdrv-computed.ko
fails "... and leaves no node" test -e /dev/gdrdrv
insmod /mod/fakegpu.ko
[ ! -e /mod/drm.ko ] || insmod /mod/drm.ko
ok "nvidia.ko loads beside the fake GPU" insmod /mod/nvidia.ko
ok "... of release $release" test "$(cat /sys/module/nvidia/version)" = "$release"
ok "... and is bound to it" test -e "/proc/driver/nvidia/gpus/$gpu"
fails "gdrdrv of another release's header is refused" insmod /mod/gdrdrv-other.ko
if said "disagrees about version of symbol nvidia_p2p"; then
	ok "... by its versions of symbols" true
else
	ok "... by the symbols that it lacks" false
fi
for how in computed symvers; do
	for mode in persistent callback; do
		ok "gdrdrv loads, $how, $mode" insmod /mod/gdrdrv-$how.ko use_persistent_mapping=$([ $mode = persistent ] && echo 1 || echo 0)
		ok "... it uses nvidia.ko" test -d /sys/module/nvidia/holders/gdrdrv
		fails "... which cannot be unloaded first" rmmod nvidia
		ok "... every pin is refused" refused
		ok "... storms of pins too" refused storm 5
		ok "... none is left" nothing_left
		refused hold 3 &
		sleep 1
		fails "... an open node keeps the module" rmmod gdrdrv
		wait
		[ $how = symvers ] || ok "... what the doctor says of the node" doctor.sh
		ok "... gdrdrv unloads" rmmod gdrdrv
	done
	ok "nvidia.ko unloads after it" rmmod nvidia
	ok "... and loads again" insmod /mod/nvidia.ko
done

# as installed: modprobe of kmod, busybox has its own
rmmod nvidia
modules=/lib/modules/$(uname -r)
mkdir -p "$modules/updates" /etc/modprobe.d
touch "$modules/modules.order" "$modules/modules.builtin"
cp /rig.commands /etc/modprobe.d/barcopy.conf
for name in drm nvidia gdrdrv-computed; do [ ! -e /mod/$name.ko ] || cp /mod/$name.ko "$modules/updates/${name%-*}.ko"; done
/usr/bin/depmod
ok "modprobe gdrdrv" /usr/bin/modprobe gdrdrv
ok "... loads nvidia.ko" loaded nvidia
ok "modprobe -r gdrdrv" /usr/bin/modprobe -r gdrdrv
fails "... leaves no gdrdrv" loaded gdrdrv
loaded nvidia || insmod /mod/nvidia.ko

insmod /mod/gdrdrv-computed.ko
ok "the GPU is unbound under gdrdrv" sh -c "echo $gpu >/sys/bus/pci/drivers/nvidia/unbind"
ok "... every pin is refused" refused
ok "... and bound again" sh -c "echo $gpu >/sys/bus/pci/drivers/nvidia/bind"
ok "... every pin is refused" refused
ok "the GPU is removed" sh -c "echo 1 >/sys/bus/pci/devices/$gpu/remove"
ok "... every pin is refused" refused
ok "... none is left" nothing_left
ok "gdrdrv unloads" rmmod gdrdrv
ok "nvidia.ko unloads" rmmod nvidia

ok "the log at the end" log_is_clean
echo "TOTAL $passed passed, $failed failed, 0 skipped"
echo "EXIT $((failed > 0))"
reboot -f
