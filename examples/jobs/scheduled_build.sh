#!/usr/bin/env bash
# Brings the indexes of one or more tables up to date: for cron, and for whatever else runs a command from time to time.
#
#   */15 * * * *  /opt/lakemark/scheduled_build.sh /data/lake/flights /data/lake/orders
#
# A build is incremental: it reads only what no index covers yet, and does nothing if that is nothing. Two builds at
# once do no harm: each leaves to the other what that one has finished. A lock lets it wait for the next turn all the same.
# Until a build has committed, and if it fails, queries answer from the indexes that are there and scan the rest.
# A build that was stopped is gone on with at the next turn.
#
# LAKEMARK              the command (lakemark)
# LAKEMARK_BUILD_LOCK   the file of the lock (in TMPDIR, one for each user)
# LAKEMARK_METRICS      a folder for one file of metrics per table, such as that of node_exporter's textfile collector
#
# Exit code: 0 all up to date, 1 a build failed or left files out (the others were still done), 2 wrong usage.
set -uo pipefail

LAKEMARK=${LAKEMARK:-lakemark}
LOCK=${LAKEMARK_BUILD_LOCK:-${TMPDIR:-/tmp}/lakemark-build-$(id -u).lock}

if [ $# -eq 0 ]; then
  echo "usage: $0 TABLE..." >&2
  exit 2
fi

exec 9>"$LOCK"
if ! flock --nonblock 9; then
  echo "$(date -u +%FT%TZ) another build is running: nothing done" >&2
  exit 0
fi

failed=0
for table in "$@"; do
  metrics=()
  if [ -n "${LAKEMARK_METRICS:-}" ]; then
    # Of the whole name, as the last parts of two tables may be the same.
    name=$(printf %s "$table" | sha256sum | cut --characters 1-16)
    metrics=(--metrics-file "$LAKEMARK_METRICS/lakemark-$name.prom")
  fi
  started=$(date +%s)
  "$LAKEMARK" index build --quiet "${metrics[@]}" "$table"
  case $? in
    0) echo "$(date -u +%FT%TZ) $table: up to date after $(($(date +%s) - started)) s" >&2 ;;
    3)
      echo "$(date -u +%FT%TZ) $table: up to date but for files that could not be indexed" >&2
      failed=1
      ;;
    *)
      echo "$(date -u +%FT%TZ) $table: the build failed; what it had finished is committed" >&2
      failed=1
      ;;
  esac
done
exit "$failed"
