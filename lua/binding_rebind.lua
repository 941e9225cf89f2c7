-- binding_rebind: the worker is lost, so the holder of the fence (or whoever read it) claims anew, with a larger fence.
-- Compare-and-set: the loser changes nothing and follows the winner. The epoch stays: a worker's loss is no new conversation.
--
-- KEYS[1] -> limpet:{<ns>:<p>}:<conv|sess>:<digest> (string: the record)
-- KEYS[2] -> limpet:{<ns>:<p>}:clock (string: the last tick)
-- KEYS[3] -> limpet:{<ns>:<p>}:bound (sorted set: bindings by deadline)
-- --
-- ARGV[1] -> struct '>I8I8': now_us (0 but in tests), granularity_us; then MessagePack
--            {request id or '', channel, fence, reason, worker or '', dp_rank or -1, incarnation or '', holder, claim_ttl_us,
--            retention_ms, durable}
-- --
-- Returns -> now, length, record, {held, state, fence, worker, dp_rank, decided, clock behind, replayed}; held 0: a stale fence
-- Errors -> SCHEMA_TOO_NEW, CORRUPT, CLOCK_BEFORE_2026
-- Complexity -> O(log(N)) with N bindings of the partition, at most 8 redis.calls (TIME, GET, GET and SET of the clock, ZREM,
--               ZADD, SET, PUBLISH).
local record_key = KEYS[1]
local clock_key = KEYS[2]
local bound_key = KEYS[3]
-- @include read_time
-- @include tick
-- @include binding_open
-- @include binding_outcome
-- @include bound_member
-- @include record_write
-- @include ring_add
-- @include publish
-- @include reply
local REBIND, CLAIMED = 8, 1

local override, granularity = struct.unpack('>I8I8', ARGV[1])
local args = cmsgpack.unpack(string.sub(ARGV[1], 17))
local request_id, channel, fence, reason, worker, dp_rank = args[1], args[2], args[3], args[4], args[5], args[6]
local incarnation, holder, claim_ttl, retention_ms, durable = args[7], args[8], args[9], args[10], args[11]
local now, early = read_time(override)
if early then
  return early
end

local raw = redis.call('GET', record_key)
local call, refusal = binding_open(raw, now, granularity, request_id, REBIND, fence)
if refusal then
  return refusal
end
local record, again = call.record, call.again
if again and again[8] == record.fence and record.state == CLAIMED and now <= record.deadline then
  if durable then
    redis.call('SET', record_key, raw, 'KEEPTTL')
  end
  return reply(now, raw, binding_outcome(1, record, call.behind, again, 1))
end
if not call.holds then
  return reply(now, raw or '', binding_outcome(0, record, call.behind, nil, 0))
end
local issued
issued, refusal = tick(clock_key, now, math.max(record.epoch, record.fence))
if refusal then
  return refusal
end
if record.worker ~= worker then
  redis.call('ZREM', bound_key, bound_member(record_key, record.worker))
end
record.state, record.fence, record.holder, record.rebound = CLAIMED, issued, holder, 1
record.worker, record.dp_rank, record.incarnation = worker, dp_rank, incarnation
record.deadline, record.last = now + claim_ttl, now
record.keep_ms = math.max(record.keep_ms, retention_ms)
redis.call('ZADD', bound_key, '+inf', '', string.format('%.0f', record.deadline), bound_member(record_key, worker))
ring_add(record.ring, {
  request_id, REBIND, record.epoch, record.ordinal, reason, 0, CLAIMED, issued, worker, dp_rank,
})
raw = record_write(record_key, record, granularity)
publish(channel, 'rebind', record_key, record, reason)
return reply(now, raw, binding_outcome(1, record, call.behind, nil, 1))
