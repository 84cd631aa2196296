-- A lease: job id, task number, cost, claimed_us, charged, postponed, length of the queue's name, queue .. lane (43 bytes, then text).
local LEASE = '>c16I4I4I8I8BI2'

local function pack_lease(lease)
  return struct.pack(LEASE, lease.id, lease.task, lease.cost, lease.claimed, lease.charged, lease.postponed and 1 or 0, #lease.queue)
    .. lease.queue .. lease.lane
end

-- nil when the record cannot be read
local function read_lease(token, record)
  if #record < 44 then return nil end -- no queue is without a name
  local id, task, cost, claimed, charged, postponed, length = struct.unpack(LEASE, record)
  if #record < 43 + length or cost < 1 or cost > 1000000 then return nil end
  return {
    token = token, record = record, id = id, task = task, cost = cost, claimed = claimed, charged = charged, postponed = postponed == 1,
    queue = string.sub(record, 44, 43 + length), lane = string.sub(record, 44 + length),
  }
end

-- the readable leases among these tokens, in order
local function leased(tokens)
  local held = {}
  if #tokens == 0 then return held end
  for i, record in ipairs(call('HMGET', root .. 'lease', unpack(tokens))) do
    local lease = record and read_lease(tokens[i], record)
    if lease then held[#held + 1] = lease end
  end
  return held
end

local function tokens_from(first)
  local tokens = {}
  for i = first, #ARGV do tokens[#tokens + 1] = ARGV[i] end
  return tokens
end

local function names_of(held)
  local tokens = {}
  for i, lease in ipairs(held) do tokens[i] = lease.token end
  return tokens
end
