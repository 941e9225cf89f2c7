-- The partition's next tick: `now`, if that is above every tick known (the clock's and `floor`); else the largest known
-- + 1 + ten bits of a hash of the time. Microseconds cannot be outrun by one partition, so what is issued later is larger
-- whatever was lost; the last tick makes a clock set back over intact data harmless; the ten bits are for data lost *and*
-- the clock set back, where two lineages would otherwise count through the same numbers (design, sections 2 to 4).
-- The clock is written before the caller writes the record: a script cut short leaves a gap, never a repeat.
local function tick(clock_key, now, floor)
  local issued = tonumber(redis.call('GET', clock_key) or 0)
  if not (issued and issued >= 0 and issued < 9007199254740992) then -- nan fails this too
    return nil, redis.error_reply('CORRUPT the clock of a partition is not a number; delete that key, ticks go on from the time')
  end
  issued = math.max(issued, floor)
  if now > issued then
    issued = now
  else
    local bits = tonumber(string.sub(redis.sha1hex(string.format('%.0f', now)), 1, 4), 16) % 1024
    issued = issued + 1 + bits
  end
  redis.call('SET', clock_key, string.format('%.0f', issued))
  return issued
end
