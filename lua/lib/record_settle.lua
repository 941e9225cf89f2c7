-- If the clock is behind the record's last activity it was set back over intact data: every instant in the record moves
-- back by the difference, so that no claim, binding or policy freezes until the clock has caught up. Returns whether it did.
-- Epochs and fences are names, not instants, and stay as they are.
local function record_settle(record, now)
  local behind = record.last - now
  if behind <= 0 then
    return false
  end
  record.last = now
  if record.state > 0 then
    record.deadline = math.max(record.deadline - behind, 0)
  end
  if record.suspend > 1 then
    record.suspend = math.max(record.suspend - behind, 2)
  end
  return true
end
