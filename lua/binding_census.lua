-- binding_census: how many claims and bindings of a partition are live, per worker; a bounded part of them in one call.
--
-- KEYS[1] -> limpet:{<ns>:<p>}:bound (sorted set: bindings by deadline)
-- --
-- ARGV[1] -> struct '>I8I8I8': now_us (0 but in tests), granularity_us, offset (int, of the first member looked at)
-- --
-- Returns -> MessagePack {next offset or 0, worker -> count (map)}; a claim that names no worker counts under ''
-- Errors -> CLOCK_BEFORE_2026
-- Flags -> no-writes
-- Complexity -> O(log(N) + M) for M <= 2000 members of a set of N; 2 redis.calls (TIME, ZRANGEBYSCORE).
local bound_key = KEYS[1]
-- @include read_time
local override, granularity, offset = struct.unpack('>I8I8I8', ARGV[1])
local now, early = read_time(override)
if early then
  return early
end
local members = redis.call('ZRANGEBYSCORE', bound_key, string.format('%.0f', now - granularity), '(+inf', 'LIMIT', offset, 2000)
local counts = {}
for i = 1, #members do
  local worker = string.sub(members[i], 39)
  counts[worker] = (counts[worker] or 0) + 1
end
return cmsgpack.pack({ #members == 2000 and offset + 2000 or 0, counts })
