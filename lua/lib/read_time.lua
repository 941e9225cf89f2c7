-- The server's clock, read once: microseconds since 2026-01-01T00:00Z. `override` is 0 but in tests, which inject a clock.
-- Second result: an error reply for a clock before that, from which nothing can be counted.
local function read_time(override)
  if override > 0 then
    return override
  end
  local time = redis.call('TIME')
  local now = (time[1] - 1767225600) * 1000000 + time[2]
  if now < 0 then
    return nil, redis.error_reply('CLOCK_BEFORE_2026 the clock of the store is set before 2026; set it right, ticks count from then')
  end
  return now
end
