-- The epoch past which the next tick must go because somebody has seen it, or 0 (design, section 4).
-- `hard` is what the caller states: refused when implausible. `soft` is what a replica remembers: dropped instead.
-- Plausible: at most 60 s beyond the server's clock, or up to the partition's own where that runs ahead: what it has issued was
-- seen. Never 60 s beyond the latter, or callers could drive it ahead without end, and a loss would then take epochs back.
local function seen_target(clock_key, now, epoch, hard, soft)
  if hard <= epoch and soft <= epoch then
    return 0
  end
  local issued = tonumber(redis.call('GET', clock_key) or 0)
  if not (issued and issued >= 0 and issued < 9007199254740992) then
    return nil, redis.error_reply('CORRUPT the clock of a partition is not a number; delete that key, ticks go on from the time')
  end
  local limit = math.max(now + 60000000, issued)
  local target = 0
  if hard > epoch then
    if hard > limit then
      return nil, redis.error_reply('IMPLAUSIBLE_EPOCH the epoch seen is more than 60 s ahead of the clock of the store; check where the caller has it from.')
    end
    target = hard
  end
  if soft > epoch and soft > target and soft <= limit then
    target = soft
  end
  return target
end
