# SPDX-License-Identifier: MIT
# shellcheck shell=sh disable=SC2034,SC2154,SC1090,SC1091
# For scenarios: guests, daemons, and what is expected of them.

fail() {
  echo "FAILED: $*"
  exit 1
}

# random_image FILE MIB: an image of which no two blocks are alike.
random_image() {
  head -c "$(($2 << 20))" /dev/urandom >"$1" || fail "no room for $1"
}
sum() { md5sum <"$1" | cut -d' ' -f1; }

# make_guest NAME SCRIPT [KERNEL_ARGUMENT...]: a guest, paused, that will run SCRIPT; sets $domain.
make_guest() {
  guest=$1
  script=$2
  shift 2
  mkdir -p /tmp/overlay
  cp "$script" /tmp/overlay/scenario.sh
  # The kernel unpacks archives that follow each other, and later files win.
  { cat /xen_vm/guest.cpio; (cd /tmp/overlay && find . | cpio -o -H newc 2>/dev/null); } >/tmp/guest.cpio
  cat >"/tmp/$guest.cfg" <<END
name = "$guest"
type = "pv"
kernel = "/xen_vm/vmlinux"
ramdisk = "/tmp/guest.cpio"
memory = ${GUEST_MEMORY:-192}
vcpus = ${GUEST_CPUS:-1}
extra = "console=hvc0 quiet rodata=off cryptomgr.notests mitigations=off random.trust_cpu=on audit=0 init_on_alloc=0 $*"
on_poweroff = "preserve"
on_reboot = "destroy"
on_crash = "preserve"
END
  xl create -p -q "/tmp/$guest.cfg" || fail "xl create $guest"
  domain=$(xl domid "$guest")
}
guest_log() { tr -d '\r' <"/var/log/xen/guest-$guest.log"; }
# run_guest [SECONDS]: lets it run to its end, and shows what it printed. Preserved at its end, because a guest that is
# destroyed at once takes the last lines of its console with it.
run_guest() {
  xl unpause "$guest" || fail "xl unpause $guest"
  wait_guest "$@"
}
# start_guest WORD: lets it run until it prints a line that begins so; wait_guest then waits for its end.
start_guest() {
  xl unpause "$guest" || fail "xl unpause $guest"
  tries=0
  until guest_log 2>/dev/null | grep -qE "^$1|^GUEST-EXIT"; do
    [ $tries -lt 240 ] || fail "the guest did not come so far: $(guest_log)"
    sleep 0.25
    tries=$((tries + 1))
  done
  guest_log | grep -q "^$1" || fail "the guest ended before it came so far: $(guest_log)"
}
wait_guest() {
  tries=$((${1:-90} * 4))
  while [ $tries -gt 0 ]; do
    status=$(guest_log 2>/dev/null | sed -n 's/^GUEST-EXIT: \([0-9]*\)$/\1/p')
    [ -n "$status" ] && break
    sleep 0.25
    tries=$((tries - 1))
  done
  guest_log | sed 's/^/  guest: /'
  [ -n "$status" ] || fail "the guest did not end in time"
  [ "$status" = 0 ] || fail "the guest's script ended with $status"
}

# serve TYPE [OPTION...]: the daemon for the devices below backend/TYPE.
serve() {
  type=$1
  shift
  pvring-blk serve --type "$type" "$@" >"/tmp/daemon-$type.log" 2>&1 &
  daemon=$!
  daemons="${daemons-} $daemon"
}
# wait_state NODE STATE [SECONDS]
wait_state() {
  tries=$((${3:-20} * 10))
  while [ $tries -gt 0 ]; do
    [ "$(xenstore-read "$1/state" 2>/dev/null)" = "$2" ] && return 0
    sleep 0.1
    tries=$((tries - 1))
  done
  fail "$1 did not come to state $2 but $(xenstore-read "$1/state" 2>&1)"
}
# stop_daemon: as a service manager does; it has to end by itself and say that all went well.
stop_daemon() {
  kill -TERM "$daemon"
  wait "$daemon" || fail "the daemon ended with $?"
  daemon=
}
clean_up() {
  code=$?
  for daemon in ${daemons-}; do
    kill -KILL "$daemon" 2>/dev/null
  done
  if [ $code != 0 ]; then
    for log in /tmp/daemon-*.log; do
      [ -f "$log" ] && sed "s|^|  ${log##*/}: |" "$log" | tail -n 40
    done
    dmesg | tail -n 5 | sed 's/^/  dom0: /'
  fi
  [ -z "${guest-}" ] || xl destroy "$guest" 2>/dev/null
  for type in $(xenstore-list /local/domain/0/backend 2>/dev/null); do
    case $type in pvring*) xenstore-rm "/local/domain/0/backend/$type" ;; esac
  done
  rm -rf /tmp/*
}
