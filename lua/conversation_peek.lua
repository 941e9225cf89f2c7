-- conversation_peek: the record as it is. Reads only: no touch, no policy, no claim.
--
-- KEYS[1] -> limpet:{<ns>:<p>}:conv:<digest> (string: the record)
-- --
-- ARGV[1] -> struct '>I8': now_us (0 but in tests)
-- --
-- Returns -> now, record | now
-- Errors -> CLOCK_BEFORE_2026
-- Flags -> no-writes
-- Complexity -> O(1), 2 redis.calls (TIME, GET).
local record_key = KEYS[1]
-- @include read_time
local override = struct.unpack('>I8', ARGV[1])
local now, early = read_time(override)
if early then
  return early
end
local raw = redis.call('GET', record_key) or ''
return struct.pack('>BI8', 0xcf, now) .. raw
