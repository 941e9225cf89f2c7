-- A new epoch in place of the old one (or the first): the tick, the unbinding, the fresh record. At most 1 ZREM and the
-- tick's 2 calls; the caller stores the record. `target` is the lost epoch to go past, or 0. Returns the record, or nil
-- and an error reply.
-- @include tick
-- @include bound_member
local function record_begin(keys, now, old, reason, target, keep_ms)
  local floor = target
  if old then
    floor = math.max(floor, old.epoch, old.fence)
  end
  local issued, refusal = tick(keys.clock, now, floor)
  if refusal then
    return nil, refusal
  end
  local known = old and not old.forgotten
  if old and old.state > 0 then
    redis.call('ZREM', keys.bound, bound_member(keys.record, old.worker))
  end
  local previous = target
  if target == 0 and known then
    previous = old.epoch
  end
  return {
    last = now, epoch = issued, state = 0, forgotten = false,
    ordinal = known and old.ordinal + 1 or 1, reason = reason, previous = previous,
    worker = '', dp_rank = -1, incarnation = '', holder = '', fence = 0, deadline = 0, rebound = 0,
    suspend = 0, keep_ms = keep_ms, ring = old and old.ring or {},
  }
end
