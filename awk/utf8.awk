# utf8.awk - bytes -> clean UTF-8 (CONTRACT section 4): what is no UTF-8 becomes U+FFFD, one for each maximal part.
#
# Run      tr '\000' '\377' | LC_ALL=C awk -f json.awk -f utf8.awk        (the tr makes U+FFFD of NUL, in every awk)
# Input    bytes.    Output   the same text, clean; each line ended by LF. -v: none.

{ print json_clean($0) }
