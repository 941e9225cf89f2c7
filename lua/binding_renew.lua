-- binding_renew: a claim or a binding lives on; for long streams and slow first tokens. An activity. Repeating it does no harm, so
-- its request id takes no place in the ring, which a long stream would fill.
--
-- KEYS[1] -> limpet:{<ns>:<p>}:<conv|sess>:<digest> (string: the record)
-- KEYS[2] -> limpet:{<ns>:<p>}:bound (sorted set: bindings by deadline)
-- --
-- ARGV[1] -> struct '>I8I8': now_us (0 but in tests), granularity_us; then MessagePack
--            {fence, claim_ttl_us, bind_ttl_us, retention_ms}
-- --
-- Returns -> now, length, record, {held, state, fence, worker, dp_rank, decided, clock behind, replayed}; held 0: a stale fence
-- Errors -> SCHEMA_TOO_NEW, CORRUPT, CLOCK_BEFORE_2026
-- Complexity -> O(log(N)) with N bindings of the partition, at most 4 redis.calls (TIME, GET, ZADD, SET).
local record_key = KEYS[1]
local bound_key = KEYS[2]
-- @include read_time
-- @include binding_open
-- @include binding_outcome
-- @include bound_member
-- @include record_write
-- @include reply
local RENEW, BOUND = 6, 2

local override, granularity = struct.unpack('>I8I8', ARGV[1])
local args = cmsgpack.unpack(string.sub(ARGV[1], 17))
local fence, claim_ttl, bind_ttl, retention_ms = args[1], args[2], args[3], args[4]
local now, early = read_time(override)
if early then
  return early
end

local raw = redis.call('GET', record_key)
local call, refusal = binding_open(raw, now, granularity, '', RENEW, fence)
if refusal then
  return refusal
end
local record = call.record
if not call.holds then
  return reply(now, raw or '', binding_outcome(0, record, call.behind, nil, 0))
end
record.deadline = math.max(record.deadline, now + (record.state == BOUND and bind_ttl or claim_ttl))
record.last = now
record.keep_ms = math.max(record.keep_ms, retention_ms)
redis.call('ZADD', bound_key, '+inf', '', string.format('%.0f', record.deadline), bound_member(record_key, record.worker))
raw = record_write(record_key, record, granularity)
return reply(now, raw, binding_outcome(1, record, call.behind, nil, 0))
