std = "lua51"
read_globals = { "KEYS", "ARGV", "redis", "cmsgpack", "cjson", "struct", "bit" }
max_line_length = 160
-- The assembled text is one chunk, so a shared function's parameter may have the name of a script's own local.
ignore = { "431" }
