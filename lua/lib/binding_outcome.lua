-- The outcome of a binding call: {held, state, fence, worker, dp_rank, decided, clock behind, replayed}, read off the
-- record or, for a repeated request, off the ring's entry.
local function binding_outcome(held, record, behind, entry, decided)
  local flag = behind and 1 or 0
  if entry then
    return { 1, entry[7], entry[8], entry[9], entry[10], decided, flag, 1 }
  elseif not record then
    return { 0, 0, 0, '', -1, 0, 0, 0 }
  end
  return { held, record.state, record.fence, record.worker, record.dp_rank, decided, flag, 0 }
end
