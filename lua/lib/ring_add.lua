-- Remembers a result under its request id; the oldest of more than 8 goes. An id comes in once: its newest result counts.
-- Entry: {request id, operation, epoch, ordinal, reason, previous epoch, bits, fence, worker, dp_rank}.
local function ring_add(ring, entry)
  if entry[1] == '' then
    return
  end
  for i = 1, #ring do
    if ring[i][1] == entry[1] and ring[i][2] == entry[2] then
      table.remove(ring, i)
      break
    end
  end
  if #ring >= 8 then
    table.remove(ring, 1)
  end
  ring[#ring + 1] = entry
end
