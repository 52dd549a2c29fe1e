# SPDX-License-Identifier: MIT
# bash completion for pvring-blk(8)

_pvring_blk() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]-}
  local where='--platform --socket --type --backend-domain'
  local serving='--engine --grants --reap --wait --queues --ring-order --max-indirect --cpus --direct --journals --stats --metrics --trace
    --log-level --log-json'
  local device='--domain --device'
  local choice=''
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W 'serve attach detach list try --help --version' -- "$word")
    return
  fi
  case $before in
    --platform) choice='xen emulated' ;;
    --engine) choice='auto libaio uring' ;;
    --grants) choice='auto copy persistent map' ;;
    --reap) choice='user syscall polled' ;;
    --wait) choice='event busy adaptive' ;;
    --direct) choice='auto on off' ;;
    --log-level) choice='debug info warning error' ;;
    --device) choice='xvda xvdb xvdc xvdd' ;;
    --domain)
      # Those that run, where xl is there to ask.
      choice=$(xl list 2>/dev/null | awk 'NR > 1 && $2 != 0 { print $2 }') ;;
    --type)
      choice=$(xenstore-list backend 2>/dev/null) ;;
    --image | --config | --socket | --trace | --metrics | --copy-to)
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -f -- "$word")
      return ;;
  esac
  if [[ -z $choice && $word == -* ]]; then
    case $command in
      serve) choice="$where $serving --config" ;;
      attach) choice="$where $device --image --read-only --cdrom --removable --no-discard --serve $serving" ;;
      detach) choice="$where $device --timeout --force-after" ;;
      list) choice="$where --json" ;;
      try) choice="--socket $device --queues --ring-order --seconds --copy-to" ;;
    esac
    choice+=' --help'
  fi
  mapfile -t COMPREPLY < <(compgen -W "$choice" -- "$word")
}
complete -F _pvring_blk pvring-blk
