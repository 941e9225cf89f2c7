-- The ring's entry of this request id and operation, or nil. At most 8 steps.
local function ring_find(ring, request_id, operation)
  if request_id == '' then
    return nil
  end
  for i = #ring, 1, -1 do
    if ring[i][1] == request_id and ring[i][2] == operation then
      return ring[i]
    end
  end
  return nil
end
