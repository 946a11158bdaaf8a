# remarks.awk - bodies of JSON strings, one a line -> USER_NOTIFY frames.
{ emit2("USER_NOTIFY", json_unescape($0)) }
