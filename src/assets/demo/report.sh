#!/bin/sh
# Prints the total per region of a CSV file (region,amount with a header line), sorted by region.
# Usage: report.sh FILE
set -eu
[ $# -eq 1 ] || {
  echo "usage: report.sh FILE" >&2
  exit 2
}

# The first line is the header.
awk -F, 'NR > 2 { total[$1] += $2 } END { for (region in total) print region, total[region] }' "$1" | sort
