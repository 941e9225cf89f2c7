-- conversation_suspend: the next turn resets, or, with a window, resumes within it and resets later. No activity.
--
-- KEYS[1] -> limpet:{<ns>:<p>}:conv:<digest> (string: the record)
-- --
-- ARGV[1] -> struct '>I8I8': now_us (0 but in tests), granularity_us; then MessagePack
--            {request id or '', channel, window_us (0: the next turn resets)}
-- --
-- Returns -> now, length, record, {applied, epoch or 0, decided, clock behind, replayed}; length 0 when there is no record
-- Errors -> SCHEMA_TOO_NEW, CORRUPT, CLOCK_BEFORE_2026
-- Complexity -> O(1), at most 4 redis.calls (TIME, GET, SET, PUBLISH).
local record_key = KEYS[1]
-- @include read_time
-- @include record_unpack
-- @include record_settle
-- @include record_write
-- @include ring_find
-- @include ring_add
-- @include publish
-- @include reply
local SUSPEND = 3

local override, granularity = struct.unpack('>I8I8', ARGV[1])
local args = cmsgpack.unpack(string.sub(ARGV[1], 17))
local request_id, channel, window = args[1], args[2], args[3]
local now, early = read_time(override)
if early then
  return early
end

local raw = redis.call('GET', record_key)
local record, refusal = record_unpack(raw, granularity)
if refusal then
  return refusal
end
local behind = record ~= nil and record_settle(record, now)
local again = record and ring_find(record.ring, request_id, SUSPEND)
if again then
  return reply(now, raw, { 1, again[3], 0, 0, 1 })
end
if not record or record.forgotten then
  return reply(now, raw or '', { 0, 0, 0, 0, 0 })
end
record.suspend = window > 0 and now + window or 1
ring_add(record.ring, { request_id, SUSPEND, record.epoch, record.ordinal, record.reason, 0, 1, 0 })
raw = record_write(record_key, record, granularity)
publish(channel, 'suspend', record_key, record, '')
return reply(now, raw, { 1, record.epoch, 1, behind and 1 or 0, 0 })
