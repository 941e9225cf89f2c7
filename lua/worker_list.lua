-- worker_list: every worker of the namespace, and the time, by which a heartbeat is judged.
--
-- KEYS[1] -> limpet:{<ns>}:workers (hash: worker -> state)
-- --
-- ARGV[1] -> struct '>I8': now_us (0 but in tests)
-- --
-- Returns -> {now (8 bytes), worker, state, worker, state ...}; a state is as worker_register returns it
-- Errors -> CLOCK_BEFORE_2026
-- Flags -> no-writes
-- Complexity -> O(N) for N workers, which worker_register bounds; 2 redis.calls (TIME, HGETALL).
local workers_key = KEYS[1]
-- @include read_time
local override = struct.unpack('>I8', ARGV[1])
local now, early = read_time(override)
if early then
  return early
end
local listed = redis.call('HGETALL', workers_key)
table.insert(listed, 1, struct.pack('>I8', now))
return listed
