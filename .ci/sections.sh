# Sections of a run, in lanes that run side by side. Sourced by .ci/run.
#
#   lanes FUNCTION…            run each function in a lane of its own, until all have ended
#   section TITLE COMMAND…     in a lane: run one command, or a function that is exported; then print its output, and
#                              its seconds and those of its processes on a core (without servers that are killed)
#   shared TITLE COMMAND…      in several lanes: the same, in the lane that comes to it first; the others go on
#
# The output of a section is printed in one piece when the section ends. A section that fails stops all lanes; its
# output is then the last thing printed, after the table of sections. However the run ends, its processes end with it.

work=$(mktemp -d)
: >"$work/table"
pids=()
trap 'finish $?' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

section() {
  local title=$1 began=$SECONDS result=ok log busy=0 TIMEFORMAT='%0U %0S'
  shift
  log=$(mktemp "$work/log.XXXXXX")
  printf '=== %s: started\n' "$title"
  # In a shell of its own: here "||" would switch "set -e" off inside a function.
  { time bash -euo pipefail -c '"$@"' "$title" "$@" >"$log" 2>&1 || result=failed; } 2>"$log.times"
  if [[ $(tail -n 1 "$log.times") =~ ^([0-9]+)\ ([0-9]+)$ ]]; then busy=$((BASH_REMATCH[1] + BASH_REMATCH[2])); fi
  local seconds=$((SECONDS - began))
  {
    flock 9
    if [ -e "$work/stopping" ]; then result=stopped; fi
    printf '%s\t%s\t%s\t%s\n' "$title" "$seconds" "$busy" "$result" >>"$work/table"
    case $result in
      ok)
        printf '\n=== %s\n' "$title"
        cat "$log"
        printf '=== %s: ok, %d s\n\n' "$title" "$seconds"
        ;;
      stopped)
        printf '\n=== %s: stopped after %d s; its last lines:\n' "$title" "$seconds"
        tail -n 20 "$log"
        ;;
      failed)
        touch "$work/stopping" # from now on the other sections count as stopped
        {
          printf '\n=== %s\n' "$title"
          cat "$log"
          grep -E '^(FAILED|ERROR|Using --randomly-seed)' "$log" | cut -c 1-200 || true # again: a long difference hides them
          printf '=== %s: failed, %d s\n' "$title" "$seconds"
        } >"$work/failed"
        ;;
    esac
  } 9>"$work/lock"
  [ $result = ok ]
}

shared() {
  local taken
  taken=$work/taken.$(cksum <<<"$1" | cut -d ' ' -f 1)
  if mkdir "$taken" 2>/dev/null; then section "$@"; else [ -d "$taken" ]; fi # a full disk must not skip it
}

lanes() {
  local lane left=$#
  set -m # each lane is a process group of its own
  for lane in "$@"; do
    {
      trap : INT # it outlives its interrupted section, to print what that has written
      "$lane"
    } &
    pids+=($!)
  done
  set +m
  while [ "$left" -gt 0 ]; do
    wait -n || exit 1
    left=$((left - 1))
  done
  pids=()
}

# The ids of all processes that descend from one; some of them are in sessions of their own.
descendants() {
  local child
  for child in $(cat "/proc/$1/task/"*/children 2>/dev/null || true); do
    echo "$child"
    descendants "$child"
  done
}

# Interrupt what still runs, as Ctrl-C does, so that it stops its servers; kill what has not ended after 30 s.
stop() {
  local pid started=() tries
  touch "$work/stopping"
  for pid in "${pids[@]}"; do
    started+=("$pid" $(descendants "$pid"))
    kill -INT -- "-$pid" 2>/dev/null || true
  done
  for ((tries = 0; tries < 300; tries++)); do
    jobs -r | grep -q . || break
    sleep 0.1
  done
  for pid in "${pids[@]}"; do kill -KILL -- "-$pid" 2>/dev/null || true; done
  for pid in "${started[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
  wait
}

finish() {
  local status=$1 title seconds busy result
  trap '' INT TERM HUP
  trap - EXIT
  set +e
  stop
  printf '\n%-64s %8s %8s  %s\n' section seconds busy result
  while IFS=$'\t' read -r title seconds busy result; do
    printf '%-64s %8d %8d  %s\n' "$title" "$seconds" "$busy" "$result"
  done <"$work/table"
  printf '%-64s %8d\n' 'in all' "$SECONDS"
  if [ -e "$work/failed" ]; then cat "$work/failed"; fi
  if [ "$status" = 0 ]; then printf '\nEverything passed in %d s.\n' "$SECONDS"; fi
  rm -rf "$work"
  exit "$status"
}
