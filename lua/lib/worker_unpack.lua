-- A worker's state as a table; nil where there is none, or where it cannot be decoded (nothing of ours writes such a one).
local function worker_unpack(stored)
  local read, state = pcall(cmsgpack.unpack, stored or '')
  if not read or type(state) ~= 'table' or type(state[4]) ~= 'string' or type(state[6]) ~= 'number'
    or type(state[7]) ~= 'number' or type(state[8]) ~= 'number' or type(state[9]) ~= 'number' then
    return nil
  end
  return state
end
