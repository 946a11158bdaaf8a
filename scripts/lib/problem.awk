# problem.awk - a message on stdin -> the `error` event that says it, without ts and brace.
{ part[NR] = (NR > 1 ? "\n" : "") $0 }
END { print "{\"type\":\"error\",\"message\":" json_quote(json_clean(join_pieces(part, 1, NR))) }
