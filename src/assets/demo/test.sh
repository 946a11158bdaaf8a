#!/bin/sh
# Compares what report.sh prints with what it should print.
set -u
cd "$(dirname "$0")" || exit 2
failed=0

# check NAME FILE EXPECTED
check() {
  got=$(sh report.sh "$2")
  if [ "$got" = "$3" ]; then
    echo "ok - $1"
  else
    echo "not ok - $1"
    echo "  expected: $(echo "$3" | tr '\n' ';')"
    echo "  got:      $(echo "$got" | tr '\n' ';')"
    failed=1
  fi
}

check "totals of all regions" sales.csv "north 150
south 100
west 45"

one=$(mktemp)
trap 'rm -f "$one"' EXIT
printf 'region,amount\neast,7\n' >"$one"
check "a file with one record" "$one" "east 7"

exit "$failed"
