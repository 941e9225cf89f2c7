-- conversation_forget: the record goes, its binding with it. What stays for an hour is its ring, so that a retried call
-- meets no new conversation, and its epoch, so that nobody who remembers it takes the next record for a rollback.
--
-- KEYS[1] -> limpet:{<ns>:<p>}:conv:<digest> (string: the record)
-- KEYS[2] -> limpet:{<ns>:<p>}:clock (string: the last tick)
-- KEYS[3] -> limpet:{<ns>:<p>}:bound (sorted set: bindings by deadline)
-- --
-- ARGV[1] -> struct '>I8I8': now_us (0 but in tests), granularity_us; then MessagePack
--            {request id or '', channel, expected epoch or 0}
-- --
-- Returns -> now, length, record, {applied, epoch or 0, decided, clock behind, replayed}; length 0 when there is no record
-- Errors -> IMPLAUSIBLE_EPOCH, SCHEMA_TOO_NEW, CORRUPT, CLOCK_BEFORE_2026
-- Complexity -> O(1), at most 6 redis.calls (TIME, GET, GET of the clock for a lost epoch, ZREM, SET, PUBLISH).
local record_key = KEYS[1]
local clock_key = KEYS[2]
local bound_key = KEYS[3]
-- @include read_time
-- @include record_unpack
-- @include record_settle
-- @include record_write
-- @include seen_target
-- @include ring_find
-- @include ring_add
-- @include bound_member
-- @include publish
-- @include reply
local FORGET = 9

local override, granularity = struct.unpack('>I8I8', ARGV[1])
local args = cmsgpack.unpack(string.sub(ARGV[1], 17))
local request_id, channel, expected = args[1], args[2], args[3]
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
local again = record and ring_find(record.ring, request_id, FORGET)
if again then
  return reply(now, raw, { 1, again[3], 0, 0, 1 })
end
if not record or record.forgotten then
  return reply(now, raw or '', { 0, 0, 0, 0, 0 })
end
local epoch = record.epoch
if expected > 0 and expected < epoch then
  return reply(now, raw, { 0, epoch, 0, 0, 0 })
end
local target, implausible = seen_target(clock_key, now, epoch, expected, 0)
if implausible then
  return implausible
end
epoch = math.max(epoch, target)
if record.state > 0 then
  redis.call('ZREM', bound_key, bound_member(record_key, record.worker))
end
ring_add(record.ring, { request_id, FORGET, epoch, record.ordinal, '', 0, 1, 0 })
record.epoch = epoch -- the fence stays beside it: the next tick goes past both
record.state, record.deadline, record.rebound, record.suspend, record.forgotten = 0, 0, 0, 0, true
record.worker, record.dp_rank, record.incarnation, record.holder, record.last = '', -1, '', '', now
raw = record_write(record_key, record, granularity)
publish(channel, 'forget', record_key, record, '')
return reply(now, raw, { 1, epoch, 1, behind and 1 or 0, 0 })
