# SPDX-License-Identifier: MIT
# shellcheck shell=sh disable=SC2034,SC2154,SC1090,SC1091
# A guest makes a file system on a disk with several queues and 16 ring pages, unpacks files into it, reads them back after
# a remount; dom0's e2fsck finds the image clean, and finds the files.
truncate -s 96M /tmp/disk.img
cat >/tmp/guest.sh <<'END'
modprobe xen-blkfront
wait_disk xvda || exit 1
/sbin/mke2fs -q -t ext4 -O ^has_journal -F /dev/xvda || exit 2
echo "features $(cat /sys/block/xvda/queue/max_segments) $(ls /sys/block/xvda/mq | wc -l)"
modprobe ext4
mount -t ext4 /dev/xvda /mnt || exit 3
mkdir /mnt/files
for i in $(seq 40); do
  head -c $((i * 50000)) /dev/urandom >/mnt/files/$i
done
cp -r /lib/modules /mnt/files/
(cd /mnt/files && find . -type f | sort | xargs md5sum) >/tmp/sums
umount /mnt || exit 4
mount -t ext4 /dev/xvda /mnt || exit 5
(cd /mnt/files && md5sum -c -s /tmp/sums) || exit 6
cp /tmp/sums /mnt/sums
umount /mnt || exit 7
dmesg | grep -E 'I/O error|blk_update' && exit 8
true
END
GUEST_CPUS=2 make_guest filesystem /tmp/guest.sh xen_blkfront.max_ring_page_order=4 xen_blkfront.max_queues=4
serve pvring --queues 4 --ring-order 4
pvring-blk attach --type pvring --domain "$domain" --device xvda --image /tmp/disk.img || fail "attach"
front=/local/domain/$domain/device/vbd/51712
xl unpause "$guest"
wait_state "/local/domain/0/backend/pvring/$domain/51712" 4 60
echo "queues $(xenstore-read "$front/multi-queue-num-queues"), ring order $(xenstore-read "$front/ring-page-order" 2>&1)"
[ "$(xenstore-read "$front/multi-queue-num-queues")" = 2 ] || fail "a guest with two CPUs has not taken two queues"
wait_guest 150
stop_daemon
/xen_vm/e2fsck -fn /tmp/disk.img || fail "e2fsck finds the image wrong"
mkdir -p /tmp/mnt
mount -o loop,ro /tmp/disk.img /tmp/mnt || fail "dom0 cannot mount the image"
(cd /tmp/mnt/files && md5sum -c -s /tmp/mnt/sums) || fail "the image does not hold the guest's files"
umount /tmp/mnt
