-- conversation_advance: a new conversation in place of the old one, by the host's own decision. Releases the binding.
--
-- KEYS[1] -> limpet:{<ns>:<p>}:conv:<digest> (string: the record)
-- KEYS[2] -> limpet:{<ns>:<p>}:clock (string: the last tick)
-- KEYS[3] -> limpet:{<ns>:<p>}:bound (sorted set: bindings by deadline)
-- --
-- ARGV[1] -> struct '>I8I8': now_us (0 but in tests), granularity_us; then MessagePack
--            {request id or '', channel, retention_ms, reason, expected epoch or 0, durable}
-- --
-- Returns -> now, length, record, {applied, epoch, ordinal, previous epoch or 0, decided, clock behind, replayed}
-- Errors -> IMPLAUSIBLE_EPOCH, SCHEMA_TOO_NEW, CORRUPT, CLOCK_BEFORE_2026
-- Complexity -> O(1), at most 8 redis.calls (TIME, GET, GET of the clock for a lost epoch, GET and SET of it, ZREM, SET, PUBLISH).
local record_key = KEYS[1]
local clock_key = KEYS[2]
local bound_key = KEYS[3]
-- @include read_time
-- @include record_unpack
-- @include record_settle
-- @include record_write
-- @include record_begin
-- @include seen_target
-- @include ring_find
-- @include ring_add
-- @include publish
-- @include reply
local ADVANCE = 2

local override, granularity = struct.unpack('>I8I8', ARGV[1])
local args = cmsgpack.unpack(string.sub(ARGV[1], 17))
local request_id, channel, retention_ms, reason, expected, durable = args[1], args[2], args[3], args[4], args[5], args[6]
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

-- Nothing is decided here, but the answer may have to be durable: then the record is written again as it is, since a WAIT
-- after no write answers at once.
local function unchanged(applied, epoch, ordinal, previous, replayed)
  if behind then
    raw = record_write(record_key, record, granularity)
  elseif durable then
    redis.call('SET', record_key, raw, 'KEEPTTL')
  end
  return reply(now, raw, { applied, epoch, ordinal, previous, 1, behind and 1 or 0, replayed })
end

local again = record and ring_find(record.ring, request_id, ADVANCE)
if again then
  return unchanged(again[7], again[3], again[4], again[6], 1)
end

local epoch = record and record.epoch or 0
if expected > 0 and expected < epoch then
  return unchanged(0, epoch, record.ordinal, 0, 0)
end
local target, implausible = seen_target(clock_key, now, epoch, expected, 0)
if implausible then
  return implausible
end
local keep_ms = record and math.max(record.keep_ms, retention_ms) or retention_ms
record, refusal = record_begin({ record = record_key, clock = clock_key, bound = bound_key }, now, record, reason, target, keep_ms)
if refusal then
  return refusal
end
ring_add(record.ring, { request_id, ADVANCE, record.epoch, record.ordinal, reason, record.previous, 1, 0 })
raw = record_write(record_key, record, granularity)
publish(channel, 'advance', record_key, record, reason)
return reply(now, raw, { 1, record.epoch, record.ordinal, record.previous, 1, behind and 1 or 0, 0 })
