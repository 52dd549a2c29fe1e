# SPDX-License-Identifier: MIT
# shellcheck shell=sh disable=SC2034,SC2154,SC1090,SC1091
# A guest's own xen-blkfront reads a whole disk, writes, flushes and reads back, with each grant strategy; both ends
# compare checksums.
mib=24
cat >/tmp/guest.sh <<'END'
modprobe xen-blkfront
for disk in xvda xvdb xvdc; do
  wait_disk $disk || exit 1
  echo "$disk whole $(dd if=/dev/$disk bs=1M 2>/dev/null | md5sum | cut -d' ' -f1)"
  # Random places, sizes that are no multiples of a page's, and large requests.
  yes "$disk pvring" | head -c 300032 >/tmp/pattern
  dd if=/tmp/pattern of=/dev/$disk bs=512 seek=4099 conv=fsync 2>/dev/null || exit 2
  dd if=/tmp/pattern of=/dev/$disk bs=1M seek=9 conv=fsync 2>/dev/null || exit 2
  echo 3 >/proc/sys/vm/drop_caches
  echo "$disk back $(dd if=/dev/$disk bs=512 skip=4099 count=586 2>/dev/null | md5sum | cut -d' ' -f1)"
  echo "$disk again $(dd if=/dev/$disk bs=1M 2>/dev/null | md5sum | cut -d' ' -f1)"
done
dmesg | grep -E 'I/O error|blk_update' && exit 3
true
END
make_guest strategies /tmp/guest.sh
for pair in xvda:copy xvdb:map xvdc:persistent; do
  disk=${pair%:*} grants=${pair#*:}
  random_image "/tmp/$disk.img" $mib
  sum "/tmp/$disk.img" >"/tmp/$disk.before"
  serve "pvring-$grants" --grants "$grants"
  pvring-blk attach --type "pvring-$grants" --domain "$domain" --device "$disk" --image "/tmp/$disk.img" || fail "attach $disk"
done
run_guest 120
for pair in xvda:copy xvdb:map xvdc:persistent; do
  disk=${pair%:*} grants=${pair#*:}
  yes "$disk pvring" | head -c 300032 >/tmp/pattern
  guest_log | grep -q "^$disk whole $(cat "/tmp/$disk.before")$" || fail "$disk: what the guest read first is not the image"
  guest_log | grep -q "^$disk back $(sum /tmp/pattern)$" || fail "$disk: the guest did not read back what it wrote"
  guest_log | grep -q "^$disk again $(sum "/tmp/$disk.img")$" || fail "$disk: what the guest read at last is not the image"
  [ "$(dd if="/tmp/$disk.img" bs=512 skip=4099 count=586 2>/dev/null | md5sum)" = "$(md5sum </tmp/pattern)" ] ||
    fail "$disk: the image does not hold what the guest wrote"
done
for daemon in $daemons; do
  stop_daemon
done
cat /tmp/daemon-*.log
