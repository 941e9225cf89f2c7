-- HAProxy has no auth_request of its own: this asks Limpet where a conversation belongs and leaves the answer in
-- txn.limpet_address and txn.limpet_scope. It is told where Limpet is by the variables that haproxy.cfg sets
-- (arguments of lua-load-per-thread reach only the first thread in 2.6).
--
-- A server that HAProxy's own health checks have found dead is reported as lost, so that its conversations move.

local url = os.getenv('LIMPET_FORWARD_AUTH')
local backend = os.getenv('LIMPET_BACKEND')
local token = os.getenv('LIMPET_FORWARD_AUTH_TOKEN')

local function ask(txn, lost)
  local headers = txn.http:req_get_headers()
  local sent = {}
  for name, values in pairs(headers) do
    if name ~= 'authorization' and name ~= 'content-length' and name ~= 'transfer-encoding' and name ~= 'connection'
      and name ~= 'x-limpet-lost' and name ~= 'expect' then
      sent[name] = { values[0] }
    end
  end
  sent['x-limpet-token'] = token and { token } or nil
  sent['x-limpet-lost'] = lost and { lost } or nil
  return core.httpclient():get({ url = url, headers = sent, timeout = 2000 })
end

local function first(answer, name)
  local values = answer.headers and answer.headers[name]
  return values and values[0] or nil
end

local function is_down(name)
  local server = core.backends[backend] and core.backends[backend].servers[name]
  return server ~= nil and string.find(server:get_stats()['status'] or '', 'UP', 1, true) == nil
    and server:get_stats()['status'] ~= 'no check'
end

core.register_action('limpet', { 'http-req' }, function(txn)
  local answer = ask(txn)
  if answer == nil or answer.status ~= 200 then
    txn:set_var('txn.limpet_status', answer and answer.status or 503)
    return
  end
  local address = first(answer, 'x-limpet-address')
  if address and is_down(address) then
    answer = ask(txn, first(answer, 'x-limpet-fence'))
    address = first(answer, 'x-limpet-address') or address
  end
  txn:set_var('txn.limpet_status', 200)
  txn:set_var('txn.limpet_address', address or '')
  txn:set_var('txn.limpet_scope', first(answer, 'x-limpet-scope') or '')
end, 0)
