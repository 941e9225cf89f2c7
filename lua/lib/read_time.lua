-- The server's clock, read once: microseconds since 2026-01-01T00:00Z. `override` is 0 but in tests, which inject a clock.
local function read_time(override)
  if override > 0 then
    return override
  end
  local time = redis.call('TIME')
  return (time[1] - 1767225600) * 1000000 + time[2]
end
