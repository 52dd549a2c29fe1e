# SPDX-License-Identifier: MIT
# shellcheck shell=sh disable=SC2034,SC2154,SC1090,SC1091
# The daemon is killed again and again under a guest's load, and started again each time: the guest's I/O goes on, none of it
# fails, and what it wrote is there. One disk per grant strategy.
for letter in a b c; do random_image "/tmp/$letter.img" 4; done
cat >/tmp/guest.sh <<'END'
modprobe xen-blkfront
for letter in a b c; do wait_disk "xvd$letter" || exit 1; done
# A further disk says that it is enough. What has been read and written is compared at the end of each round; the random part differs from round to round.
load() {
  disk=/dev/xvd$1
  head -c 4194304 /dev/urandom >"/tmp/$1"
  round=0
  while [ ! -b /dev/xvdd ]; do
    dd if="/tmp/$1" of="$disk" bs=64k oflag=direct conv=notrunc 2>/dev/null || { echo "WRITE FAILED $disk"; return 1; }
    dd if="$disk" of="/tmp/$1.back" bs=32k iflag=direct 2>/dev/null || { echo "READ FAILED $disk"; return 1; }
    cmp "/tmp/$1" "/tmp/$1.back" || { echo "DIFFERENT $disk"; return 1; }
    dd if=/dev/urandom of="/tmp/$1" bs=64k count=8 seek=$((round % 56)) conv=notrunc 2>/dev/null
    dd if="/tmp/$1" of="$disk" bs=4k count=128 oflag=direct conv=notrunc,fsync 2>/dev/null || { echo "FSYNC FAILED $disk"; return 1; }
    round=$((round + 1))
  done
  dd if="/tmp/$1" of="$disk" bs=64k oflag=direct conv=notrunc,fsync 2>/dev/null || return 1
  echo "$1 $round rounds $(md5sum <"/tmp/$1" | cut -d' ' -f1)"
}
echo BUSY
load a & one=$!
load b & two=$!
load c & three=$!
wait $one && wait $two && wait $three
END
make_guest killed /tmp/guest.sh
start() {
  serve pvring-copy --grants copy --journals /tmp/journals/copy
  copy=$daemon
  serve pvring-persistent --grants persistent --journals /tmp/journals/persistent
  persistent=$daemon
  serve pvring-map --grants map --journals /tmp/journals/map
  map=$daemon
}
start
pvring-blk attach --type pvring-copy --domain "$domain" --device xvda --image /tmp/a.img || fail "attach a"
pvring-blk attach --type pvring-persistent --domain "$domain" --device xvdb --image /tmp/b.img || fail "attach b"
pvring-blk attach --type pvring-map --domain "$domain" --device xvdc --image /tmp/c.img || fail "attach c"
start_guest BUSY
# took_over ROUND: waits until all three have said so, as often as they were started again.
took_over() {
  tries=0
  until [ "$(cat /tmp/earlier.log /tmp/daemon-*.log | grep -c 'taken over')" -ge $((3 * $1)) ]; do
    [ $tries -lt 240 ] || fail "after $1 restarts not every daemon took over: $(tail -n 3 /tmp/daemon-*.log)"
    sleep 0.25
    tries=$((tries + 1))
  done
}
touch /tmp/earlier.log
for round in 1 2 3 4; do
  sleep 1
  kill -KILL "$copy" "$persistent" "$map"
  wait "$copy" "$persistent" "$map" 2>/dev/null
  cat /tmp/daemon-*.log >>/tmp/earlier.log
  start
  took_over "$round"
done
random_image /tmp/d.img 1
pvring-blk attach --type pvring-copy --domain "$domain" --device xvdd --image /tmp/d.img || fail "attach d"
wait_guest 90
for letter in a b c; do
  guest_log | grep -q "^$letter [1-9][0-9]* rounds $(sum /tmp/$letter.img)\$" || fail "disk $letter: the image holds something else"
done
for daemon in "$copy" "$persistent" "$map"; do stop_daemon; done
[ -z "$(find /tmp/journals -type f)" ] || fail "journals were left: $(find /tmp/journals -type f)"
