-- conversation_touch: activity that was answered from a replica's memo, written behind. Decides nothing: if the epoch has been
-- replaced, suspended or forgotten since, there is nothing left to touch.
--
-- KEYS[1] -> limpet:{<ns>:<p>}:conv:<digest> (string: the record)
-- KEYS[2] -> limpet:{<ns>:<p>}:bound (sorted set: bindings by deadline)
-- --
-- ARGV[1] -> struct '>I8I8': now_us (0 but in tests), granularity_us; then MessagePack
--            {epoch, age_us of the activity, bind_ttl_us or 0}
-- --
-- Returns -> 1 | 0: nothing to touch
-- Errors -> SCHEMA_TOO_NEW, CORRUPT, CLOCK_BEFORE_2026
-- Complexity -> O(log(N)) with N bindings of the partition, at most 4 redis.calls (TIME, GET, ZADD, SET).
local record_key = KEYS[1]
local bound_key = KEYS[2]
-- @include read_time
-- @include record_unpack
-- @include record_settle
-- @include record_write
-- @include bound_member
local BOUND = 2

local override, granularity = struct.unpack('>I8I8', ARGV[1])
local args = cmsgpack.unpack(string.sub(ARGV[1], 17))
local epoch, age, bind_ttl = args[1], args[2], args[3]
local now, early = read_time(override)
if early then
  return early
end

local record, refusal = record_unpack(redis.call('GET', record_key), granularity)
if refusal then
  return refusal
end
if not record or record.forgotten or record.epoch ~= epoch or record.suspend > 0 then
  return 0
end
record_settle(record, now)
local at = now - age
if at <= record.last then
  return 0
end
record.last = at
if bind_ttl > 0 and record.state == BOUND and at <= record.deadline + granularity and at + bind_ttl > record.deadline then
  record.deadline = at + bind_ttl
  redis.call('ZADD', bound_key, string.format('%.0f', record.deadline), bound_member(record_key, record.worker))
end
record_write(record_key, record, granularity)
return 1
