-- binding_confirm: the claim becomes a binding, to the worker that really served if one is named. An activity.
--
-- KEYS[1] -> limpet:{<ns>:<p>}:<conv|sess>:<digest> (string: the record)
-- KEYS[2] -> limpet:{<ns>:<p>}:bound (sorted set: bindings by deadline)
-- --
-- ARGV[1] -> struct '>I8I8': now_us (0 but in tests), granularity_us; then MessagePack
--            {request id or '', channel, fence, worker or '', dp_rank or -1, incarnation or '', bind_ttl_us, retention_ms, durable}
-- --
-- Returns -> now, length, record, {held, state, fence, worker, dp_rank, decided (2: but not written again), clock behind,
--            replayed}; held 0: a stale fence
-- Errors -> SCHEMA_TOO_NEW, CORRUPT, CLOCK_BEFORE_2026
-- Complexity -> O(log(N)) with N bindings of the partition, at most 6 redis.calls (TIME, GET, ZREM, ZADD, SET, PUBLISH).
local record_key = KEYS[1]
local bound_key = KEYS[2]
-- @include read_time
-- @include binding_open
-- @include binding_outcome
-- @include bound_member
-- @include record_write
-- @include ring_add
-- @include publish
-- @include reply
local CONFIRM, BOUND = 4, 2

local override, granularity = struct.unpack('>I8I8', ARGV[1])
local args = cmsgpack.unpack(string.sub(ARGV[1], 17))
local request_id, channel, fence, worker, dp_rank, incarnation = args[1], args[2], args[3], args[4], args[5], args[6]
local bind_ttl, retention_ms, durable = args[7], args[8], args[9]
local now, early = read_time(override)
if early then
  return early
end

local raw = redis.call('GET', record_key)
local call, refusal = binding_open(raw, now, granularity, request_id, CONFIRM, fence)
if refusal then
  return refusal
end
local record = call.record
if call.again then
  local current = call.again[8] == record.fence
  if durable and current then
    redis.call('SET', record_key, raw, 'KEEPTTL')
  end
  return reply(now, raw, binding_outcome(1, record, call.behind, call.again, current and 1 or 2))
end
if not call.holds then
  return reply(now, raw or '', binding_outcome(0, record, call.behind, nil, 0))
end
if worker == '' then
  worker = record.worker
elseif record.worker ~= worker then
  redis.call('ZREM', bound_key, bound_member(record_key, record.worker))
  record.worker, record.dp_rank, record.incarnation = worker, -1, ''
end
if incarnation ~= '' then
  record.incarnation = incarnation
end
if dp_rank >= 0 then
  record.dp_rank = dp_rank
end
record.deadline = math.max(record.state == BOUND and record.deadline or 0, now + bind_ttl)
record.state, record.last = BOUND, now
record.keep_ms = math.max(record.keep_ms, retention_ms)
redis.call('ZADD', bound_key, '+inf', '', string.format('%.0f', record.deadline), bound_member(record_key, worker))
ring_add(record.ring, {
  request_id, CONFIRM, record.epoch, record.ordinal, '', 0, BOUND, fence, worker, record.dp_rank,
})
raw = record_write(record_key, record, granularity)
publish(channel, 'bind', record_key, record, '')
return reply(now, raw, binding_outcome(1, record, call.behind, nil, 1))
