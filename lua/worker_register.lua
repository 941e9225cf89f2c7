-- worker_register: a worker comes, comes back, or changes its address, capacity or labels. Counts as a heartbeat. Another
-- incarnation is another worker: whatever was said of the old one (draining) is not said of it.
-- On behalf of a worker (a gateway for its upstreams) nobody knows its incarnation, so that is no news of another worker: one that
-- registered itself and lives is left as it is, and a drained one stays drained, whoever registered it.
--
-- KEYS[1] -> limpet:{<ns>}:workers (hash: worker -> state)
-- --
-- ARGV[1] -> struct '>I8': now_us (0 but in tests); then MessagePack
--            {worker, pool, address, capacity, incarnation, labels (map), heartbeat ttl_us or 0 (static: never gone), channel,
--            most workers allowed, on behalf of it}
-- --
-- Returns -> now, MessagePack {pool, address, capacity, incarnation, labels, ttl_us, draining, since, heartbeat}
-- Errors -> TOO_MANY_WORKERS, CLOCK_BEFORE_2026
-- Complexity -> O(1), at most 5 redis.calls (TIME, HGET, HLEN, HSET, PUBLISH).
local workers_key = KEYS[1]
-- @include read_time
-- @include worker_unpack
local override = struct.unpack('>I8', ARGV[1])
local args = cmsgpack.unpack(string.sub(ARGV[1], 9))
local worker, incarnation, channel, most, on_behalf = args[1], args[5], args[8], args[9], args[10]
local now, early = read_time(override)
if early then
  return early
end

local stored = redis.call('HGET', workers_key, worker)
local old = worker_unpack(stored) -- a damaged one is replaced as if it had not been there
if not stored and redis.call('HLEN', workers_key) >= most then
  return redis.error_reply('TOO_MANY_WORKERS the namespace has as many workers as it may; remove those that are gone')
end
local same = old and old[4] == incarnation
if on_behalf and old and not same and (old[6] == 0 or now - old[9] <= old[6]) then
  return struct.pack('>BI8', 0xcf, now) .. stored
end
local kept = old and (same or on_behalf)
local state = cmsgpack.pack({
  args[2], args[3], args[4], incarnation, args[6], args[7], kept and old[7] or 0, kept and old[8] or now, now,
})
redis.call('HSET', workers_key, worker, state)
if not same then
  redis.call('PUBLISH', channel, cmsgpack.pack({ 'worker', 'work', '', 0, now, worker, 'registered' }))
end
return struct.pack('>BI8', 0xcf, now) .. state
