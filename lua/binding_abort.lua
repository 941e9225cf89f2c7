-- binding_abort: the first request failed, so the claim goes; the next turn is told to bind. A binding that was confirmed goes too:
-- whoever holds its fence says that the backend does not serve it.
--
-- KEYS[1] -> limpet:{<ns>:<p>}:<conv|sess>:<digest> (string: the record)
-- KEYS[2] -> limpet:{<ns>:<p>}:bound (sorted set: bindings by deadline)
-- --
-- ARGV[1] -> struct '>I8I8': now_us (0 but in tests), granularity_us; then MessagePack
--            {request id or '', channel, fence, reason}
-- --
-- Returns -> now, length, record, {held, state, fence, worker, dp_rank, decided, clock behind, replayed}; held 0: a stale fence
-- Errors -> SCHEMA_TOO_NEW, CORRUPT, CLOCK_BEFORE_2026
-- Complexity -> O(log(N)) with N bindings of the partition, at most 5 redis.calls (TIME, GET, ZREM, SET, PUBLISH).
local record_key = KEYS[1]
local bound_key = KEYS[2]
-- @include read_time
-- @include binding_open
-- @include binding_outcome
-- @include binding_release
-- @include record_write
-- @include ring_add
-- @include publish
-- @include reply
local ABORT = 5

local override, granularity = struct.unpack('>I8I8', ARGV[1])
local args = cmsgpack.unpack(string.sub(ARGV[1], 17))
local request_id, channel, fence, reason = args[1], args[2], args[3], args[4]
local now, early = read_time(override)
if early then
  return early
end

local raw = redis.call('GET', record_key)
local call, refusal = binding_open(raw, now, granularity, request_id, ABORT, fence)
if refusal then
  return refusal
end
local record = call.record
if call.again then
  return reply(now, raw, binding_outcome(1, record, call.behind, call.again, 0))
end
if not call.holds then
  -- The same fence, already unbound: idempotent. Any other: stale.
  local done = record and not record.forgotten and record.state == 0 and record.fence == fence
  return reply(now, raw or '', binding_outcome(done and 1 or 0, record, call.behind, nil, 0))
end
binding_release(bound_key, record_key, record)
ring_add(record.ring, { request_id, ABORT, record.epoch, record.ordinal, reason, 0, 0, fence, '', -1 })
raw = record_write(record_key, record, granularity)
publish(channel, 'release', record_key, record, reason)
return reply(now, raw, binding_outcome(1, record, call.behind, nil, 0))
